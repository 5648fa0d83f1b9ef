"""Bytes to the disk and back, and nothing left behind."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from cdcd.transaction.spool_file import SpoolDirectory


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    directory = SpoolDirectory(tmp_path / "a" / "b")
    directory.make_empty()
    file = directory.file(7)
    assert not file.path.exists(), "made by the first append"
    parts = [b"one", b"", os.urandom(3_000_000), b"two"]
    for part in parts:
        file.append(part)
    chunks = list(file.read())
    assert b"".join(chunks) == b"".join(parts)
    assert max(map(len, chunks)) <= 1 << 20


def test_a_file_is_cut_and_goes_on_from_there(tmp_path: Path) -> None:
    file = SpoolDirectory(tmp_path).file(1)
    file.append(b"0123456789")
    file.truncate(4)
    file.append(b"abc")
    assert b"".join(file.read()) == b"0123abc"
    file.truncate(0)
    assert not file.path.exists()
    file.append(b"new")
    assert b"".join(file.read()) == b"new"


def test_removing_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    file = SpoolDirectory(tmp_path).file(1)
    file.remove()
    file.append(b"x")
    file.remove()
    assert list(tmp_path.iterdir()) == []


def test_files_are_open_only_while_they_are_used(tmp_path: Path) -> None:
    directory = SpoolDirectory(tmp_path)
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    for number in range(100):
        directory.file(number).append(b"x")
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before


def test_the_directory_is_nobody_elses_to_read(tmp_path: Path) -> None:
    directory = SpoolDirectory(tmp_path / "spool")
    directory.make_empty()
    assert stat.S_IMODE((tmp_path / "spool").stat().st_mode) == 0o700


def test_a_link_in_the_place_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (tmp_path / "spool").symlink_to(precious)
    with pytest.raises(FileExistsError):
        SpoolDirectory(tmp_path / "spool").make_empty()
    assert (precious / "file").exists()
