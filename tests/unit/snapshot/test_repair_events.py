"""The rows of a repair become events that stand where the snapshot stands, and are marked."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema_store import FingerprintStore
from cdcd.pgoutput.tuples import BINARY
from cdcd.progress.repair_records import RepairKeys, pending_repair
from cdcd.reading.decoder import EventDecoder
from cdcd.sink.batches import BatchBuilder
from cdcd.snapshot.copy_format import SIGNATURE
from cdcd.snapshot.repair_events import REPAIR_ORIGIN, RepairRows, encode_repairs
from cdcd.source.pg_types import PgType
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

INT4 = PgType(23, "pg_catalog", "int4")
MONEY = PgType(600, "pg_catalog", "date")
WANTED = pending_repair("s", "p.public.t", "public", "t", RepairKeys(("id",), (("1",), ("2",))))


def relation(key: PgType = INT4) -> ResolvedRelation:
    columns = [ResolvedColumn("id", key, -1, True), ResolvedColumn("v", INT4, -1, False)]
    return ResolvedRelation(1, "public", "t", "d", columns)


def copied(*rows: tuple[int, int]) -> list[bytes]:
    messages = [struct.pack("!hiiii", 2, 4, key, 4, value) for key, value in rows]
    return [SIGNATURE + bytes(8), *messages, b"\xff\xff"]


class Encoded:
    """Events, decoded."""

    def __init__(self) -> None:
        self.batches = BatchBuilder(tombstones=True)
        self.encoder = EventEncoder(self.batches, FingerprintStore(self.batches), TypeOptions())

    def events(self) -> list[dict[str, Any]]:
        batch = self.batches.build()
        texts = dict(batch.schemas)
        decoder = EventDecoder(lambda each: texts[str(each)])
        [table] = batch.tables
        return [decoder.decode(message["value"]) for message in table.messages if message["value"] is not None]


def test_a_row_is_read_again_and_a_key_without_a_row_is_deleted() -> None:
    it = Encoded()
    read = RepairRows(WANTED, relation(), bytes([BINARY] * 2), [copied((1, 10)), copied()], [("2",)])
    [outcome] = encode_repairs(it.encoder, [read], 0x5000, 1_700_000_000_000_000)
    assert (outcome.rows, outcome.deletes, outcome.left) == (1, 1, ())
    row, delete = it.events()
    assert (row["op"], row["after"], row["before"]) == ("r", {"id": 1, "v": 10}, None)
    assert (delete["op"], delete["after"], delete["before"]) == ("d", None, {"id": 2, "v": None})
    for seq, event in enumerate((row, delete)):
        source = event["source"]
        assert (source["commit_lsn"], source["lsn"], source["xid"], source["seq"]) == (0x4FFF, 0x4FFF, 0, seq)
        assert source["origin"] == REPAIR_ORIGIN


def test_rows_of_a_snapshot_that_follow_are_not_marked() -> None:
    it = Encoded()
    encode_repairs(it.encoder, [RepairRows(WANTED, relation(), bytes([BINARY] * 2), [copied((1, 1))])], 0x5000, 1)
    it.encoder.begin_snapshot(0x4FFF, 1)
    changes = it.encoder.open_relation(relation())
    changes.snapshot_row(copied((2, 2))[1], 2, bytes([BINARY] * 2), 0x4FFF)
    assert [event["source"]["origin"] for event in it.events()] == [REPAIR_ORIGIN, None]


def test_a_repair_that_is_refused_publishes_nothing() -> None:
    it = Encoded()
    [outcome] = encode_repairs(it.encoder, [RepairRows(WANTED, refused="no")], 0x5000, 1)
    assert (outcome.refused, outcome.rows, outcome.deletes) == ("no", 0, 0)
    assert it.batches.build().rows == 0


def test_a_key_that_is_no_value_of_its_type_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    it = Encoded()
    read = RepairRows(WANTED, relation(), bytes([BINARY] * 2), [], [("no number",), ("3",)])
    [outcome] = encode_repairs(it.encoder, [read], 0x5000, 1)
    assert outcome.deletes == 1
    assert [json.dumps(event["before"]) for event in it.events()] == ['{"id": 3, "v": null}']
    assert "passed over a key" in caplog.text
