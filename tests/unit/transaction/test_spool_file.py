"""Bytes to the disk and back, in a directory that no other user enters, and nothing left behind."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdcd.errors import SettingsError
from cdcd.transaction.spool_file import SpoolDirectory, SpoolFile, default_directory

OTHER_UID = 65_534


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[SpoolDirectory]:
    made = SpoolDirectory(tmp_path / "spool")
    made.make_empty()
    yield made
    made.remove()


def content(file: SpoolFile) -> bytes:
    return file.read(0, file.size())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    directory = SpoolDirectory(tmp_path / "a" / "b")
    directory.make_empty()
    file = directory.file(7)
    assert not file.path.exists(), "made by the first append"
    parts = [b"one", b"", os.urandom(3_000_000), b"two"]
    file.append(parts[:1])
    file.append(parts[1:])
    whole = b"".join(parts)
    assert content(file) == whole
    assert file.read(1, 5) == whole[1:6]
    assert file.read(3_000_000, 100) == whole[3_000_000:], "no more than there is"


def test_a_file_is_cut_and_goes_on_from_there(directory: SpoolDirectory) -> None:
    file = directory.file(1)
    file.append([b"0123456789"])
    file.truncate(4)
    file.append([b"abc"])
    assert content(file) == b"0123abc"
    file.truncate(0)
    assert not file.path.exists()
    file.append([b"new"])
    assert content(file) == b"new"


def test_removing_what_is_not_there_is_nothing(directory: SpoolDirectory) -> None:
    file = directory.file(1)
    file.remove()
    file.append([b"x"])
    file.remove()
    assert list(directory.path.iterdir()) == []


def test_files_are_open_only_while_they_are_used(directory: SpoolDirectory) -> None:
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    for number in range(100):
        directory.file(number).append([b"x"])
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before


def test_the_directory_is_closed_when_it_is_removed(tmp_path: Path) -> None:
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    for _ in range(10):
        directory = SpoolDirectory(tmp_path / "spool")
        directory.make_empty()
        directory.remove()
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before


# Privacy


def test_directory_and_files_are_nobody_elses_to_read(directory: SpoolDirectory) -> None:
    file = directory.file(1)
    file.append([b"x"])
    assert (mode(directory.path), mode(file.path)) == (0o700, 0o600)


def test_a_directory_that_others_could_enter_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool").chmod(0o777)
    directory = SpoolDirectory(tmp_path / "spool")
    directory.make_empty()
    assert mode(directory.path) == 0o700


def test_a_link_in_the_place_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "1-0.spool").touch()
    (tmp_path / "spool").symlink_to(precious)
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        SpoolDirectory(tmp_path / "spool").make_empty()
    assert (precious / "1-0.spool").exists()


def test_a_directory_that_is_renamed_and_replaced_stays_the_one_that_is_used(
    tmp_path: Path, directory: SpoolDirectory
) -> None:
    file = directory.file(1)
    file.append([b"secret"])
    stolen = tmp_path / "stolen"
    directory.path.rename(stolen)
    directory.path.mkdir()
    (directory.path / file.path.name).write_bytes(b"forged")
    file.append([b" and more"])
    other = directory.file(2)
    other.append([b"secret, too"])
    assert (content(file), content(other)) == (b"secret and more", b"secret, too")
    assert (directory.path / file.path.name).read_bytes() == b"forged", "nothing went there"
    assert not other.path.exists()


@pytest.mark.parametrize("prepared", ["symlink_to", "hardlink_to"])
def test_a_file_that_somebody_has_prepared_is_not_written(
    tmp_path: Path, directory: SpoolDirectory, prepared: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch()
    getattr(directory.file(1).path, prepared)(elsewhere)
    with pytest.raises(FileExistsError):
        directory.file(1).append([b"secret"])
    assert elsewhere.read_bytes() == b""


def test_a_file_that_was_replaced_is_neither_read_nor_written(directory: SpoolDirectory) -> None:
    file = directory.file(1)
    file.append([b"x"])
    file.path.rename(directory.path / "kept")
    file.path.write_bytes(b"y")
    for call in (lambda: file.append([b"z"]), lambda: file.read(0, 1), lambda: file.truncate(1), file.size):
        with pytest.raises(OSError, match="another file is in its place"):
            call()
    assert file.path.read_bytes() == b"y"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir(mode=0o777)
    os.chown(tmp_path / "spool", OTHER_UID, OTHER_UID)
    with pytest.raises(PermissionError, match="it belongs to the user with the id 65534"):
        SpoolDirectory(tmp_path / "spool").make_empty()


def test_what_another_daemon_writes_is_not_removed_at_the_end(tmp_path: Path, directory: SpoolDirectory) -> None:
    directory.file(1).append([b"of the one that lost the slot"])
    later = SpoolDirectory(directory.path)
    later.make_empty()
    assert list(directory.path.iterdir()) == [], "the slot has one reader: what was there is worthless"
    file = later.file(1)
    file.append([b"x"])
    directory.remove()
    assert content(file) == b"x"
    later.remove()
    assert not later.path.exists()


# A write that takes nothing


class NoRoom(SpoolDirectory):
    """A directory whose files are all /dev/full."""

    def open_file(self, name: str, flags: int) -> int:
        return os.open("/dev/full", flags & ~os.O_EXCL)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_what_is_no_file_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="another file") as caught:
        NoRoom(tmp_path).file(1).append([b"x"])
    assert caught.value.errno == errno.ESTALE


# The default


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"STATE_DIRECTORY": "/var/lib/cdcd", "HOME": "/root"}, "/var/lib/cdcd/spool"),
        ({"STATE_DIRECTORY": "/var/lib/cdcd:/var/lib/other"}, "/var/lib/cdcd/spool"),
        ({"XDG_STATE_HOME": "/state", "HOME": "/home/me"}, "/state/cdcd/spool"),
        ({"XDG_STATE_HOME": "not/absolute", "HOME": "/home/me"}, "/home/me/.local/state/cdcd/spool"),
        ({"TMPDIR": "/tmp", "HOME": "/home/me"}, "/home/me/.local/state/cdcd/spool"),
    ],
)
def test_the_default_is_below_this_users_own_state(environment: dict[str, str], expected: str) -> None:
    assert default_directory(environment) == Path(expected)


@pytest.mark.parametrize("environment", [{}, {"TMPDIR": "/tmp"}, {"HOME": ""}])
def test_without_a_place_of_its_own_the_spool_asks_for_one(environment: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"spool\.directory is not set") as caught:
        default_directory(environment)
    assert "spool.directory" in caught.value.hint
