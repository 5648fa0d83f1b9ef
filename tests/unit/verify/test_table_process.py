"""The process that hashes a table gives what the same code gives here, hands errors over, and never stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from cdcd.avro.avro_format import AvroFormat
from cdcd.errors import DecodeError
from cdcd.pgoutput.tuples import BINARY
from cdcd.snapshot.copy_format import SIGNATURE, CopyFormat
from cdcd.source.pg_types import Attribute, PgType
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation
from cdcd.verify.row_hashes import PARTS, HashFiles, KeyedHash, TableHashes
from cdcd.verify.table_process import PROGRAM, HashedRows, Task, finish, result, send, start

INT4, TEXT = PgType(23, "pg_catalog", "int4"), PgType(25, "pg_catalog", "text")
RELATION = ResolvedRelation(
    1,
    "public",
    "t",
    "d",
    [ResolvedColumn("id", INT4, -1, True), ResolvedColumn("v", TEXT, -1, False, "before")],
    added={"v": Attribute(2, 25, "before")},
)
KINDS = bytes([BINARY] * 2)
SECRET = 1 << 62


def rows(first: int, end: int) -> list[bytes]:
    """The messages of a COPY of these rows."""
    found = [SIGNATURE + bytes(8)]
    for key in range(first, end):
        tid = (6).to_bytes(4, "big") + key.to_bytes(4, "big") + (7).to_bytes(2, "big")
        text = b"x" * (key % 300)
        fields = (4).to_bytes(4, "big") + key.to_bytes(4, "big") + len(text).to_bytes(4, "big") + text
        found.append((3).to_bytes(2, "big") + tid + fields)
    return [*found, b"\xff\xff"]


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", "-c", PROGRAM, *sys.path]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as started:
        yield started
        started.kill()


def ends(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def said(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stderr is not None
    return process.stderr.read()


def ignores(pid: int, number: int) -> bool:
    [mask] = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn:"))
    return int(mask.split()[1], 16) >> (number - 1) & 1 == 1


def test_the_hashes_are_those_that_this_process_makes(process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    stdin, stdout = ends(process)
    start(Task(RELATION, KINDS, "decimal", "UTF8", SECRET, tmp_path), stdin)
    heaps = [rows(0, 3000), rows(5000, 8000)]
    for number, messages in enumerate(heaps):
        send(number, messages[:1000], stdin)
        send(number, messages[1000:], stdin)
    finish(stdin)
    assert result(stdout.read()) == HashedRows(6000, 0)
    here = HashFiles(tmp_path, "here")
    hashes = TableHashes(here, KeyedHash(SECRET))
    encoder = AvroFormat("decimal", "UTF8").snapshot_encoder(hashes)
    encoder.begin_snapshot(0, 0)
    changes = encoder.open_relation(RELATION)
    for number, messages in enumerate(heaps):
        hashes.encode(messages, CopyFormat(3), changes, KINDS, number)
    there = HashFiles(tmp_path, "table")
    assert [there.take(part) for part in range(PARTS)] == [here.take(part) for part in range(PARTS)]
    assert process.wait() == 0


def test_an_error_comes_over_as_it_is(process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    stdin, stdout = ends(process)
    start(Task(RELATION, KINDS, "decimal", "UTF8", SECRET, tmp_path), stdin)
    send(0, [*rows(0, 10)[:-1], (3).to_bytes(2, "big") + bytes(12)], stdin)
    stdin.flush()
    with pytest.raises(DecodeError, match=r"a row of COPY of 14 bytes for public.t is cut off") as caught:
        result(stdout.read())
    assert caught.value.code == "stream-malformed"
    assert "report it" in caught.value.hint


@pytest.mark.parametrize("sent", range(7))
def test_it_ends_without_a_result_when_its_input_ends_early(
    process: subprocess.Popen[bytes], tmp_path: Path, sent: int
) -> None:
    stdin, stdout = ends(process)
    whole = tmp_path / "whole"
    with whole.open("wb") as out:
        start(Task(RELATION, KINDS, "decimal", "UTF8", SECRET, tmp_path), out)
        begun = out.tell()
        send(0, rows(0, 10), out)
        at = [0, 5, begun // 2, begun, begun + 3, begun + 8, out.tell() - 1][sent]
    stdin.write(whole.read_bytes()[:at])
    stdin.close()
    assert result(stdout.read()) is None
    assert process.wait(30) == 0
    assert said(process) == b""


def test_it_says_nothing_when_nobody_reads_the_result(process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    stdin, stdout = ends(process)
    stdout.close()
    start(Task(RELATION, KINDS, "decimal", "UTF8", SECRET, tmp_path), stdin)
    finish(stdin)
    assert process.wait(30) == -signal.SIGPIPE
    assert said(process) == b""


def test_only_the_end_of_its_input_ends_it_not_a_signal_to_the_group(
    process: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    stdin, stdout = ends(process)
    start(Task(RELATION, KINDS, "decimal", "UTF8", SECRET, tmp_path), stdin)
    send(0, rows(0, 1000), stdin)
    stdin.flush()
    deadline = time.monotonic() + 30
    while not ignores(process.pid, signal.SIGTERM) and time.monotonic() < deadline:
        time.sleep(0.01)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(process.pid, number)
    finish(stdin)
    assert result(stdout.read()) == HashedRows(1000, 0)
    assert process.wait(30) == 0
