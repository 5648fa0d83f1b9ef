"""The page about Debezium: its settings are taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pages import blocks

from cdcd.config import loading
from cdcd.config.format_choice import debezium_modes


def test_the_settings_of_the_page_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDCD_SOURCE__DSN", "dbname=shop")
    monkeypatch.setenv("CDCD_SINK__BOOTSTRAP_SERVERS", "localhost:9092")
    [given] = [each for each in blocks("debezium") if each.language == "toml"]
    file = tmp_path / "cdcd.toml"
    file.write_text(given.text)
    settings = loading.load(str(file), {}).settings
    modes = debezium_modes(settings)
    assert settings.sink.event_format == "debezium/json"
    assert (modes.decimal, modes.truncates, modes.with_schemas, modes.null_as_default) == ("double", True, False, False)
