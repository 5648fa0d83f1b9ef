"""The settings that the page of errors shows for a mirror are settings."""

from __future__ import annotations

from pathlib import Path

from support.error_page import blocks

from cdcd.spark.settings import load


def test_the_settings_of_a_mirror_are_taken(tmp_path: Path) -> None:
    given = [each for each in blocks() if each.language == "toml mirror"]
    assert len(given) == 2
    file = tmp_path / "mirror.toml"
    for each in given:
        kafka = "" if "[kafka]" in each.text else '[kafka]\nbootstrap_servers = "localhost:9092"\n'
        file.write_text(kafka + each.text)
        load(str(file))
