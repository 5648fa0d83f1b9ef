"""Files are written whole, and none is overwritten by accident."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdcd.cli.setup.files import write
from cdcd.errors import SettingsError


def test_nothing_is_overwritten_or_written_if_one_file_is_there(tmp_path: Path) -> None:
    there, other = tmp_path / "cdcd.toml", tmp_path / "cdcd.sql"
    there.write_text("mine")
    with pytest.raises(SettingsError, match=r"cdcd\.toml exists already"):
        write({other: "sql", there: "theirs"}, force=False)
    assert there.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["cdcd.toml"]


def test_the_same_text_is_no_hindrance(tmp_path: Path) -> None:
    files = {tmp_path / "cdcd.toml": "a", tmp_path / "cdcd.sql": "b"}
    write(files, force=False)
    write(files, force=False)
    assert {path: path.read_text() for path in tmp_path.iterdir()} == files


def test_force_overwrites_and_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "cdcd-acls.sh"
    path.write_text("old")
    write({path: "new"}, force=True)
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o755
    assert [each.name for each in tmp_path.iterdir()] == ["cdcd-acls.sh"]


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be written: No such file"):
        write({tmp_path / "none" / "cdcd.toml": ""}, force=False)
