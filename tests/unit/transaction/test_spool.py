"""What a spool gives back is what went in and was not rolled back, wherever it lay; or it says why not."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cdcd.errors import FatalError, SpoolFull
from cdcd.pgoutput import messages as m
from cdcd.transaction.spool import Spool, SpooledTransaction
from cdcd.transaction.spool_file import SpoolDirectory, SpoolFile

ROOMY = 1 << 20


def make(folder: Path, memory_bytes: int = ROOMY, bytes_max: int = 1 << 30) -> Spool:
    return Spool(SpoolDirectory(folder / "spool"), memory_bytes, bytes_max)


def size(spool: Spool) -> int:
    """Without the index."""
    return spool.memory_bytes - spool.index_bytes + spool.disk_bytes


def content(spooled: SpooledTransaction) -> list[bytes]:
    return [frame for piece in spooled.frames() for frame in piece]


def frame(number: int, size: int = 100) -> bytes:
    return number.to_bytes(4, "big") * (size // 4)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "spool").iterdir())


def numbers(folder: Path) -> list[str]:
    """The numbers of the transactions that have a file."""
    return [path.name.partition("-")[0] for path in files(folder)]


def the_file(folder: Path) -> Path:
    (path,) = files(folder)
    return path


@pytest.mark.parametrize("memory_bytes", [1, 500, 1000, ROOMY])
def test_frames_come_back_in_order_of_arrival(tmp_path: Path, memory_bytes: int) -> None:
    spooled = make(tmp_path, memory_bytes).open(streamed=True)
    frames = [frame(n, 4 * n) for n in range(1, 50)]
    for number, each in enumerate(frames):
        spooled.append(number // 7, each)
    assert content(spooled) == frames


def test_the_largest_transaction_goes_to_disk_when_memory_is_full(tmp_path: Path) -> None:
    spool = make(tmp_path, 8_000)
    small, large = spool.open(streamed=True), spool.open(streamed=True)
    small.append(1, frame(1))
    for number in range(30):
        large.append(2, frame(number))
    assert small.memory_bytes > 0
    assert numbers(tmp_path) == ["2"]
    assert size(spool) > 3_000
    for spooled in (small, large):
        spooled.close()
    assert (spool.memory_bytes + spool.disk_bytes, files(tmp_path)) == (0, [])


def test_memory_stays_below_the_bound(tmp_path: Path) -> None:
    spool = make(tmp_path, 100_000)
    several = [spool.open(streamed=True) for _ in range(20)]
    for number in range(2_000):
        several[number % 20].append(1, frame(number))
        assert spool.memory_bytes <= 100_000
        assert sum(spooled.memory_bytes for spooled in several) == spool.memory_bytes - spool.index_bytes
    for n, spooled in enumerate(several):
        assert content(spooled) == [frame(number) for number in range(2_000) if number % 20 == n]


def test_reading_back_takes_pieces_of_about_a_megabyte(tmp_path: Path) -> None:
    spool = make(tmp_path, 1 << 20)
    spooled = spool.open(streamed=True)
    for number in range(8_000):
        spooled.append(1, frame(number, 1_000))
    pieces = [sum(map(len, piece)) for piece in spooled.frames()]
    assert sum(pieces) == 8_000_000
    assert max(pieces) < 3 << 20
    assert len(pieces) > 4


def test_a_frame_of_many_megabytes_comes_back(tmp_path: Path) -> None:
    spooled = make(tmp_path, 1).open(streamed=True)
    frames = [frame(1), os.urandom(20 << 20), frame(2), os.urandom((1 << 20) - 8), frame(3)]
    for each in frames:
        spooled.append(1, each)
    assert content(spooled) == frames


# Rollback


@pytest.mark.parametrize("spill_at", range(1, 12))
def test_a_rollback_cuts_at_the_beginning_across_the_border_of_memory_and_disk(tmp_path: Path, spill_at: int) -> None:
    spool = make(tmp_path)
    spooled = spool.open(streamed=True)
    for number, subxid in enumerate([1, 1, 2, 2, 3, 3, 2, 2, 1, 1]):
        if number == spill_at:
            spooled.spill()
        spooled.append(subxid, frame(number))
    if spill_at == 10:
        spooled.spill()
    spooled.roll_back(3)
    spooled.append(2, frame(20))
    spooled.roll_back(2)
    spooled.append(1, frame(21))
    spooled.append(4, frame(22))
    assert content(spooled) == [frame(n) for n in (0, 1, 21, 22)]
    spooled.close()
    assert (size(spool), files(tmp_path)) == (0, [])


def test_a_rollback_of_all_that_is_on_disk_leaves_no_file(tmp_path: Path) -> None:
    spool = make(tmp_path, 1)
    spooled = spool.open(streamed=True)
    spooled.append(2, frame(1))
    assert len(files(tmp_path)) == 1
    spooled.roll_back(2)
    assert (files(tmp_path), size(spool), content(spooled)) == ([], 0, [])
    spooled.append(3, frame(2))
    assert content(spooled) == [frame(2)]
    spooled.close()
    assert files(tmp_path) == []


def test_a_rollback_of_one_without_frames_changes_nothing(tmp_path: Path) -> None:
    spooled = make(tmp_path).open(streamed=True)
    spooled.append(1, frame(1))
    spooled.roll_back(2)
    assert content(spooled) == [frame(1)]


def test_an_xid_rolled_back_may_not_be_rolled_back_again(tmp_path: Path) -> None:
    spooled = make(tmp_path).open(streamed=True)
    for subxid in (1, 2, 3):
        spooled.append(subxid, frame(subxid))
    spooled.roll_back(2)
    spooled.append(1, frame(4))
    spooled.roll_back(3)
    assert content(spooled) == [frame(1), frame(4)]


def test_a_hundred_thousand_savepoints_are_no_burden(tmp_path: Path) -> None:
    spooled = make(tmp_path).open(streamed=True)
    spooled.append(1, b"first")
    for subxid in range(2, 100_000):
        spooled.append(subxid, b"x")
    for subxid in range(99_999, 1, -1):
        spooled.roll_back(subxid)
    assert content(spooled) == [b"first"]


def test_relations_go_with_the_frames_that_announced_them(tmp_path: Path) -> None:
    spool = make(tmp_path)
    spooled = spool.open(streamed=True)
    for number, (subxid, oid) in enumerate([(1, 7), (2, 8), (3, 9)]):
        assert spooled.announce(number, m.Relation(subxid, oid, "s", "t", "d", ()), b"")
        spooled.append(subxid, frame(number))
        if number == 1:
            spooled.spill()
    spooled.roll_back(3)
    assert [each.relation.relation_oid for each in spooled.relations()] == [7, 8]
    spooled.roll_back(2)
    assert [each.relation.relation_oid for each in spooled.relations()] == [7]


def test_a_relation_that_says_nothing_new_needs_no_frame(tmp_path: Path) -> None:
    spooled = make(tmp_path).open(streamed=True)
    relation = m.Relation(1, 7, "s", "t", "d", ())
    said = [spooled.announce(arrival, relation, body) for arrival, body in enumerate([b"a", b"a", b"b", b"a"])]
    assert said == [True, False, True, True]
    assert [(each.arrival, each.body) for each in spooled.relations()] == [(1, b"a"), (2, b"b"), (3, b"a")]


# The disk


def damaged(path: Path, at: int, to: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + len(to)] = to
    path.write_bytes(data)


DAMAGES = {
    "a flipped bit": lambda path: damaged(path, 200, bytes([path.read_bytes()[200] ^ 1])),
    "a flipped bit of a length": lambda path: damaged(path, 8, b"\x65"),
    "a length beyond the end": lambda path: damaged(path, 8, b"\xff\xff\xff\x7f"),
    "a negative length": lambda path: damaged(path, 8, b"\xff\xff\xff\xff"),
    "zeros": lambda path: damaged(path, 116, bytes(208)),
    "zeros all over": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "half a frame less": lambda path: os.truncate(path, path.stat().st_size - 50),
    "a whole frame less": lambda path: os.truncate(path, path.stat().st_size - 108),
    "half a header less": lambda path: os.truncate(path, path.stat().st_size - 104),
    "nothing left": lambda path: os.truncate(path, 0),
    "more than was written": lambda path: path.write_bytes(path.read_bytes() * 2),
    "a header more": lambda path: path.write_bytes(path.read_bytes() + bytes(8)),
    "no file": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_does_not_hold_what_was_written_stops_the_daemon_by_name(tmp_path: Path, damage: str) -> None:
    spooled = make(tmp_path).open(streamed=True)
    for number in range(10):
        spooled.append(1, frame(number + 1))
    spooled.spill()
    DAMAGES[damage](the_file(tmp_path) if files(tmp_path) else tmp_path)
    with pytest.raises(FatalError, match=r"1-\w+\.spool") as caught:
        content(spooled)
    assert "nothing is lost" in caught.value.hint


def test_a_file_in_which_a_rollback_cannot_look_stops_the_daemon_by_name(tmp_path: Path) -> None:
    spooled = make(tmp_path).open(streamed=True)
    spooled.append(1, frame(1))
    spooled.append(2, frame(2))
    spooled.spill()
    the_file(tmp_path).unlink()
    with pytest.raises(FatalError, match=r"1-\w+\.spool"):
        spooled.roll_back(2)


def test_a_disk_that_has_no_room_to_cut_a_file_is_a_full_spool(tmp_path: Path) -> None:
    spooled = Spool(FullWhenCut(tmp_path / "spool"), ROOMY, ROOMY).open(streamed=True)
    spooled.append(1, frame(1))
    spooled.spill()
    spooled.append(2, frame(2))
    spooled.spill()
    with pytest.raises(SpoolFull, match=os.strerror(errno.EDQUOT)):
        spooled.roll_back(2)


class FullWhenCut(SpoolDirectory):
    """A directory on a disk that copies what it changes."""

    def file(self, number: int) -> SpoolFile:
        return FileFullWhenCut(self, str(number))


class FileFullWhenCut(SpoolFile):
    def truncate(self, size: int) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


def test_a_full_spool_says_so_before_it_takes_more_than_it_may(tmp_path: Path) -> None:
    spool = make(tmp_path, 1_000, 10_000)
    spooled = spool.open(streamed=True)
    with pytest.raises(SpoolFull, match=r"spool\.bytes_max is 10,000") as caught:  # noqa: PT012  # the loop is the test
        for number in range(1_000):
            spooled.append(1, frame(number))
    assert "spool.bytes_max" in caught.value.hint
    assert 5_000 < sum(path.stat().st_size for path in files(tmp_path)) <= 10_000
    spool.close()
    assert not (tmp_path / "spool").exists()


def test_room_that_a_transaction_gives_back_can_be_used_again(tmp_path: Path) -> None:
    spool = make(tmp_path, 1, 1_000)
    for number in range(100):
        spooled = spool.open(streamed=True)
        for _ in range(5):
            spooled.append(1, frame(number))
        spooled.close()
    spooled = spool.open(streamed=True)
    for number in range(1, 100):
        spooled.append(number, frame(number))
        spooled.roll_back(number)
    assert size(spool) == 0


@contextmanager
def small_files() -> Iterator[None]:
    """Files of this process have 300 bytes at most, its output, too: a write is cut short, and the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_is_cut_short_is_a_full_spool(tmp_path: Path) -> None:
    spooled = make(tmp_path).open(streamed=True)
    for number in range(10):
        spooled.append(1, frame(number))
    with pytest.raises(SpoolFull, match=os.strerror(errno.EFBIG)) as caught, small_files():
        spooled.spill()
    assert "a larger disk" in caught.value.hint


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_takes_no_more_is_a_full_spool(tmp_path: Path, code: int) -> None:
    spooled = Spool(Refusing(tmp_path / "spool", code), ROOMY, ROOMY).open(streamed=True)
    spooled.append(1, frame(1))
    with pytest.raises(SpoolFull, match=os.strerror(code)):
        spooled.spill()


class Refusing(SpoolDirectory):
    """A directory in which no file can be opened any more."""

    def __init__(self, path: Path, code: int) -> None:
        super().__init__(path)
        self._code = code

    def open_file(self, name: str, flags: int) -> int:
        raise OSError(self._code, os.strerror(self._code))


# The directory


def test_what_an_earlier_run_left_is_removed(tmp_path: Path) -> None:
    first = make(tmp_path, 1)
    first.open(streamed=True).append(1, frame(1))
    (tmp_path / "spool" / "somebody's").touch()
    second = make(tmp_path, 1)
    assert [path.name for path in files(tmp_path)] == ["somebody's"], "nothing but spool files is removed"
    spooled = second.open(streamed=False)
    spooled.append(1, frame(2))
    assert content(spooled) == [frame(2)]


def test_a_directory_that_cannot_be_made_stops_the_daemon_by_name(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file of somebody else's")
    with pytest.raises(FatalError, match=f"{tmp_path / 'spool'} cannot be used") as caught:
        make(tmp_path)
    assert "spool.directory" in caught.value.hint
    assert (tmp_path / "spool").read_text() == "a file of somebody else's"
