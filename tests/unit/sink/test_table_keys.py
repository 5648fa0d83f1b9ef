"""The keys that tables' events had last: kept in the snapshot records, and a change is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdcd.progress.snapshot_records import DONE, RUNNING, WANTED, TableSnapshot, parse_snapshot_record, wanted_snapshot
from cdcd.sink.batches import Batch
from cdcd.sink.kafka_transaction import Topic
from cdcd.sink.table_keys import TableKeys
from cdcd.sink.topics import TopicNames

NAMES = TopicNames("p")
TABLE = ("public", "t")
RECORD = TableSnapshot("s", "p.public.t", *TABLE, DONE, 0x100, key_columns=("id",))


def streamed(*key: str) -> Batch:
    batch = Batch()
    batch.keys[TABLE] = key
    return batch


def snapshot(record: TableSnapshot) -> Batch:
    batch = Batch()
    batch.snapshot_records = [record]
    return batch


def test_a_changed_key_is_written_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    keys = TableKeys({RECORD.topic: RECORD})
    assert keys.of_batch(streamed("id"), NAMES) == []
    changed = replace(RECORD, key_columns=("tenant", "id"))
    assert keys.of_batch(streamed("tenant", "id"), NAMES) == [changed]
    assert keys.of_batch(streamed("tenant", "id"), NAMES) == []
    assert keys.last == {TABLE: ("tenant", "id")}
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("the key of public.t changed from (id) to (tenant, id): ")
    assert line.endswith("Run: cdcd snapshot public.t")
    assert parse_snapshot_record(changed.key(), changed.value()) == changed


def test_a_lost_key_is_said(caplog: pytest.LogCaptureFixture) -> None:
    TableKeys({RECORD.topic: RECORD}).of_batch(streamed(), NAMES)
    assert "changed from (id) to none" in caplog.text


def test_the_first_key_is_written_and_not_said(caplog: pytest.LogCaptureFixture) -> None:
    keys = TableKeys({RECORD.topic: replace(RECORD, key_columns=None)})
    assert keys.of_batch(streamed("id"), NAMES) == [RECORD]
    assert caplog.text == ""


def test_a_snapshot_that_is_only_requested_keeps_the_key_of_the_events_that_kafka_has() -> None:
    keys = TableKeys({RECORD.topic: RECORD})
    [written] = keys.of_batch(snapshot(wanted_snapshot("s", RECORD.topic, *TABLE)), NAMES)
    assert (written.state, written.key_columns) == (WANTED, ("id",))
    assert TableKeys({written.topic: written}).last == {TABLE: ("id",)}


def test_the_command_of_the_warning_names_any_table(caplog: pytest.LogCaptureFixture) -> None:
    keys = TableKeys({})
    for key in ("id", "v"):
        batch = Batch()
        batch.keys["A b", "c.d"] = (key,)
        keys.of_batch(batch, NAMES)
    assert """Run: cdcd snapshot '"A b"."c.d"'""" in caplog.text


def test_the_table_record_keeps_the_key_of_a_table_without_a_snapshot(caplog: pytest.LogCaptureFixture) -> None:
    topic = Topic(RECORD.topic, TABLE, [0], None, key_columns=("id",))
    keys = TableKeys({}, [topic])
    assert keys.last == {TABLE: ("id",)}
    assert keys.of_batch(streamed("v"), NAMES) == []
    assert keys.last == {TABLE: ("v",)}
    assert keys.of_table_record(topic) == ("v",)
    assert "changed from (id) to (v)" in caplog.text


def test_the_snapshot_record_has_the_key_as_soon_as_there_is_one() -> None:
    topic = Topic(RECORD.topic, TABLE, [0], None, key_columns=("id",))
    keys = TableKeys({}, [topic])
    assert keys.kept(wanted_snapshot("s", RECORD.topic, *TABLE)).key_columns == ("id",)
    assert keys.of_table_record(topic) is None


def test_a_snapshot_with_another_key_is_no_change_to_be_said(caplog: pytest.LogCaptureFixture) -> None:
    keys = TableKeys({RECORD.topic: RECORD})
    begun = replace(RECORD, state=RUNNING, lsn=0x200, key_columns=("tenant", "id"))
    assert keys.of_batch(snapshot(begun), NAMES) == [begun]
    assert keys.of_batch(streamed("tenant", "id"), NAMES) == []
    assert caplog.text == ""


def test_a_snapshot_that_goes_on_does_not_bring_the_old_key_back() -> None:
    begun = replace(RECORD, state=RUNNING)
    keys = TableKeys({RECORD.topic: begun})
    [changed] = keys.of_batch(streamed("v"), NAMES)
    assert keys.of_batch(snapshot(replace(begun, rows=7)), NAMES) == [replace(changed, rows=7)]


def test_a_wanted_snapshot_keeps_the_key_of_what_is_there() -> None:
    wanted = wanted_snapshot("s", RECORD.topic, *TABLE)
    assert TableKeys({RECORD.topic: RECORD}).kept(wanted).key_columns == ("id",)
    assert TableKeys({}).kept(wanted) == wanted
