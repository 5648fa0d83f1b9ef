from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdcd.config.loading import load, settings_file
from cdcd.config.settings import NAMES
from cdcd.errors import SettingsError

MINIMAL = '[source]\ndsn = "host=db password=hunter2"\n[sink]\nbootstrap_servers = "k:9092"\n'


# Sources and their order


def test_the_environment_wins_over_the_file_and_the_secrets_over_both(
    load_text: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "source__dsn").write_text("host=secret\n")
    monkeypatch.setenv("CDCD_SECRETS_DIR", str(secrets))
    monkeypatch.setenv("CDCD_SOURCE__DSN", "host=environment")
    monkeypatch.setenv("CDCD_SOURCE__SLOT", "environment")
    loaded = load_text(MINIMAL.replace("[sink]", 'slot = "file"\npublication = "file"\n[sink]'))
    source = loaded.settings.source
    assert (source.dsn, source.slot, source.publication) == ("host=secret", "environment", "file")
    assert loaded.origins["source.dsn"] == f"secret {secrets}/source__dsn"
    assert loaded.origins["source.slot"] == "environment CDCD_SOURCE__SLOT"
    assert loaded.origins["source.publication"] == f"file {tmp_path}/cdcd.toml"
    assert "source.create" not in loaded.origins


def test_everything_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDCD_SOURCE__DSN", "host=db")
    monkeypatch.setenv("CDCD_SOURCE__TABLES", '["a.*", "b.c"]')
    monkeypatch.setenv("CDCD_SOURCE__BINARY", "false")
    monkeypatch.setenv("CDCD_SINK__BOOTSTRAP_SERVERS", "k:1")
    monkeypatch.setenv("CDCD_SINK__LIBRDKAFKA", '{"client.id": "me"}')
    settings = load(None).settings
    assert settings.source.tables == ("a.*", "b.c")
    assert settings.source.binary is False
    assert settings.sink.librdkafka == {"client.id": "me"}


