"""`sink.headers` on real servers: each kind of event has the headers of its change, in any format, also once parked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support import topics
from support.daemon import cdcd
from support.stream import StreamFixture, eventually

HEADERS = ["op", "table", "lsn", "txid", "commit_time", "schema_version", "cloudevents"]
LARGE = "INSERT INTO t SELECT 9, string_agg(md5(n::text), '') FROM generate_series(1, 60000) n"


@pytest.mark.parametrize("name", ["cdcd", "debezium"])
def test_every_event_has_the_headers_of_its_change(stream: StreamFixture, name: str) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
    sink: dict[str, Any] = {"headers": HEADERS, "tombstones": name == "cdcd"}
    if name == "debezium":
        sink |= {"format": name, "encoding": "json"}
    settings: Any = {"sink": sink, "snapshot": {"mode": "initial"}}
    with stream.daemon(**settings, debezium={"truncates": True}) as daemon:
        daemon.start().wait_until_streaming()
        eventually(lambda: "snapshot is complete" in daemon.log.read_text(), "the snapshot")
        stream.sql(
            "INSERT INTO t VALUES (2, 'b')", "UPDATE t SET id = 3 WHERE id = 2",
            "SELECT pg_logical_emit_message(true, 'p', 'x')", "SELECT pg_logical_emit_message(false, 'p', 'x')",
        )  # fmt: skip
        daemon.wait_until_confirmed()
        stream.sql(LARGE, "UPDATE t SET v = 'c' WHERE id = 1", "DELETE FROM t WHERE id = 1")
        daemon.wait_for_log("the table public.t is parked")
        daemon.wait_until_confirmed()
        topics.set_config(stream.broker, f"{stream.prefix}.public.t", max_message_bytes=str(8 << 20))
        cdcd(daemon, "unpark", "public.t")
        stream.sql("TRUNCATE t")
        daemon.wait_until_confirmed()
        if name == "cdcd":
            cdcd(daemon, "verify")
            first, *_ = cdcd(
                daemon, "tail", f"{stream.prefix}.public.t", "--from-beginning", "--no-follow", "--json"
            ).splitlines()
            assert json.loads(first)["headers"]["ce_source"] == f"/cdcd/{stream.prefix}/{stream.slot}"
        assert daemon.stop() == 0
    read = list(stream.topics.raw(f"{stream.prefix}.public.t", f"{stream.prefix}.messages"))
    ids: dict[bytes, tuple[Any, ...]] = {}
    seen, versions, deleted = set(), set(), dict[str, bytes]()
    for record in sorted(read, key=lambda each: (each.topic(), each.partition(), each.offset())):
        headers = dict(record.headers())
        op, is_message = headers["__op"].decode(), record.topic().endswith(".messages")
        if record.value() is None:
            assert headers == deleted
            continue
        event = json.loads(record.value()) if name == "debezium" else stream.topics._decode(record.value())
        source = event["source"]
        xid = source.get("xid") or source.get("txId") or 0
        shown = (event["op"], b"%d" % source["lsn"], b"%d" % xid if xid else None)
        assert (op, headers["__lsn"], headers.get("__txid")) == shown
        assert headers.get("__table") == headers.get("ce_subject") == (None if is_message else b"public.t")
        assert headers["__commit_time"] == headers["ce_time"]
        assert headers["ce_source"] == f"/cdcd/{stream.prefix}/{stream.slot}".encode()
        assert headers["content-type"] == (b"application/json" if name == "debezium" else b"application/avro")
        place = (record.topic(), record.key(), record.offset()) if op != "t" else ("t",)
        assert ids.setdefault(headers["ce_id"], place) == place
        versions |= {headers.get("__schema_version")}
        deleted = headers
        first = next(iter(headers))
        seen.add((op, first if first.startswith("__debezium") else ""))
    plain = {(op, "") for op in "rcudtm"}
    moved = {("d", "__debezium.newkey"), ("c", "__debezium.oldkey")} if name == "debezium" else set()
    assert seen == plain | moved
    assert len(versions) == 2  # that of the table, and none for messages
