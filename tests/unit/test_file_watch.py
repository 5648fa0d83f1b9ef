from __future__ import annotations

import os
from pathlib import Path

import pytest

from cdcd.errors import AccessDenied
from cdcd.file_watch import LOOK_EVERY_S, FileWatch


class Watched:
    """A certificate and a key in a folder, as a mounted Secret has them, and a client that needs both to fit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_s = 0.0
        self.tries = 0
        self.swap("1", "1")
        for name in ("tls.crt", "tls.key"):
            (folder / name).symlink_to(Path("..data") / name)
        self.watch = self.watched()

    def watched(self) -> FileWatch:
        files = {f"ssl.{name}.location": str(self.folder / f"tls.{name}") for name in ("crt", "key")}
        return FileWatch(files, self._try_out, lambda: self.now_s)

    def swap(self, certificate: str, key: str) -> None:
        """Replace the folder as Kubernetes does: the files are new, and a symbolic link leads to them at once."""
        version = self.folder / f"..{len(list(self.folder.iterdir()))}"
        version.mkdir()
        (version / "tls.crt").write_text(certificate)
        (version / "tls.key").write_text(key)
        link = self.folder / "..new"
        link.symlink_to(version.name)
        link.rename(self.folder / "..data")

    def look(self, times: int = 1) -> bool:
        for _ in range(times - 1):
            self.look()
        self.now_s += LOOK_EVERY_S
        return self.watch.have_changed

    def _try_out(self) -> None:
        self.tries += 1
        try:
            fits = (self.folder / "tls.crt").read_text() == (self.folder / "tls.key").read_text()
        except FileNotFoundError as error:
            raise AccessDenied(str(error), "Check ssl.*", code="kafka-tls-failed") from error
        if not fits:
            raise AccessDenied("key values mismatch", "Check ssl.*", code="kafka-tls-failed")


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_files_that_stay_as_they_are_are_only_looked_at(watched: Watched) -> None:
    assert not watched.look(10)
    assert watched.tries == 0


def test_a_folder_that_is_swapped_has_changed_once_it_has_settled(watched: Watched) -> None:
    watched.swap("2", "2")
    assert not watched.look()
    assert watched.look()
    assert watched.watch.changed == ("ssl.crt.location", "ssl.key.location")
    watched.watch = watched.watched()
    assert not watched.look(3)


def test_the_same_content_in_new_files_is_no_change(watched: Watched) -> None:
    watched.swap("1", "1")
    os.utime(watched.folder / "tls.crt")
    assert not watched.look(5)
    assert watched.tries == 0


def test_a_certificate_waits_for_its_key(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    certificate = watched.folder / "tls.crt"
    certificate.write_text("2")
    assert not watched.look(5)
    assert watched.tries > 1, "it is tried again"
    [line] = caplog.messages
    assert line == f"{certificate} changed, but cannot be used yet: key values mismatch. Check ssl.* [kafka-tls-failed]"
    (watched.folder / "tls.key").write_text("2")
    assert watched.look(2)


def test_a_file_that_grows_is_waited_for(watched: Watched) -> None:
    for size in range(1, 5):
        for name in ("tls.crt", "tls.key"):
            (watched.folder / name).write_text("2" * size)
        assert not watched.look()
    assert watched.tries == 0
    assert watched.look()


def test_a_file_that_is_missing_for_a_while_is_waited_for(watched: Watched) -> None:
    for name in ("tls.crt", "tls.key"):
        (watched.folder / name).unlink()
    assert not watched.look(3)
    for name in ("tls.crt", "tls.key"):
        (watched.folder / name).write_text("2")
    assert watched.look(2)


def test_files_that_come_back_as_they_were_have_not_changed(watched: Watched) -> None:
    watched.swap("2", "1")
    assert not watched.look(3)
    watched.swap("1", "1")
    assert not watched.look(3)


def test_a_folder_of_certificates_changes_with_what_is_in_it(tmp_path: Path) -> None:
    now_s = 0.0
    watch = FileWatch({"ssl.ca.location": str(tmp_path)}, lambda: None, lambda: now_s)
    (tmp_path / "0a1b2c3d.0").write_text("a CA")
    now_s += LOOK_EVERY_S
    assert not watch.have_changed
    now_s += LOOK_EVERY_S
    assert watch.have_changed


def test_without_files_nobody_asks_for_the_time() -> None:
    def clock() -> float:
        times.append(1)
        return 0.0

    times: list[int] = []
    watch = FileWatch({}, lambda: None, clock)
    times.clear()
    assert not watch.have_changed
    assert not times
