"""The smallest file has what differs from the defaults, gives the same settings, and has no secret."""

from __future__ import annotations

from typing import Any

from cdcd.config.settings import Settings
from cdcd.config.smallest_file import smallest_file

REQUIRED: dict[str, Any] = {"source": {"dsn": "host=db"}, "sink": {"bootstrap_servers": "k:9092"}}


def test_with_the_defaults_only_the_required_settings_are_in_it(load_text: Any) -> None:
    settings = Settings(**REQUIRED)
    text = smallest_file(settings, "one\ntwo")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines == ["[source]", 'dsn = "host=db"', "[sink]", 'bootstrap_servers = "k:9092"']
    assert "# two\n" in text
    assert load_text(text).settings == settings


def test_what_differs_comes_back_as_it_was(load_text: Any) -> None:
    settings = Settings(
        source={"dsn": "host=db user='a \"b\\''", "tables": ("public.*", 'x."Y"'), "create": False},
        sink={
            "bootstrap_servers": "k:9092",
            "topic_config": {"retention.ms": "1"},
            "librdkafka": {"security.protocol": "SSL", "socket.keepalive.enable": True},
        },
        log={"format": "json"},
    )
    assert load_text(smallest_file(settings)).settings == settings


def test_no_secret_is_written() -> None:
    secrets = {"sasl.password": "hunter2", "ssl.key.pem": "hunter2"}
    settings = Settings(**{**REQUIRED, "sink": {"bootstrap_servers": "k", "librdkafka": secrets}})
    assert "hunter2" not in smallest_file(settings)
    assert "[sink.librdkafka]" not in smallest_file(settings)
