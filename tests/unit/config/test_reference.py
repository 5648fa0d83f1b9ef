from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cdcd.config.reference import MASK, effective, mask_connection, masked, reference
from cdcd.config.settings import NAMES, Settings


def test_config_cdcd_toml_is_the_generated_reference() -> None:
    shipped = Path(__file__).parents[3] / "config" / "cdcd.toml"
    assert shipped.read_text() == reference(), "run: cdcd config --reference > config/cdcd.toml"


def test_the_reference_loads_and_gives_the_defaults(load_text: Any) -> None:
    given = load_text(reference()).settings
    required: dict[str, Any] = {
        "source": {"dsn": given.source.dsn},
        "sink": {"bootstrap_servers": given.sink.bootstrap_servers},
    }
    assert given == Settings(**required)


def test_every_setting_is_described_in_the_reference() -> None:
    text = reference()
    for key in NAMES.known():
        section, _, name = key.rpartition(".")
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
