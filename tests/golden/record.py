#!/usr/bin/env python3
"""Record the golden streams anew from real servers: `python tests/golden/record.py [VERSION ...]`.

Before: `scenario` says what happens, `servers` has the servers of every version.
After: `pgNN.jsonl.gz` beside this file, which `test_golden` replays without a server.

A recording is only written if what it gives is right: the events are the same in whatever way the changes were asked
for, and the topics, folded by the manual's rules, equal the tables as the server writes them.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import psycopg

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

import servers  # noqa: E402
from golden import recording, scenario  # noqa: E402
from golden.recording import Answers, Recording, Replayed, Stream  # noqa: E402
from support import topics, workload  # noqa: E402

from cdcd.pgoutput import messages as m  # noqa: E402
from cdcd.pgoutput.decoder import Decoder  # noqa: E402
from cdcd.source.catalog import Catalog  # noqa: E402
from cdcd.source.replication_stream import ReplicationStream  # noqa: E402
from cdcd.source.stream_messages import XLOGDATA, XLOGDATA_HEADER_BYTES  # noqa: E402

VERSIONS = (14, 15, 16, 17, 18)

DATABASE = "golden"

STREAM_WITHIN_S = 60


def modes(version: int) -> dict[str, dict[str, str]]:
    """What each recorded stream asks for, beside the publication and messages."""
    made = {
        "text": {"proto_version": "1"},
        "binary": {"proto_version": "1", "binary": "true"},
        "streamed": {"proto_version": "2", "binary": "true", "streaming": "on"},
        "streamed-text": {"proto_version": "2", "streaming": "on"},
    }
    if version >= 15:
        made["two-phase"] = {"proto_version": "3", "binary": "true", "streaming": "on", "two_phase": "on"}
    if version >= 16:
        made["parallel"] = {"proto_version": "4", "binary": "true", "streaming": "parallel", "two_phase": "on"}
    return made


def record(version: int) -> Recording:
    """Run the scenario on a server of this version, and read it in every mode."""
    settings = {"logical_decoding_work_mem": "64kB", "autovacuum": "off"}
    with servers.PostgreSQL(version, fsync=False, settings=settings) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE} TEMPLATE template0".encode())
        dsn = server.dsn(DATABASE)
        with psycopg.connect(dsn, autocommit=True) as connection:
            for statement in scenario.setup(version):
                connection.execute(statement.encode())
        for mode, options in modes(version).items():
            with ReplicationStream(dsn) as walsender:
                walsender.create_slot(_slot(mode), two_phase="two_phase" in options)
        _play(dsn, version)
        streams = [_read(dsn, mode, options) for mode, options in modes(version).items()]
        answers = _ask(dsn, streams)
        replayed = {stream.mode: recording.replay(stream, answers) for stream in streams}
        events = replayed["binary"].events
        for mode, found in replayed.items():
            _check_same(f"{version} {mode}", events, found.events)
        _check_tables(dsn, replayed["binary"])
        with psycopg.connect(dsn) as connection:
            server_version = connection.info.parameter_status("server_version") or str(version)
        return Recording(server_version, answers, streams, events)


def _slot(mode: str) -> str:
    return mode.replace("-", "_")


def _play(dsn: str, version: int) -> None:
    sessions: dict[str, psycopg.Connection[Any]] = {}
    try:
        for session, statement in scenario.steps(version):
            if session not in sessions:
                sessions[session] = psycopg.connect(dsn, autocommit=True)
            sessions[session].execute(statement.encode())
    finally:
        for connection in sessions.values():
            connection.close()


def _read(dsn: str, mode: str, more: dict[str, str]) -> Stream:
    """Everything up to the last message of the scenario."""
    options = {**more, "publication_names": f'"{DATABASE}"', "messages": "true"}
    frames: list[bytes] = []
    with ReplicationStream(dsn) as walsender:
        walsender.start(_slot(mode), 0, options)
        deadline = time.monotonic() + STREAM_WITHIN_S
        while not (frames and frames[-1].endswith(b"the end")):
            if time.monotonic() > deadline:
                raise SystemExit(f"{mode}: the end did not come within {STREAM_WITHIN_S} s")
            frames += [frame for frame in walsender.read(1000, 1 << 20) if frame[0] == XLOGDATA]
            walsender.wait(0.1)
    return Stream(mode, options, frames)


def _ask(dsn: str, streams: list[Stream]) -> Answers:
    """What the catalog says of every relation and type that the streams name."""
    answers = Answers()
    with Catalog(dsn) as catalog:
        for stream in streams:
            in_stream = False
            for frame in stream.frames:
                kind = frame[XLOGDATA_HEADER_BYTES]
                if kind in (m.STREAM_START, m.STREAM_STOP):
                    in_stream = kind == m.STREAM_START
                if kind == m.RELATION:
                    message = Decoder(stream.parallel).decode(frame, XLOGDATA_HEADER_BYTES, in_stream)
                    assert isinstance(message, m.Relation)
                    answers.known.update(catalog.types(column.type_oid for column in message.columns))
                    oid = message.relation_oid
                    answers.primary_keys[oid] = catalog.primary_key(oid)
                    answers.identity_indexes[oid] = catalog.identity_index(oid)
    return answers


def _check_same(what: str, wanted: list[Any], found: list[Any]) -> None:
    for number, (one, other) in enumerate(zip(wanted, found, strict=False)):
        if one != other:
            raise SystemExit(f"{what}: event {number} differs:\n{str(one)[:1000]}\n{str(other)[:1000]}")
    if len(wanted) != len(found):
        raise SystemExit(f"{what}: {len(found)} events, not {len(wanted)}")


def _check_tables(dsn: str, replayed: Replayed) -> None:
    by_table: dict[str, list[topics.Event]] = {}
    for event, fields, key, value in zip(replayed.events, replayed.fields, replayed.keys, replayed.values, strict=True):
        by_table.setdefault(event["table"], []).append(topics.Event(event["table"], 0, 0, 0, key, value, fields))
    with psycopg.connect(dsn, autocommit=True, options="-c TimeZone=UTC -c extra_float_digits=1") as connection:
        for table in scenario.FOLDABLE:
            folded, wanted = topics.fold(by_table[f"public.{table}"]), workload.content(connection, "public", table)
            if folded != wanted:
                raise SystemExit(f"{table}: too many {folded - wanted}, missing {wanted - folded}"[:2000])


def main() -> None:
    """Record the versions that the command line names, or all."""
    for version in map(int, sys.argv[1:] or VERSIONS):
        made = record(version)
        path = HERE / f"pg{version}.jsonl.gz"
        made.save(path)
        frames = ", ".join(f"{len(stream.frames)} {stream.mode}" for stream in made.streams)
        print(f"{made.server}: {len(made.events)} events; frames: {frames}; {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
