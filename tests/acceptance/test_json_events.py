"""`sink.encoding = "json"` on real servers: a snapshot and a stream of many types in both wire modes, and its readers.

That each value is the one of the Avro form, `support.avro_values` and `golden/test_json_events.py` say.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import daemon as installed
from support.daemon import environment
from support.stream import StreamFixture, eventually

TABLES = """
    CREATE TYPE mood AS ENUM ('sad', 'ok');
    CREATE TYPE pair AS (no int, name text);
    CREATE TABLE "Größe und so" (
        id bigint PRIMARY KEY, b boolean, f4 real, f8 double precision, n numeric, n52 numeric(5,2), c char(3), t text,
        raw bytea, j json, jb jsonb, u uuid, d date, tm time, ts timestamp, tz timestamptz, iv interval, r int4range,
        a int[], m mood, p pair, "a b" date
    )
"""
ROW = """
    INSERT INTO "Größe und so" VALUES (
        %d, true, 0.1, 'NaN', 1.50, -0.05, 'ab', E'q"\\\\é😀\\n', '\\x00ff', '{"a" : 1}', '{"a" : 1}',
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2020-02-29', '10:11:12.5', '1969-12-31 23:59:59.999999',
        '2020-02-29 10:11:12+02', '1 mon 1 day 1 s', '[1,5]', '{1,NULL}', 'ok', '(7,x)', 'infinity'
    )
"""
WANTED: dict[str, Any] = {
    "id": 9007199254740993, "b": True, "f4": 0.1, "f8": "NaN", "n": "1.50", "n52": "-0.05", "c": "ab ",
    "t": 'q"\\é😀\n', "raw": "AP8=", "j": '{"a" : 1}', "jb": '{"a": 1}', "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "d": "2020-02-29", "tm": "10:11:12.500000", "ts": "1969-12-31T23:59:59.999999", "tz": "2020-02-29T08:11:12.000000Z",
    "iv": {"months": 1, "days": 1, "micros": 1000000},
    "r": {"lower": 1, "upper": 6, "lower_inc": True, "upper_inc": False, "empty": False}, "a": [1, None], "m": "ok",
    "p": {"no": 7, "name": "x"}, "a b": None,
}  # fmt: skip
LOST = [{"image": "after", "column": "a b", "text": "infinity"}]


@pytest.mark.parametrize(("encoding", "binary"), [("json", True), ("json-schema", False)])
def test_a_snapshot_and_a_stream_come_in_json_and_cdcd_says_what_reads_them(
    stream: StreamFixture, encoding: str, binary: bool
) -> None:
    stream.sql(*TABLES.split(";"), ROW % 9007199254740993)
    sink = {"encoding": encoding, "partitions": 1}
    with stream.daemon(source={"binary": str(binary).lower()}, sink=sink, snapshot={"mode": "initial"}) as daemon:
        daemon.start().wait_until_streaming()
        eventually(lambda: "snapshot is complete" in daemon.log.read_text(), "the snapshot")
        stream.sql(ROW % 1, 'UPDATE "Größe und so" SET id = 2 WHERE id = 1', 'DELETE FROM "Größe und so" WHERE id = 2')
        stream.sql('TRUNCATE "Größe und so"')
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
        daemon.start().wait_until_streaming()
        stream.sql(ROW % 3)
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    [topic] = stream.topics.names()
    messages = [(message.key(), message.value()) for message in stream.topics.raw(topic)]
    events = [_payload(value) for _, value in messages]
    assert [event["op"] for event in events] == ["r", "c", "d", "c", "d", "t", "c"]
    assert [key and _payload(key)["id"] for key, _ in messages] == [9007199254740993, 1, 1, 2, 2, None, 3]
    for event, row_id in zip(events, (9007199254740993, 1, None, 2, None, None, 3), strict=True):
        assert event["after"] == (None if row_id is None else WANTED | {"id": row_id})
        assert list(event["after"] or WANTED) == list(WANTED)
        assert event["unrepresentable"] == ([] if row_id is None else LOST)
    positions = [(event["source"]["commit_lsn"], event["source"]["seq"]) for event in events]
    assert positions == sorted(set(positions))
    assert events[5]["truncate"] == {"cascade": False, "restart_identity": False}
    tailed = _cdcd(daemon.config, "tail", topic, "--json", "--no-follow", "--from-beginning").stdout.splitlines()
    assert [json.loads(line)["value"] for line in tailed] == events
    if encoding == "json":
        _check_readers(stream, daemon.config, topic)


def _check_readers(stream: StreamFixture, config: Path, topic: str) -> None:
    shown = _cdcd(config, "tail", topic, "--no-follow", "--last", "1").stdout
    assert f"{topic} insert id=3 (" in shown
    assert ' n52=-0.05 c="ab " ' in shown
    assert "a b" in shown
    stream.sql(ROW % 4)
    peeked = [json.loads(line) for line in _cdcd(config, "peek", "--json").stdout.splitlines()]
    assert peeked[-1]["value"]["after"] == WANTED | {"id": 4}
    assert '"local-timestamp-micros"' in _cdcd(config, "schema").stdout
    again = stream.run(timeout_s=60)
    assert again.returncode != 0
    assert "have events in the format cdcd/json" in again.stderr
    assert "and the settings say cdcd/avro" in again.stderr


def _payload(data: bytes) -> Any:
    document = json.loads(data)
    return document["payload"] if document.keys() == {"schema", "payload"} else document


def _cdcd(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*installed.command(), *arguments, "--config", str(config)],
        capture_output=True, text=True, timeout=60, check=False, env=environment(),
    )  # fmt: skip
