from __future__ import annotations

import json
from typing import Any

import pytest

from cdcd.config.reference import MASK, effective, mask_connection, masked, reference
from cdcd.config.settings import NAMES, Settings
from cdcd.errors import SettingsError


def test_the_reference_gives_the_defaults_once_the_required_settings_are_set(
    load_text: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDCD_SOURCE__DSN", "host=db")
    monkeypatch.setenv("CDCD_SINK__BOOTSTRAP_SERVERS", "k:9092")
    required: dict[str, Any] = {"source": {"dsn": "host=db"}, "sink": {"bootstrap_servers": "k:9092"}}
    assert load_text(reference()).settings == Settings(**required)


def test_the_reference_as_it_is_connects_to_no_server(load_text: Any) -> None:
    with pytest.raises(SettingsError, match=r"source\.dsn and sink\.bootstrap_servers are not set"):
        load_text(reference())


def test_every_setting_is_described_in_the_reference() -> None:
    text = reference()
    for key in NAMES.known():
        section, _, name = key.rpartition(".")
        if key in NAMES.lists:
            assert f"# [[{name}]]\n" in text
            continue
        field = NAMES.sections[section].model_fields[name] if section else Settings.model_fields[name]
        assert f"{name} = " in text
        assert (field.description or "").endswith("."), key


@pytest.mark.parametrize(
    "connection",
    [
        "host=x password=hunter2 user=u",
        "host=x password = 'hunter2 with \\' quote' user=u",
        "host=x sslpassword=hunter2",
        "postgresql://u:hunter2@h/db",
        "postgresql://u:hunter2@x@h/db",
        "postgresql://u@h/db?password=hunter2&a=b",
        "https://u:hunter2@registry:8081",
        "host=x PASSWORD=hunter2",
        "password='hunter2 never closed",
    ],
)
def test_no_password_of_a_connection_string_is_shown(connection: str) -> None:
    shown = mask_connection(connection)
    assert "hunter2" not in shown
    assert MASK in shown


@pytest.mark.parametrize(
    "connection", ["host=x user=u dbname=d", "postgresql://u@h:5432/db?sslmode=require", "k1:9092,k2:9092"]
)
def test_what_has_no_password_is_shown_as_it_is(connection: str) -> None:
    assert mask_connection(connection) == connection


@pytest.mark.parametrize(
    "key",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.keystore.password",
        "basic.auth.user.info",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
    ],
)
def test_secret_properties_are_masked(key: str) -> None:
    assert masked("librdkafka", {key: "hunter2", "client.id": "me"}) == {key: MASK, "client.id": "me"}


def test_neither_repr_nor_the_effective_settings_show_a_secret(load_text: Any, minimal: str) -> None:
    text = minimal + '[sink.librdkafka]\n"sasl.password" = "hunter2"\n[avro]\nregistry_url = "http://u:hunter2@r"\n'
    loaded = load_text(text + 'registry_config = { "basic.auth.user.info" = "u:hunter2" }\n')
    assert "hunter2" not in repr(loaded)
    assert "hunter2" not in json.dumps(effective(loaded))
    assert "hunter2" in loaded.settings.source.dsn