def test_a_variable_joins_the_other_librdkafka_properties(load_text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDCD_SINK__LIBRDKAFKA__SASL.PASSWORD", "pw")
    monkeypatch.setenv("CDCD_SINK__LIBRDKAFKA__linger.ms", "7")
    monkeypatch.setenv("CDCD_SINK__LIBRDKAFKA", '{"client.id": "me", "linger.ms": 5}')
    loaded = load_text(MINIMAL + '[sink.librdkafka]\n"sasl.username" = "me"\n')
    assert loaded.settings.sink.librdkafka == {
        "sasl.username": "me", "client.id": "me", "linger.ms": "7", "sasl.password": "pw",
    }  # fmt: skip
    assert "environment CDCD_SINK__LIBRDKAFKA__SASL.PASSWORD" in loaded.origins["sink.librdkafka"]


def test_a_secret_joins_the_other_librdkafka_properties(
    load_text: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sink__librdkafka__sasl.password").write_text("pw")
    (tmp_path / "..data").write_text("Kubernetes keeps versions so; not a setting")
    (tmp_path / "cdcd.toml").write_text(MINIMAL + '[sink.librdkafka]\n"sasl.username" = "me"\n')
    secrets = tmp_path / "s"
    secrets.mkdir()
    (tmp_path / "sink__librdkafka__sasl.password").rename(secrets / "sink__librdkafka__sasl.password")
    (tmp_path / "..data").rename(secrets / "..data")
    monkeypatch.setenv("CDCD_SECRETS_DIR", str(secrets))
    assert load(str(tmp_path / "cdcd.toml")).settings.sink.librdkafka == {"sasl.username": "me", "sasl.password": "pw"}


def test_messages_of_an_outbox_are_refused_where_no_message_comes(load_text: Any) -> None:
    outbox = '[outbox]\nmessage_prefix = "outbox"\n'
    with pytest.raises(SettingsError, match=r"outbox\.message_prefix is set, and source\.messages is false"):
        load_text(MINIMAL.replace("[sink]", "messages = false\n[sink]") + outbox)
    load_text(MINIMAL + outbox)


def test_the_command_line_wins_over_the_log_level(load_text: Any, tmp_path: Path) -> None:
    load_text()
    loaded = load(str(tmp_path / "cdcd.toml"), {"log.level": ("--log-level", "debug")})
    assert (loaded.settings.log.level, loaded.origins["log.level"]) == ("debug", "--log-level")


@pytest.mark.parametrize(
    "variable",
    [
        "CDCD_SERVICE_HOST",
        "CDCD_SERVICE_PORT_HTTP",
        "CDCD_PORT",
        "CDCD_PORT_9478_TCP_ADDR",
        "CDCD_METRICS_SERVICE_PORT",
    ],
)
def test_what_kubernetes_injects_for_a_service_called_cdcd_is_no_setting(
    load_text: Any, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "tcp://10.0.0.1:9478")
    assert load_text().settings.monitoring.port == 9478


@pytest.mark.parametrize(
    "variable", ["CDCD_COMPILE", "CDCD_SPARK_DSN", "CDCD_TEST_HOME", "CDCD_TEST_POSTGRES", "CDCD_TEST_PAUSE_S"]
)
def test_what_the_build_the_tests_and_spark_read_is_no_setting(
    load_text: Any, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "1")
    assert load_text().settings.monitoring.port == 9478


# Errors


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        (
            "CDCD_SOURCE__SLOTT",
            "x",
            "There is no setting CDCD_SOURCE__SLOTT (environment). Did you mean CDCD_SOURCE__SLOT?",
        ),
        ("CDCD_SUORCE__SLOT", "x", "Did you mean CDCD_SOURCE__SLOT?"),
        ("CDCD_SLOT", "x", "Did you mean CDCD_SOURCE__SLOT?"),
        ("CDCD_MONITORNG__PORT", "1", "Did you mean CDCD_MONITORING__PORT?"),
        ("CDCD_SOURCE", "{}", "CDCD_SOURCE is a section, not a setting"),
        ("CDCD_QQQQQQQ", "x", "`cdcd config --reference` lists every setting"),
        (
            "CDCD_SOURCE__TABLES",
            "public.*",
            "source.tables is not JSON (environment CDCD_SOURCE__TABLES). Write it like",
        ),
        ("CDCD_SOURCE__SLOT", "My Slot", "source.slot must be 1 to 63 of the characters"),
        ("CDCD_SOURCE__BINARY", "maybe", "source.binary must be 'auto', true or false"),
        ("CDCD_SOURCE__TABLES", '["orders"]', "must be written as schema.table"),
        ("CDCD_MONITORING__PORT", "70000", "(environment CDCD_MONITORING__PORT)"),
        ("CDCD_SINK__TOPIC", "{prefix}.all", "does not give every table a topic"),
        ("CDCD_SINK__PREFIX", "a b", "sink.prefix is 'a b'"),
        ("CDCD_SINK__LIBRDKAFKA", '{"acks": "1"}', "sink.librdkafka may not hold 'acks'"),
        ("CDCD_SECRETS_DIR", "/does/not/exist", "The secrets directory /does/not/exist does not exist"),
    ],
)
def test_a_wrong_variable_is_named_with_its_hint(
    load_text: Any, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as caught:
        load_text()
    assert said in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MINIMAL + "prefx = 1\n", "There is no setting sink.prefx (file "),
        (MINIMAL + "prefx = 1\n", "Did you mean sink.prefix?"),
        ("[source]\ntable = []\n", "Did you mean source.tables?"),  # and not outbox.table
        ("[source]\nprefix = ''\n", "Did you mean sink.prefix?"),
        (
            MINIMAL + "[[tables]]\nmatch = 'a.b'\n",
            "tables must be one section, [tables]; did you mean [[table]]? (file ",
        ),
        (
            MINIMAL + "[sink.librdkafka]\nsasl.oauthbearer.method = 'oidc'\n",
            'sink.librdkafka must have names with a dot in quotes: "sasl.oauthbearer.method" = ... (file ',
        ),
        (MINIMAL + "[sinc]\nprefix = 1\n", "There is no section [sinc] (file "),
        (MINIMAL + "[sinc]\nprefix = 1\n", "Did you mean [sink]?"),
        (MINIMAL + 'partitions = "many"\n', "sink.partitions must be a whole number (file "),
        (MINIMAL + "partitions = 0\n", "sink.partitions must be 1 or more (file "),
        (MINIMAL + 'tombstones = "ja"\n', "sink.tombstones must be true or false (file "),
        (MINIMAL + 'delivery = "once"\n', "sink.delivery must be 'exactly_once' or 'at_least_once' (file "),
        (MINIMAL + "topic = 1\n", "sink.topic must be a text in quotes (file "),
        (MINIMAL + "topic_config = 1\n", "sink.topic_config must be a table"),
        ('slot = "x"\n' + MINIMAL, "Did you mean source.slot?"),
        ("source = 5\n", "source must be a section, as in [source]"),
        ('[source]\n[sink]\nbootstrap_servers = "k"', "source.dsn is not set. Set it in the file under [source], or "),
        ("[source]\n", "source.dsn and sink.bootstrap_servers are not set. Set them in the file under [source] and "),
        ("[source]\n", "or as CDCD_SOURCE__DSN and CDCD_SINK__BOOTSTRAP_SERVERS"),
        ('[source]\ndsn = ""\n', "sink.bootstrap_servers is not set"),
        ("[source\n", "is not TOML"),
        ("", "source.dsn and sink.bootstrap_servers are not set"),
    ],
)
def test_a_wrong_file_is_named_with_its_hint(load_text: Any, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_text(text)
    assert said in str(caught.value)
    assert caught.value.hint


def test_all_that_is_wrong_is_named_at_once(load_text: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        load_text('[source]\nslot = "A"\nstatus_interval_s = "x"\n[sink]\nbootstrap_servers = "b"\npartitions = 0\n')
    said = str(caught.value)
    for key in (
        "source.dsn is not set",
        "source.slot must be",
        "source.status_interval_s must be",
        "sink.partitions must",
    ):
        assert key in said
    assert said.count("(file ") == 3
    assert "CDCD_SOURCE__DSN" in caught.value.hint
    assert "describes them" in caught.value.hint


def test_a_secret_file_of_an_unknown_setting_is_named(
    load_text: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "source__dns").write_text("host=secret")
    monkeypatch.setenv("CDCD_SECRETS_DIR", str(secrets))
    with pytest.raises(SettingsError, match=r"no setting source__dns .*Did you mean source\.dsn"):
        load_text()


def test_where_no_file_is_found_and_nothing_is_set_the_error_says_so() -> None:
    with pytest.raises(SettingsError, match=r"no settings file: neither cdcd\.toml .* cdcd init writes one"):
        load(None)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(SettingsError, match=r"/does/not/exist cannot be read: No such file"):
        load("/does/not/exist")


@pytest.mark.parametrize("key", [key for key in NAMES.known() if key not in NAMES.free_form and "." in key])
def test_no_error_repeats_a_value(load_text: Any, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    variable = f"CDCD_{key.replace('.', '__').upper()}"
    monkeypatch.setenv(variable, "SECRET-SECRET" * 20)
    said = ""
    try:
        load_text()
    except SettingsError as error:
        said = f"{error} {error.__cause__}"
    if key not in ("sink.prefix", "sink.topic"):  # no secrets, and shown by the sink's own check
        assert "SECRET" not in said


def test_the_command_line_names_the_file_before_the_environment_and_the_environment_before_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if not Path("/etc/cdcd/cdcd.toml").exists():
        assert settings_file(None) is None
    (tmp_path / "cdcd.toml").touch()
    assert settings_file(None) == "cdcd.toml"
    monkeypatch.setenv("CDCD_CONFIG", "/of/the/environment.toml")
    assert settings_file(None) == "/of/the/environment.toml"
    assert settings_file("/of/the/option.toml") == "/of/the/option.toml"


def test_the_variable_of_the_file_is_no_setting(load_text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDCD_CONFIG", "x")
    assert load_text().settings.source.slot == "cdcd"
