"""Kafka transactions hold whole PostgreSQL transactions, and the progress that they make."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from sim.fake_kafka import FakeAdmin, FakeBroker, FakeProducer, FakeReading

from cdcd.errors import KafkaUnavailable, TopicLost, Unpublishable
from cdcd.progress.daemon_requests import ALL_TABLES, PAUSE, REPAIR, RESUME, SNAPSHOT, STOP, Request
from cdcd.progress.records import SlotRecord, SnapshotState, TableRecord, TopicState, parse_record, parse_slot_record
from cdcd.progress.repair_records import RepairKeys, pending_repair
from cdcd.progress.slot_beginnings import SlotBeginning, parse_beginning
from cdcd.progress.snapshot_records import COMPARE, DONE, RUNNING, STOPPED, WANTED, TableSnapshot, parse_snapshot_record
from cdcd.progress.topic_evidence import lost_topics
from cdcd.sink.batches import Batch, BatchBuilder, Message, RepairBatch
from cdcd.sink.interfaces import Offsets
from cdcd.sink.kafka.progress_reader import KafkaProgressReader
from cdcd.sink.parking.state import ParkedTables, PendingParking
from cdcd.sink.partitioner import partition_for
from cdcd.sink.publisher import Publisher, Source
from cdcd.sink.table_topics import TableTopics, TopicSettings
from cdcd.sink.topics import TopicNames, TopicSpec
from cdcd.source.incarnations import Incarnation

INSERT = ord("c")
TRUNCATE = ord("t")
DELETE = ord("d")
SOURCE = Source(slot="s", system_id="7000000000000000001", timeline=1)


class World:
    """A broker, and one publisher after the other, each with a builder of its own."""

    def __init__(
        self,
        *,
        partitions: int = 2,
        template: str = "{prefix}.{schema}.{table}",
        admin: type[FakeAdmin] = FakeAdmin,
    ) -> None:
        self.broker = FakeBroker()
        self.names = TopicNames("p", template)
        self.partitions = partitions
        self.admin = admin
        self.restart()

    def restart(self, transactional_id: str | None = "p-s", source: Source = SOURCE) -> None:
        self.producer = FakeProducer(self.broker, transactional_id)
        self.producer.start(lambda: False)
        self.publisher = Publisher(
            self.producer,
            TableTopics(self.admin(self.broker), self.names, TopicSettings(self.partitions, 1, {"retention.ms": "1"})),
            source,
            self.last(),
        )
        self.builder = BatchBuilder(tombstones=False)

    def last(self) -> SlotRecord | None:
        reader = KafkaProgressReader(FakeReading(self.broker, self.names.progress, end="last_stable"))
        found = reader.last(frozenset([b"s"]), lambda: False)
        return parse_slot_record(b"s", found[b"s"]) if found else None

    def transaction(self, lsn: int, *rows: tuple[str, bytes | None, bytes]) -> None:
        self.begin(lsn)
        self.rows(*rows)
        self.builder.commit(lsn + 8)

    def begin(self, lsn: int) -> None:
        self.builder.begin(lsn, lsn * 16)

    def rows(self, *rows: tuple[str, bytes | None, bytes]) -> None:
        for table, key, value in rows:
            self.builder.add(self.builder.open_table("public", table), INSERT, key, value)

    def publish(self, now: float = 0.0) -> None:
        self.publisher.publish(self.builder.build(), now)

    def values(self, topic: str) -> list[list[bytes | None]]:
        return [[record.value for record in partition] for partition in self.broker.visible(topic)]

    def progress(self) -> list[SlotRecord | TableRecord]:
        """All records, without the evidence that the next start looks at."""
        records = []
        for record in self.broker.visible(self.names.progress)[0]:
            assert record.key is not None
            if record.value is not None:
                parsed = parse_record(record.key, record.value)
                records.append(
                    replace(parsed, own_topics={}, tables_offset=0)
                    if isinstance(parsed, SlotRecord)
                    else replace(parsed, topic_id="")
                )
        return records


def test_rows_and_progress_become_visible_together() -> None:
    world = World(partitions=1)
    world.transaction(0x100, ("a", b"1", b"row"))
    world.publish()
    assert world.values("p.public.a") == [[]]
    assert world.progress() == []
    durable = world.publisher.commit()
    assert world.values("p.public.a") == [[b"row"]]
    assert world.progress() == [
        TableRecord("s", "p.public.a", "public", "a", commit_lsn=0x100, offsets=(1,)),
        SlotRecord("s", 0x108, 0x100, 0x1000, SOURCE.system_id, timeline=1, transactions=1, rows=1),
    ]
    assert (durable.end_lsn, durable.commit_lsn, durable.commit_ts) == (0x108, 0x100, 0x1000)
    assert (durable.transactions, durable.rows, durable.bytes) == (1, 1, 4)
    assert durable.counts == {("public", "a"): {INSERT: 1}}


@pytest.mark.parametrize("transactional_id", ["p-s", None], ids=["exactly_once", "at_least_once"])
def test_the_first_slot_record_comes_with_the_beginning_and_no_later_one_does(transactional_id: str | None) -> None:
    world = World(partitions=1)
    world.restart(transactional_id, replace(SOURCE, database_oid=5, begins_at=0x80))
    writes: list[tuple[str, bytes | None]] = []
    produce = world.producer.produce

    def noted(topic: str, partition: int, messages: list[Message], *, has_headers: bool = False) -> None:
        writes.extend((topic, message.get("key")) for message in messages)
        produce(topic, partition, messages)

    world.producer.produce = noted  # type: ignore[method-assign]
    for lsn in (0x100, 0x200):
        world.transaction(lsn, ("a", b"1", b"row"))
        world.publish()
        world.publisher.commit()
    [beginning] = world.broker.visible("p.snapshots")[0]
    assert (beginning.key, beginning.value) == (b"s", SlotBeginning("s", SOURCE.system_id, 5, 0x80).value())
    places = [topic for topic, key in writes if key == b"s"]
    first = ["p.snapshots", "p.progress"] if transactional_id else ["p.progress", "p.snapshots"]
    assert places == [*first, "p.progress"], "without transactions the slot record must be there first"
    last = world.last()
    assert last is not None
    assert (last.lsn, last.database_oid) == (0x208, 5)


def test_a_gap_without_progress_begins_the_stream_anew() -> None:
    world = World(partitions=1)
    [wanted] = world.publisher.declare_gap(0x100, 0x300, [("public", "a")], 0.0)
    last = world.last()
    assert last is not None
    assert (last.gap_lsn, last.lsn, last.commit_lsn) == (0x100, 0x300, 0)
    assert wanted.starts_with_truncate
    beginning = world.broker.visible("p.snapshots")[0][-1]
    assert parse_beginning(beginning.key or b"", beginning.value or b"").lsn == 0x300


def test_a_gap_says_of_each_table_whether_it_is_copied_or_compared_and_readers_see_that_rows_are_missing() -> None:
    world = World(partitions=1)
    world.transaction(0x100, ("a", b"1", b"row"))
    world.publish()
    world.publisher.commit()
    tables = [("public", "a"), ("public", "b")]
    wanted = world.publisher.declare_gap(0x100, 0x300, tables, 0.0, {("public", "a")})
    assert [(each.table, each.repair, each.wants_all_rows) for each in wanted] == [
        ("a", COMPARE, False),
        ("b", "", True),
    ]
    *records, _ = world.progress()[-3:]
    assert [r.snapshot for r in records if isinstance(r, TableRecord)] == [SnapshotState(0, done=False, rows=0)] * 2
    done = RepairBatch(Batch(), [], [replace(wanted[0], repair="", state=DONE, lsn=0x300, starts_with_truncate=False)])
    done.snapshot_records = []
    world.publisher.publish(done, 0.0)
    world.publisher.commit()
    table, slot = world.progress()[-2:]
    assert isinstance(table, TableRecord)
    assert isinstance(slot, SlotRecord)
    assert table.snapshot == SnapshotState(0x300, done=True, rows=0)
    assert (slot.lsn, slot.gap_lsn) == (0x300, 0)


def test_a_record_goes_to_the_partition_of_its_key() -> None:
    world = World(partitions=3)
    world.transaction(0x100, *(("a", b"%d" % number, b"%d" % number) for number in range(50)))
    world.publish()
    world.publisher.commit()
    for partition, values in enumerate(world.values("p.public.a")):
        assert values == [b"%d" % n for n in range(50) if partition_for(b"%d" % n, 3) == partition]


def test_the_real_number_of_partitions_counts_not_the_setting() -> None:
    world = World(partitions=2)
    world.broker.create(TopicSpec("p.public.a", 5, 1))
    world.transaction(0x100, *(("a", b"%d" % number, b"v") for number in range(100)))
    world.publish()
    world.publisher.commit()
    assert all(world.values("p.public.a"))
    table_record = world.progress()[0]
    assert isinstance(table_record, TableRecord)
    assert len(table_record.offsets) == 5


def test_a_missing_topic_is_made_as_the_settings_say() -> None:
    world = World(partitions=2)
    world.transaction(0x100, ("a", b"1", b"row"))
    world.publish()
    assert world.broker.specs["p.public.a"] == TopicSpec("p.public.a", 2, 1, {"retention.ms": "1"})
    assert world.broker.specs["p.progress"].config["cleanup.policy"] == "compact"


def test_several_batches_share_a_kafka_transaction() -> None:
    world = World(partitions=1)
    for lsn in (0x100, 0x200, 0x300):
        world.transaction(lsn, ("a", b"1", b"%x" % lsn))
        world.publish()
    durable = world.publisher.commit()
    assert (durable.transactions, durable.rows, durable.end_lsn) == (3, 3, 0x308)
    assert (durable.oldest_commit_ts, durable.commit_ts) == (0x1000, 0x3000)
    assert world.values("p.public.a") == [[b"100", b"200", b"300"]]
    assert [record for record in world.progress() if isinstance(record, TableRecord)] == [
        TableRecord("s", "p.public.a", "public", "a", commit_lsn=0x300, offsets=(3,))
    ]


def test_half_a_postgresql_transaction_is_never_committed() -> None:
    world = World()
    world.begin(0x100)
    world.rows(("a", b"1", b"first half"))
    world.publish()
    assert world.publisher.open is not None
    assert world.publisher.open.is_inside
    with pytest.raises(AssertionError, match="half a PostgreSQL transaction"):
        world.publisher.commit()
    world.rows(("a", b"1", b"second half"))
    world.builder.commit(0x108)
    world.publish()
    durable = world.publisher.commit()
    assert (durable.rows, durable.transactions) == (2, 1)


def test_whole_transactions_before_a_piece_of_a_large_one_can_be_committed_without_it() -> None:
    world = World(partitions=1)
    world.transaction(0x100, ("a", b"1", b"whole"))
    world.begin(0x200)
    world.rows(("a", b"1", b"piece"))
    world.publish()
    assert world.publisher.commit().end_lsn == 0x108
    assert world.values("p.public.a") == [[b"whole"]]
    world.publish()
    with pytest.raises(AssertionError, match="half a PostgreSQL transaction"):
        world.publisher.commit()


def test_an_idle_position_is_a_slot_record_alone_that_keeps_the_last_commit() -> None:
    world = World()
    world.transaction(0x100, ("a", b"1", b"row"))
    world.publish()
    world.publisher.commit()
    before = len(world.progress())
    idle = Batch()
    idle.end_lsn = 0x900
    world.publisher.publish(idle, 0.0)
    durable = world.publisher.commit()
    assert (durable.end_lsn, durable.commit_lsn, durable.rows, durable.transactions) == (0x900, 0x100, 0, 0)
    (record,) = world.progress()[before:]
    assert record == SlotRecord("s", 0x900, 0x100, 0x1000, SOURCE.system_id, 1, transactions=0, rows=0)


def test_the_first_idle_position_names_no_commit() -> None:
    world = World()
    idle = Batch()
    idle.end_lsn = 0x900
    world.publisher.publish(idle, 0.0)
    durable = world.publisher.commit()
    assert (durable.end_lsn, durable.commit_lsn, durable.commit_ts) == (0x900, 0, 0)


def test_positions_never_go_back() -> None:
    world = World()
    world.transaction(0x200, ("a", b"1", b"row"))
    world.publish()
    world.publisher.commit()
    world.transaction(0x100, ("a", b"1", b"older"))
    with pytest.raises(AssertionError, match="0/108 after 0/208"):
        world.publish()


def test_a_table_record_tells_where_untouched_partitions_end() -> None:
    world = World(partitions=2)
    keys = {partition_for(key, 2): key for key in (b"%d" % number for number in range(10))}
    world.transaction(0x100, ("a", keys[0], b"x"), ("a", keys[1], b"y"))
    world.publish()
    world.publisher.commit()
    world.restart()
    world.transaction(0x200, ("a", keys[0], b"z"))
    world.publish()
    world.publisher.commit()
    tables = [record for record in world.progress() if isinstance(record, TableRecord)]
    # Offset 1 of both partitions is the first transaction's marker: partition 0 ends after it and one more row.
    assert [table.offsets for table in tables] == [(1, 1), (3, 2)]


def test_only_touched_tables_get_a_record() -> None:
    world = World()
    world.transaction(0x100, ("a", b"1", b"x"), ("b", b"1", b"y"))
    world.publish()
    world.publisher.commit()
    world.transaction(0x200, ("b", b"1", b"z"))
    world.publish()
    world.publisher.commit()
    assert [record.topic for record in world.progress() if isinstance(record, TableRecord)] == [
        "p.public.a",
        "p.public.b",
        "p.public.b",
    ]


def test_a_truncate_is_in_every_partition() -> None:
    world = World(partitions=3)
    world.builder.begin(0x100, 1)
    world.builder.add_to_every_partition(world.builder.open_table("public", "a"), TRUNCATE, b"truncate")
    world.builder.commit(0x108)
    world.publish()
    durable = world.publisher.commit()
    assert world.values("p.public.a") == [[b"truncate"]] * 3
    assert durable.counts == {("public", "a"): {TRUNCATE: 1}}


def test_schemas_are_published_in_the_transaction_that_uses_them() -> None:
    world = World()
    world.builder.add_schema("00ff", '{"type": "long"}')
    world.transaction(0x100, ("a", b"1", b"row"))
    world.publish()
    assert world.values("p.schemas") == [[]]
    world.publisher.commit()
    assert [(seen.key, seen.value) for seen in world.broker.visible("p.schemas")[0]] == [(b"00ff", b'{"type": "long"}')]


def test_without_transactions_a_schema_is_written_before_the_first_row_that_needs_it() -> None:
    world = World(partitions=1)
    world.restart(None)
    steps: list[str] = []
    world.broker.on_call = steps.append
    world.builder.add_schema("00ff", '{"type": "long"}')
    world.transaction(0x100, ("a", b"1", b"row"))
    world.publish()
    assert [step for step in steps if step in ("produce", "flush")] == ["produce", "flush", "produce"]
    assert len(world.broker.visible("p.schemas")[0]) == 1


@pytest.mark.parametrize("template", ["{prefix}.{schema}.{table}", "{table}"])
def test_messages_go_to_cdcds_own_topic_and_their_table_record_names_no_schema(template: str) -> None:
    world = World(partitions=2, template=template)
    world.builder.begin(0x100, 1)
    world.builder.add(world.builder.open_table("", "messages"), ord("m"), None, b"hello")
    world.builder.commit(0x108)
    world.publish()
    durable = world.publisher.commit()
    assert world.values("p.messages") == [[b"hello"], []]
    assert world.broker.visible("p.progress")[0][1].key == b"s/p.messages"
    assert world.progress()[0] == TableRecord("s", "p.messages", "", "messages", commit_lsn=0x100, offsets=(1, 0))
    assert durable.counts == {("", "messages"): {ord("m"): 1}}


def test_two_tables_never_share_a_topic() -> None:
    world = World(template="{prefix}.{table}")
    world.transaction(0x100, ("a", b"1", b"row"))
    world.publish()
    world.builder.begin(0x200, 1)
    world.builder.add(world.builder.open_table("other", "a"), INSERT, b"1", b"row")
    world.builder.commit(0x208)
    with pytest.raises(Unpublishable, match=r"public\.a and other\.a would share the topic p\.a"):
        world.publish()


def test_two_tables_of_one_transaction_never_share_a_topic() -> None:
    world = World(template="{prefix}.{table}")
    world.begin(0x100)
    world.rows(("a", b"1", b"row"))
    world.builder.add(world.builder.open_table("other", "a"), INSERT, b"1", b"row")
    world.builder.commit(0x108)
    with pytest.raises(Unpublishable, match=r"public\.a and other\.a would share the topic p\.a"):
        world.publish()
    assert "p.a" not in world.broker.topics


def test_the_topics_of_a_transaction_and_those_of_a_snapshot_are_asked_for_together() -> None:
    asked: list[list[str]] = []

    class Admin(FakeAdmin):
        def ensure(self, *specs: TopicSpec) -> list[int]:
            asked.append([spec.name for spec in specs])
            return super().ensure(*specs)

    world = World(admin=Admin)
    asked.clear()
    for lsn in (0x100, 0x200):
        world.transaction(lsn, *((table, b"1", b"row") for table in "abc"))
        world.publish()
    batch = Batch()
    copies = [TableSnapshot("s", f"p.public.{table}", "public", table, DONE, 0x280) for table in "cdede"]
    batch.snapshot_records = copies
    batch.end_lsn = 0x290
    world.publisher.publish(batch, 0.0)
    assert asked == [[f"p.public.{table}" for table in "abc"], ["p.public.d", "p.public.e"]]
    world.publisher.commit()
    tables = [record for record in world.progress() if isinstance(record, TableRecord)]
    assert [record.table for record in tables] == list("abcde")


def test_the_state_of_a_snapshot_is_in_every_table_record_from_then_on() -> None:
    world = World(partitions=1)
    copy = TableSnapshot("s", "p.public.a", "public", "a", DONE, 0x80, rows=3)
    batch = Batch()
    batch.snapshot_records = [copy]
    batch.end_lsn = 0x90
    world.publisher.publish(batch, 0.0)
    world.publisher.commit()
    for lsn in (0x100, 0x200):
        world.transaction(lsn, ("a", b"1", b"row"))
        world.publish()
        world.publisher.commit()
    tables = [record for record in world.progress() if isinstance(record, TableRecord)]
    assert [table.snapshot for table in tables] == [SnapshotState(lsn=0x80, done=True, rows=3)] * 3
    [[record]] = world.broker.visible(world.names.snapshots)
    assert record.key is not None
    assert record.value is not None
    assert parse_snapshot_record(record.key, record.value) == copy


@pytest.mark.parametrize("step", ["begin", "produce", "flush", "commit", "ensure", "end_offsets"])
@pytest.mark.parametrize("when", ["on_call", "on_done"])
def test_whatever_fails_a_restart_publishes_each_transaction_once(step: str, when: str) -> None:
    """The publisher starts again from the progress; what the progress covers is not sent again."""
    for nth in range(1, 8):
        world = World(partitions=1)
        left = [nth]

        def fail(at: str, left: list[int] = left) -> None:
            if at == step:
                left[0] -= 1
                if left[0] == 0:
                    raise KafkaUnavailable("the test broke it", code="kafka-unavailable")

        setattr(world.broker, when, fail)
        history = [0x100, 0x200, 0x300, 0x400]
        todo = list(history)
        while todo:
            try:
                world.transaction(todo[0], ("a", b"1", b"%x" % todo[0]), (f"t{todo[0]}", b"1", b"%x" % todo[0]))
                world.publish()
                world.publisher.commit()
                todo.pop(0)
            except KafkaUnavailable:
                world.restart()
                covered = world.last()
                todo = [lsn for lsn in history if covered is None or lsn >= covered.lsn]
        assert world.values("p.public.a") == [[b"%x" % lsn for lsn in history]]
        slots = [record.lsn for record in world.progress() if isinstance(record, SlotRecord)]
        assert slots == [lsn + 8 for lsn in history]


def test_abort_gives_up_the_open_transaction_only() -> None:
    world = World(partitions=1)
    world.transaction(0x100, ("a", b"1", b"kept"))
    world.publish()
    world.publisher.commit()
    world.transaction(0x200, ("a", b"1", b"given up"))
    world.publish()
    world.publisher.abort()
    assert world.publisher.open is None
    world.publisher.abort()
    assert world.values("p.public.a") == [[b"kept"]]
    assert world.publisher.last == world.last()


def test_at_least_once_writes_the_slot_record_after_the_rows() -> None:
    world = World(partitions=1)
    world.restart(None)
    world.transaction(0x100, ("a", b"1", b"row"))
    world.publish()
    assert world.values("p.public.a") == [[b"row"]]
    assert world.progress() == []
    world.publisher.commit()
    assert [type(record) for record in world.progress()] == [TableRecord, SlotRecord]


def test_the_progress_is_taken_into_the_transaction_beside_the_rows() -> None:
    # To take a partition in costs librdkafka a millisecond and a request: not once more behind the rows.
    world = World(partitions=1)
    world.transaction(0x100, ("a", b"1", b"row"))
    world.publish()
    [transaction] = world.broker.open_transactions()
    progress = (world.names.progress, 0)
    assert progress not in transaction.touched, "others could not be read until the rows are whole"
    touched: list[bool] = []
    world.broker.on_call = lambda step: touched.append(progress in transaction.touched) if step == "flush" else None
    world.publisher.commit()
    assert touched == [True]


def test_only_what_is_open_before_the_first_commit_is_the_first() -> None:
    world = World(partitions=1)
    firsts = []
    for lsn in (0x100, 0x200):
        world.transaction(lsn, ("a", b"1", b"row"))
        world.publish()
        assert world.publisher.open
        firsts.append(world.publisher.open.is_first)
        world.publisher.commit()
    assert firsts == [True, False]


def test_a_commit_that_is_expected_has_taken_the_progress_in_once() -> None:
    world = World(partitions=1)
    world.publisher.prepare_commit()
    assert world.broker.open_transactions() == []
    world.transaction(0x100, ("a", b"1", b"row"))
    world.publish()
    progress = world.broker.topics[world.names.progress][0]
    for _ in range(2):
        world.publisher.prepare_commit()
        assert len(progress) == 1
    world.transaction(0x200, ("a", b"1", b"row"))
    world.publish()
    world.publisher.commit()
    assert [type(record) for record in world.progress()] == [TableRecord, SlotRecord]
    assert len(world.broker.visible(world.names.progress)[0]) == 3


@pytest.mark.parametrize(("transactional_id", "keeps_leaders"), [("p-s", False), (None, True)])
def test_the_progress_is_left_alone_until_the_rows_are_written(
    transactional_id: str | None, keeps_leaders: bool
) -> None:
    # The next marker there decides records that Kafka left undecided. It must not be the abort of rows that cannot be
    # written.
    world = World(partitions=1)
    world.broker.keeps_leaders = keeps_leaders
    world.restart(transactional_id)
    world.transaction(0x100, ("a", b"1", b"row"))
    world.publish()
    written: list[int] = []
    progress = world.broker.topics[world.names.progress][0]
    world.broker.on_call = lambda step: written.append(len(progress)) if step == "flush" else None
    world.publisher.commit()
    assert written == [0]


def test_the_progress_is_json_that_a_person_can_read() -> None:
    world = World(partitions=1)
    world.transaction(0x16_B374_D848, ("a", b"1", b"row"))
    world.publish()
    world.publisher.commit()
    seen = world.broker.visible("p.progress")[0][1]
    assert seen.key == b"s/p.public.a"
    assert json.loads(seen.value or b"")["commit_lsn"] == "16/B374D848"


def test_open_shows_what_the_schedule_needs() -> None:
    world = World()
    assert world.publisher.open is None
    world.transaction(0x100, ("a", b"1", b"row"))
    world.publish(now=5.0)
    world.transaction(0x200, ("a", b"1", b"row"))
    world.publish(now=6.0)
    open_ = world.publisher.open
    assert open_ is not None
    assert (open_.opened_at, open_.rows, open_.bytes, open_.end_lsn) == (5.0, 2, 8, 0x208)
    assert not open_.is_inside
    assert open_.is_first


def test_the_progress_says_what_the_next_start_compares_the_topics_with() -> None:
    world = World(partitions=1)
    world.transaction(0x100, ("a", b"1", b"row"))
    world.builder.add_schema("f", "{}")
    world.publish()
    world.publisher.commit()
    _, table, slot = world.broker.visible(world.names.progress)[0]
    assert table.key is not None
    assert table.value is not None
    assert slot.value is not None
    record, last = parse_record(table.key, table.value), parse_slot_record(b"s", slot.value)
    ids = world.broker.ids
    assert isinstance(record, TableRecord)
    assert record.state == TopicState(ids["p.public.a"], (1,))
    assert last.own_topics == {
        "p.schemas": TopicState(ids["p.schemas"], (1,)),
        "p.snapshots": TopicState(ids["p.snapshots"], (0,)),
    }
    assert last.tables_offset <= table.offset


class LateProducer(FakeProducer):
    """Records are on their way until the next flush or commit."""

    def __init__(self, broker: FakeBroker, transactional_id: str) -> None:
        super().__init__(broker, transactional_id)
        self.late: list[tuple[str, int, list[Message], bool]] = []
        self.before_arrival: Callable[[], None] = lambda: None

    def produce(self, topic: str, partition: int, messages: list[Message], *, has_headers: bool = False) -> None:
        self.late.append((topic, partition, messages, has_headers))

    def flush(self) -> Offsets:
        self.arrive()
        return super().flush()

    def commit(self) -> None:
        self.arrive()
        super().commit()

    def arrive(self) -> None:
        self.before_arrival()
        for topic, partition, messages, has_headers in self.late:
            super().produce(topic, partition, messages, has_headers=has_headers)
        self.late = []


def test_no_topic_is_said_to_hold_records_that_are_still_on_their_way() -> None:
    """The watch of the topics would take them for lost while Kafka is slow."""
    broker = FakeBroker()
    producer = LateProducer(broker, "p-s")
    producer.start(lambda: False)
    publisher = Publisher(producer, TableTopics(FakeAdmin(broker), TopicNames("p"), TopicSettings(1, 1)), SOURCE, None)
    compared = 0

    def compare() -> None:
        nonlocal compared
        compared += 1
        assert lost_topics(publisher.recorded, FakeAdmin(broker).states(publisher.recorded)) == {}

    producer.before_arrival = compare
    builder = BatchBuilder(tombstones=False)
    for lsn in (0x100, 0x200, 0x300):
        builder.begin(lsn, 1)
        builder.add(builder.open_table("public", "a"), INSERT, b"1", b"row")
        builder.commit(lsn + 8)
        publisher.publish(builder.build(), 0.0)
        publisher.prepare_commit()
        publisher.commit()
    assert compared == 6


def test_a_topic_that_was_made_again_is_not_written_to_as_if_nothing_had_happened() -> None:
    world = World(partitions=1)
    world.transaction(0x100, ("a", b"1", b"row"), ("a", b"2", b"row"))
    world.publish()
    world.publisher.commit()
    world.broker.create(world.broker.delete("p.public.a"))
    world.transaction(0x200, ("a", b"3", b"row"))
    world.publish()
    with pytest.raises(TopicLost, match=r"the topic p\.public\.a was written to after it had lost records"):
        world.publisher.commit()


def lost_topics_of(world: World) -> set[str]:
    """What the newest records on the progress topic say."""
    *_, last = world.progress()
    assert isinstance(last, SlotRecord)
    tables = {each.topic: each.lacks_records for each in world.progress() if isinstance(each, TableRecord)}
    slot = [each.value for each in world.broker.visible(world.names.progress)[0]][-1]
    assert slot is not None
    own = parse_slot_record(b"s", slot).own_topics
    return {topic for topic, lacks in tables.items() if lacks} | {t for t, each in own.items() if each.lacks_records}


def test_a_topic_that_lost_records_and_is_longer_by_now_lacks_them_in_the_progress_too() -> None:
    world = World(partitions=1)
    world.transaction(0x100, ("a", b"1", b"row"), ("b", b"1", b"row"))
    world.publish()
    world.publisher.commit()
    assert lost_topics_of(world) == set()
    world.broker.cut("p.public.a", 0, 0)
    world.transaction(0x200, ("a", b"2", b"row"), ("a", b"3", b"row"), ("a", b"4", b"row"), ("b", b"2", b"row"))
    world.publish()
    with pytest.raises(TopicLost, match=r"p\.public\.a was written to"):
        world.publisher.commit()
    assert len(world.broker.topics["p.public.a"][0]) > 2
    assert lost_topics_of(world) == {"p.public.a"}


def test_a_topic_of_cdcds_own_that_lost_records_lacks_them_in_the_progress_too() -> None:
    world = World(partitions=1)
    world.builder.add_schema("f", "{}")
    world.transaction(0x100, ("a", b"1", b"row"))
    world.publish()
    world.publisher.commit()
    world.broker.cut("p.schemas", 0, 0)
    for fingerprint in "ghi":
        world.builder.add_schema(fingerprint, "{}")
    world.transaction(0x200, ("a", b"2", b"row"))
    world.publish()
    with pytest.raises(TopicLost, match=r"p\.schemas was written to"):
        world.publisher.commit()
    assert lost_topics_of(world) == {"p.schemas"}


def test_records_of_another_slot_on_a_shared_topic_are_no_loss() -> None:
    world = World(partitions=1)
    world.builder.add_schema("f", "{}")
    world.transaction(0x100, ("a", b"1", b"row"))
    world.publish()
    world.publisher.commit()
    other = FakeProducer(world.broker, "p-other")
    other.start(lambda: False)
    other.begin()
    other.produce("p.schemas", 0, [{"key": b"x", "value": b"{}"}])
    world.builder.add_schema("g", "{}")
    world.transaction(0x200, ("a", b"2", b"row"))
    world.publish()
    other.commit()
    world.publisher.commit()
    assert lost_topics_of(world) == set()


def test_a_loss_is_declared_with_the_topics_as_they_are_and_the_snapshots_that_they_need() -> None:
    world = World(partitions=1)
    world.transaction(0x100, ("a", b"1", b"row"), ("b", b"1", b"row"))
    world.publish()
    world.publisher.commit()
    world.broker.delete("p.public.a")
    world.restart()
    wanted = world.publisher.declare_loss([("public", "a"), ("", "messages")], 0.0)
    assert [(each.topic, each.state, each.starts_with_truncate) for each in wanted] == [("p.public.a", "wanted", True)]
    *_, a, messages, last = world.progress()
    assert (a.topic, a.offsets, messages.topic) == ("p.public.a", (0,), "p.messages")  # type: ignore[union-attr]
    assert (last.lsn, last.commit_lsn) == (0x108, 0x100)  # type: ignore[union-attr]


def test_a_loss_is_declared_though_kafka_refuses_the_topic_of_a_parked_table() -> None:
    world = World(partitions=1)
    world.transaction(0x100, ("a", b"1", b"row"), ("b", b"1", b"row"))
    world.publish()
    world.publisher.commit()
    for table in ("a", "b"):
        world.broker.delete(f"p.public.{table}")
    world.broker.refused = "p.public.a"
    topics = TableTopics(FakeAdmin(world.broker), world.names, TopicSettings(1, 1))
    pending = PendingParking()
    pending.parked[("public", "a")] = "refused"
    producer = FakeProducer(world.broker, "p-s")
    producer.start(lambda: False)
    publisher = Publisher(producer, topics, SOURCE, world.last(), ParkedTables(topics, "s", world.last(), pending))
    wanted = publisher.declare_loss([("public", "a"), ("public", "b")], 0.0)
    assert [each.topic for each in wanted] == ["p.public.a", "p.public.b"]
    assert "p.public.a" not in world.broker.topics
    *_, b, last = world.progress()
    assert (b.topic, b.offsets) == ("p.public.b", (0,))  # type: ignore[union-attr]
    assert [each.table for each in last.parked] == ["a"]  # type: ignore[union-attr]


def test_a_transaction_without_rows_leaves_the_last_published_one_in_the_progress() -> None:
    world = World(partitions=1)
    world.transaction(0x100, ("a", b"1", b"row"))
    world.publish()
    world.publisher.commit()
    world.transaction(0x200)
    batch = world.builder.build()
    batch.requests = [Request(SNAPSHOT, ("public", "a"))]
    world.publisher.publish(batch, 0.0)
    world.publisher.commit()
    last = world.last()
    assert last is not None
    assert (last.lsn, last.commit_lsn, last.commit_ts) == (0x208, 0x100, 0x1000)


def test_a_request_makes_no_topic_and_is_recorded_with_its_position() -> None:
    world = World()
    world.transaction(0x100)
    batch = world.builder.build()
    batch.requests = [Request(SNAPSHOT, ("public", "a"))]
    world.publisher.publish(batch, 0.0)
    world.publisher.commit()
    [record] = world.broker.visible("p.snapshots")[0]
    assert record.key is not None
    assert record.value is not None
    wanted = parse_snapshot_record(record.key, record.value)
    assert (wanted.schema, wanted.table, wanted.state) == ("public", "a", WANTED)
    assert "p.public.a" not in world.broker.topics
    [slot] = world.progress()
    assert isinstance(slot, SlotRecord)
    assert slot.lsn == 0x108


def test_a_pause_of_the_snapshots_is_recorded_with_its_position_until_it_ends_also_by_later_publishers() -> None:
    world = World(partitions=1)
    recorded = []
    for lsn, asks in ((0x100, ()), (0x200, (PAUSE,)), (0x300, ()), (0x400, (PAUSE, RESUME)), (0x500, ())):
        world.transaction(lsn, ("a", b"1", b"row"))
        batch = world.builder.build()
        batch.requests = [Request(each, ALL_TABLES) for each in asks]
        world.publisher.publish(batch, 0.0)
        if asks == (PAUSE,):
            world.producer.abort()
            world.restart()
            world.transaction(lsn, ("a", b"1", b"row"))
            again = world.builder.build()
            again.requests = batch.requests  # PostgreSQL sends the row again
            world.publisher.publish(again, 0.0)
        world.publisher.commit()
        world.restart()
        last = world.last()
        assert last is not None
        recorded.append((last.lsn, last.snapshots_paused))
    assert recorded == [(0x108, False), (0x208, True), (0x308, True), (0x408, False), (0x508, False)]


def test_a_stopped_snapshot_is_recorded_with_its_request_and_stays_so_after_a_gap_and_a_loss() -> None:
    world = World(partitions=1)
    world.transaction(0x100)
    batch = world.builder.build()
    batch.requests = [Request(STOP, ("public", "a"))]
    world.publisher.publish(batch, 0.0)
    world.publisher.commit()
    assert "p.public.a" not in world.broker.topics, "a request makes no topic"
    world.transaction(0x200, ("a", b"1", b"row"))
    world.publish()
    world.publisher.commit()
    tables = [record for record in world.progress() if isinstance(record, TableRecord)]
    assert tables[-1].snapshot == SnapshotState(0, done=False, rows=0, stopped=True), "readers can tell"
    [wanted] = world.publisher.declare_gap(0x208, 0x300, [("public", "a")], 0.0)
    assert wanted.state == STOPPED
    [wanted] = world.publisher.declare_loss([("public", "a")], 0.0)
    assert wanted.state == STOPPED
    batch = Batch()
    batch.snapshot_records = []
    batch.requests = [Request(SNAPSHOT, ("public", "a"))]
    world.publisher.publish(batch, 0.0)
    world.publisher.commit()
    records = world.broker.visible("p.snapshots")[0]
    assert records[-1].key is not None
    assert records[-1].value is not None
    assert parse_snapshot_record(records[-1].key, records[-1].value).state == WANTED


def test_a_request_to_stop_a_snapshot_leaves_its_deferred_changes_until_the_last_rows_have_come() -> None:
    world = World(partitions=1)
    running = TableSnapshot("s", "p.public.a", "public", "a", RUNNING, 0x80, rows=3)
    for record, asks in ((running, ()), (None, (Request(STOP, ("public", "a")),)), (running.stopped(), ())):
        batch = Batch()
        batch.snapshot_records, batch.end_lsn = [] if record is None else [record], 0x90
        batch.requests = list(asks)
        world.publisher.publish(batch, 0.0)
        world.publisher.commit()
        assert world.publisher.has_replay == (record is not None and record.state == STOPPED)


def test_the_record_of_a_topic_that_its_table_has_left_says_nothing_of_the_new_one() -> None:
    world = World(partitions=1)
    before = TableSnapshot("s", "p.before", "public", "a", DONE, 0x80, incarnation=Incarnation(7))
    running = TableSnapshot("s", "p.public.a", "public", "a", RUNNING, 0x90, incarnation=Incarnation(7))
    for number, record in enumerate((before, running)):
        batch = Batch()
        batch.snapshot_records, batch.end_lsn = [record], 0x100 + number
        world.publisher.publish(batch, 0.0)
        world.publisher.commit()
    *_, table, _ = world.progress()
    assert isinstance(table, TableRecord)
    assert (table.topic, table.snapshot) == ("p.public.a", running.snapshot)
    *_, left = world.broker.visible("p.snapshots")[0]
    assert left.key is not None
    assert left.value is not None
    assert parse_snapshot_record(left.key, left.value) == replace(before, incarnation=Incarnation(0))


def test_a_request_for_a_table_with_a_topic_says_at_the_same_cut_that_its_snapshot_is_wanted() -> None:
    world = World()
    world.transaction(0x100, ("a", b"1", b"row"))
    batch = world.builder.build()
    batch.requests = [Request(SNAPSHOT, ("public", "a"))]
    world.publisher.publish(batch, 0.0)
    world.publisher.commit()
    table, _ = world.progress()
    assert isinstance(table, TableRecord)
    assert table.snapshot == SnapshotState(0, done=False, rows=0)


def test_a_repair_is_recorded_with_its_request_and_ended_with_its_rows() -> None:
    world = World()
    keys = RepairKeys(("id",), (("1",),))
    world.transaction(0x100, ("a", b"1", b"row"))
    batch = world.builder.build()
    batch.requests = [Request(REPAIR, ("public", "a"), repair=keys)]
    world.publisher.publish(batch, 0.0)
    world.publisher.commit()
    pending = pending_repair("s", "p.public.a", "public", "a", keys)
    [record] = world.broker.visible("p.snapshots")[0]
    assert (record.key, record.value) == (pending.key(), pending.value())
    done = RepairBatch(Batch(), [(pending.key(), None), (b"s/p.public.a/done", b"{}")])
    done.end_lsn = 0x200
    world.publisher.publish(done, 0.0)
    world.publisher.commit()
    _, tombstone, counted = world.broker.visible("p.snapshots")[0]
    assert (tombstone.key, tombstone.value) == (pending.key(), None)
    assert counted.value == b"{}"
    last = world.last()
    assert last is not None
    assert (last.lsn, last.commit_lsn) == (0x200, 0x100)
