"""The keys that tables' events had last are kept in the records on Kafka."""

from __future__ import annotations

from dataclasses import replace

from cdcd.progress.snapshot_records import DONE, RUNNING, WANTED, TableSnapshot, parse_snapshot_record, wanted_snapshot
from cdcd.sink.batches import AnnouncedTable, Batch
from cdcd.sink.kafka_transaction import KafkaTopic, Topic
from cdcd.sink.table_keys import TableKeys
from cdcd.sink.topics import TopicNames
from cdcd.source.incarnations import Incarnation
from cdcd.source.pg_types import Attribute

NAMES = TopicNames("p")
TABLE = ("public", "t")
RECORD = TableSnapshot("s", "p.public.t", *TABLE, DONE, 0x100, key_columns=("id",), incarnation=Incarnation(7))


ADDED = {"c": Attribute(3, 23, "7")}


def streamed(
    *key: str, table: tuple[str, str] = TABLE, oid: int = 7, added: dict[str, Attribute] | None = None
) -> Batch:
    batch = Batch()
    batch.announced.append(AnnouncedTable(*table, key, oid, added))
    return batch


def snapshot(record: TableSnapshot) -> Batch:
    batch = Batch()
    batch.snapshot_records = [record]
    return batch


def test_a_changed_key_is_written_once() -> None:
    keys = TableKeys({RECORD.topic: RECORD})
    assert keys.of_batch(streamed("id"), NAMES) == []
    changed = replace(RECORD, key_columns=("tenant", "id"))
    assert keys.of_batch(streamed("tenant", "id"), NAMES) == [changed]
    assert keys.of_batch(streamed("tenant", "id"), NAMES) == []
    assert keys.last == {TABLE: ("tenant", "id")}
    assert parse_snapshot_record(changed.key(), changed.value()) == changed


def test_the_defaults_of_added_columns_are_written_once_and_kept_by_every_later_record() -> None:
    keys = TableKeys({RECORD.topic: RECORD})
    [changed] = keys.of_batch(streamed("id", added=ADDED), NAMES)
    assert changed == replace(RECORD, added=ADDED) == parse_snapshot_record(changed.key(), changed.value())
    assert keys.of_batch(streamed("id", added=ADDED), NAMES) == []
    assert keys.of_batch(streamed("id"), NAMES) == [], "a repair knows nothing of them"
    again = TableKeys({RECORD.topic: changed})
    assert again.added == {TABLE: ADDED}
    assert again.kept(wanted_snapshot("s", RECORD.topic, *TABLE)).added == ADDED
    [running] = again.of_batch(snapshot(replace(RECORD, state=RUNNING, rows=3)), NAMES)
    assert running.added == ADDED
    assert again.of_batch(streamed("id", added={}), NAMES) == [replace(running, added={})]


def test_a_table_that_takes_the_name_takes_no_defaults() -> None:
    for taken in (streamed("id", oid=8, added={}), snapshot(replace(RECORD, incarnation=Incarnation(8)))):
        keys = TableKeys({RECORD.topic: replace(RECORD, added=ADDED)})
        [changed] = keys.of_batch(taken, NAMES)
        assert (changed.incarnation, changed.added) == (Incarnation(8), {})


def test_the_first_key_is_written() -> None:
    keys = TableKeys({RECORD.topic: replace(RECORD, key_columns=None)})
    assert keys.of_batch(streamed("id"), NAMES) == [RECORD]


def test_a_snapshot_that_is_only_requested_keeps_the_key_of_the_events_that_kafka_has() -> None:
    keys = TableKeys({RECORD.topic: RECORD})
    [written] = keys.of_batch(snapshot(wanted_snapshot("s", RECORD.topic, *TABLE)), NAMES)
    assert (written.state, written.key_columns) == (WANTED, ("id",))
    assert TableKeys({written.topic: written}).last == {TABLE: ("id",)}


