"""`sink.format = "row"` on real servers: a snapshot, a stream, keys, kills, and what `cdcd check` says of it.

The bytes are those of Debezium's rows by `golden/debezium/test_bytes.py`. Here the whole daemon writes them.
"""

from __future__ import annotations

import json
import time
from typing import Any

from support.daemon import cdcd
from support.stream import StreamFixture, Writer, eventually
from support.topics import Topics

from cdcd.sink.partitioner import partition_for

PARTITIONS = 3


def rows(stream: StreamFixture, table: str, op: str = "__op", changes_min: int = 50) -> dict[int, Any]:
    """The last row of each id, as a reader of compacted topics has it. No change comes twice.

    `op`: the name of the field.
    """
    found: dict[int, Any] = {}
    changes = []
    for record in Topics(stream.broker, stream.prefix).raw(f"{stream.prefix}.public.{table}"):
        assert record.partition() == partition_for(record.key(), PARTITIONS)
        key = json.loads(record.key())["id"]
        if record.value() is None:
            found.pop(key, None)
            continue
        row = json.loads(record.value())
        assert row["id"] == key
        if row[op] != "r":
            changes.append((row[op.replace("op", "lsn")], key))
        found[key] = row
    assert len(set(changes)) == len(changes) >= changes_min
    return found


def test_every_row_comes_once_although_the_daemon_is_killed(stream: StreamFixture) -> None:
    stream.sql(Writer.TABLE, "INSERT INTO t SELECT -g, g FROM generate_series(1, 2000) g")
    settings: Any = {
        "sink": {"format": "row", "encoding": "json", "partitions": PARTITIONS},
        "snapshot": {"mode": "initial", "chunk_bytes": 8192},
    }
    with stream.daemon(**settings) as daemon:
        daemon.start().wait_until_streaming(timeout_s=120)
        with Writer(stream.dsn, pause_s=0.02):
            for pause_s in (0.3, 1.0):
                time.sleep(pause_s)
                daemon.kill()
                daemon.start().wait_until_streaming(timeout_s=120)
            stream.sql("UPDATE t SET id = -id - 100000 WHERE id < -1900")
            stream.sql("DELETE FROM t WHERE id BETWEEN -1000 AND -901")
            stream.sql("SELECT pg_logical_emit_message(true, 'word', 'x')")
        eventually(lambda: "the snapshot is complete" in daemon.log.read_text(), "the snapshot", 120)
        daemon.wait_until_confirmed(timeout_s=120)
        assert daemon.stop() == 0
    assert {key: row["v"] for key, row in rows(stream, "t").items()} == dict(stream.sql("SELECT id, v FROM t"))
    [message] = Topics(stream.broker, stream.prefix).raw(f"{stream.prefix}.messages")
    assert json.loads(message.value())["message"] == {"prefix": "word", "content": "eA=="}
    again = stream.run(timeout_s=60)
    assert "have events in the format row/json, and the settings say cdcd/avro" in again.stderr


def test_check_names_what_rows_cannot_say(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE bare (id int)", "ALTER TABLE bare REPLICA IDENTITY FULL")
    stream.sql("CREATE TABLE taken (id int PRIMARY KEY, __op text)")
    stream.sql("CREATE PUBLICATION cdcd FOR TABLE bare, taken")
    with stream.daemon(sink={"format": "row", "encoding": "json"}) as daemon:
        said = cdcd(daemon, "check")
    assert '"public"."bare" has no primary key: a changed row does not say which row it was before' in said
    assert "public.taken has a column __op" in said
    assert "[row-field-taken]" in said


def test_a_table_with_a_column_that_readers_would_take_for_a_field_is_parked_alone(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE taken (id int PRIMARY KEY, __op text)", "CREATE TABLE t (id int PRIMARY KEY, v text)")
    sink: Any = {"format": "row", "encoding": "json", "on_unpublishable": "park", "partitions": PARTITIONS}
    with stream.daemon(sink=sink) as daemon:
        daemon.start().wait_until_streaming()
        stream.sql("INSERT INTO taken VALUES (1, 'x')", "INSERT INTO t VALUES (1, 'y')")
        stream.sql("INSERT INTO taken VALUES (2, '')")
        daemon.wait_until_confirmed()
        assert "public.taken is parked" in daemon.log.read_text()
        assert {key: row["v"] for key, row in rows(stream, "t", changes_min=1).items()} == {1: "y"}
        assert daemon.stop() == 0
    with stream.daemon(sink=sink, row={"add_fields_prefix": "_"}) as daemon:
        daemon.start().wait_until_streaming()
        cdcd(daemon, "unpark", "--discard", "public.taken")
        daemon.wait_for_log("the snapshot is complete")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    found = rows(stream, "taken", "_op", changes_min=0)
    assert {key: (row["__op"], row["_op"]) for key, row in found.items()} == {1: ("x", "r"), 2: ("", "r")}