def test_the_tables_of_another_server_are_told_by_their_own_oids_from_then_on() -> None:
    gone, bare = (
        replace(RECORD, topic="p.public.gone", table="gone"),
        Topic("p.public.bare", ("public", "bare"), KafkaTopic("p.public.bare", [0]), None),
    )
    bare.oid = 9
    keys = TableKeys({each.topic: each for each in (RECORD, gone)}, [bare])
    assert keys.oid_of_table_record(bare) == 9
    learned = keys.learn({RECORD.topic: Incarnation(70), bare.name: Incarnation(90)})
    assert learned == [replace(RECORD, incarnation=Incarnation(70)), replace(gone, incarnation=None)]
    assert keys.oid_of_table_record(bare) == 90
    assert keys.of_batch(streamed("id", oid=70), NAMES) == []


def test_the_table_record_keeps_the_key_of_a_table_without_a_snapshot() -> None:
    topic = Topic(RECORD.topic, TABLE, KafkaTopic(RECORD.topic, [0]), None, key_columns=("id",))
    keys = TableKeys({}, [topic])
    assert keys.last == {TABLE: ("id",)}
    assert keys.of_batch(streamed("v"), NAMES) == []
    assert keys.last == {TABLE: ("v",)}
    assert keys.of_table_record(topic) == ("v",)


def test_the_snapshot_record_has_the_key_as_soon_as_there_is_one() -> None:
    topic = Topic(RECORD.topic, TABLE, KafkaTopic(RECORD.topic, [0]), None, key_columns=("id",))
    keys = TableKeys({}, [topic])
    assert keys.kept(wanted_snapshot("s", RECORD.topic, *TABLE)).key_columns == ("id",)
    assert keys.of_table_record(topic) is None


def test_a_snapshot_with_another_key_is_no_change_after_it() -> None:
    keys = TableKeys({RECORD.topic: RECORD})
    begun = replace(RECORD, state=RUNNING, lsn=0x200, key_columns=("tenant", "id"))
    assert keys.of_batch(snapshot(begun), NAMES) == [begun]
    assert keys.of_batch(streamed("tenant", "id"), NAMES) == []


def test_a_snapshot_that_goes_on_does_not_bring_the_old_key_back() -> None:
    begun = replace(RECORD, state=RUNNING)
    keys = TableKeys({})
    keys.of_batch(snapshot(begun), NAMES)
    [changed] = keys.of_batch(streamed("v"), NAMES)
    assert keys.of_batch(snapshot(replace(begun, rows=7)), NAMES) == [replace(changed, rows=7)]


def test_a_snapshot_that_goes_on_after_a_request_does_not_bring_the_old_key_back() -> None:
    begun = replace(RECORD, state=RUNNING)
    keys = TableKeys({})
    keys.of_batch(snapshot(begun), NAMES)
    keys.of_batch(streamed("v"), NAMES)
    keys.kept(wanted_snapshot("s", RECORD.topic, *TABLE))
    [record] = keys.of_batch(snapshot(replace(begun, rows=7)), NAMES)
    assert record.key_columns == keys.last[TABLE] == ("v",)


def test_a_wanted_snapshot_keeps_the_key_of_what_is_there() -> None:
    wanted = wanted_snapshot("s", RECORD.topic, *TABLE)
    assert TableKeys({RECORD.topic: RECORD}).kept(wanted).key_columns == ("id",)
    assert TableKeys({}).kept(wanted) == wanted


def test_a_topic_that_its_table_has_left_says_so_and_does_not_tell_the_key_of_now() -> None:
    """The settings move the table, and move it back later: the first topic lacks what came between."""
    keys = TableKeys({RECORD.topic: RECORD})
    moved = replace(RECORD, topic="p.other", state=RUNNING)
    records = keys.of_batch(snapshot(moved), NAMES)
    assert records == [moved, replace(RECORD, incarnation=Incarnation(0))]
    assert keys.of_batch(snapshot(moved), NAMES) == [moved]
    now = replace(moved, key_columns=("tenant", "id"))
    for found in ([now, records[1]], [records[1], now]):
        again = TableKeys({each.topic: each for each in found})
        assert again.last == {TABLE: ("tenant", "id")}
