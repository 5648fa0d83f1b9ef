"""A start compares every topic with the progress, and reads only as much of the progress as it must."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest
from librt.strings import BytesWriter
from sim.fake_kafka import Entry, FakeBroker, FakeKafkaCluster, FakeProducer

from cdcd.avro.codecs.varint import write_long
from cdcd.errors import GapError, TopicLost, Unpublishable
from cdcd.progress.daemon_requests import UNPARK, Request
from cdcd.progress.records import SlotRecord, TableRecord
from cdcd.progress.snapshot_records import DONE, RUNNING, WANTED, TableSnapshot
from cdcd.sink.batches import Batch, BatchBuilder
from cdcd.sink.kafka.progress_store import ProgressStore
from cdcd.sink.kafka.topic_check import ASKED, TopicCheck
from cdcd.sink.kafka_transaction import Topic
from cdcd.sink.parking.state import ParkedTables, PendingParking
from cdcd.sink.publisher import Publisher, Source
from cdcd.sink.table_records import TableRecordPlaces
from cdcd.sink.table_topics import TableTopics, TopicSettings
from cdcd.sink.topics import TopicNames, TopicRule
from cdcd.source.table_selection import TablePattern

NAMES = TopicNames("p")


def event(commit_lsn: int) -> bytes:
    """The beginning of an event."""
    out = BytesWriter()
    out.write(b"\xc3\x01 schema \x02c")
    write_long(out, commit_lsn)
    return out.getvalue()


def ends(topics: Mapping[str, Topic]) -> dict[str, list[int]]:
    return {name: topic.kafka.offsets for name, topic in topics.items()}


class Started:
    """A broker, and what one publisher left on it."""

    def __init__(self, window: int = 1000, partitions: int = 1, parked: str = "", names: TopicNames = NAMES) -> None:
        self.broker = FakeBroker()
        self.kafka = FakeKafkaCluster(self.broker)
        self.store = ProgressStore(self.kafka, names, "s", None)
        producer = FakeProducer(self.broker, "p-s")
        producer.start(lambda: False)
        topics = TableTopics(self.kafka.admin, names, TopicSettings(partitions, 1))
        places = TableRecordPlaces(window=window)
        parking = PendingParking()
        if parked:
            parking.parked["public", parked] = "too large"
        tables = ParkedTables(topics, "s", None, parking, self.kafka.parked_reader(NAMES.parked))
        self.publisher = Publisher(producer, topics, Source("s", "1", 1, "sim"), None, tables, places=places)
        self.builder = BatchBuilder(tombstones=False, shared_topic=names.shared_topic)
        self.lsn = 0
        self.pauses: list[float] = []
        self.noticed: dict[str, str] = {}

    def commit(self, *tables: str, schema: str = "public") -> None:
        self.lsn += 0x100
        self.builder.begin(self.lsn, 1)
        for table in tables:
            self.builder.add(self.builder.open_table(schema, table), ord("c"), b"k", event(self.lsn))
        self.builder.commit(self.lsn + 8)
        self.publisher.publish(self.builder.build(), 0.0)
        self.publisher.commit()

    def snapshot(self, table: str) -> None:
        """The snapshot of a table is complete."""
        self.lsn += 0x100
        self.builder.commit(self.lsn)
        batch = self.builder.build()
        topic = NAMES.topic("public", table)
        batch.snapshot_records = [TableSnapshot("s", topic, "public", table, DONE, self.lsn, key_columns=("id",))]
        self.publisher.publish(batch, 0.0)
        self.publisher.commit()

    @property
    def last(self) -> SlotRecord:
        last = self.store.last_record()
        assert last is not None
        return last

    def check(self, published: Collection[str] | None = None, *, resnapshot: bool = False) -> TopicCheck:
        check = TopicCheck(self.kafka, self.store, published, self.pauses.append, self.noticed, resnapshot=resnapshot)
        check.check(self.store.visible_record())
        return check


def test_a_loss_that_a_stream_noticed_is_known_though_an_aborted_transaction_hides_it() -> None:
    started = Started()
    started.commit("a", "b")
    started.noticed = {"p.public.a": "ends at offset 1", "p.public.gone": "does not exist any more"}
    assert started.check(resnapshot=True).tables_to_snapshot() == [("public", "a")]
    with pytest.raises(GapError, match=r"the topic p\.public\.a ends at offset 1"):
        started.check()
    assert started.pauses == []


def test_before_the_first_commit_there_is_nothing_to_compare() -> None:
    assert Started().check().lost == {}


def test_topics_that_hold_what_was_published_are_known_from_then_on() -> None:
    started = Started()
    started.commit("a", "b")
    started.commit("b")
    check = started.check()
    known = check.known({})
    assert ends(known) == {"p.public.a": [2], "p.public.b": [4]}
    assert known["p.public.a"].kafka.topic_id == started.broker.ids["p.public.a"]
    assert check.tables_to_snapshot() == []
    assert started.pauses == []


def test_a_table_that_no_transaction_touched_for_long_is_compared_too() -> None:
    started = Started(window=20)
    started.commit("a")
    for _ in range(100):
        started.commit("b")
    assert started.last.tables_offset > 150, "its record was written again"
    started.broker.delete("p.public.a")
    with pytest.raises(GapError, match=r"the topic p\.public\.a does not exist any more"):
        started.check()
    assert len(started.pauses) == ASKED - 1


def test_a_topic_that_the_brokers_know_a_moment_later_is_not_lost() -> None:
    started = Started()
    started.commit("a")
    topic = started.broker.topics.pop("p.public.a")

    def pause(seconds: float) -> None:
        started.broker.topics["p.public.a"] = topic

    check = TopicCheck(started.kafka, started.store, None, pause, {}, resnapshot=False)
    check.check(started.last)
    assert check.lost == {}


def test_a_table_without_a_snapshot_has_the_key_of_its_last_events_after_a_restart() -> None:
    started = Started()
    started.builder.set_key("public", "a", ("id",), 1)
    started.commit("a", "b")
    started.commit("a")
    check = started.check()
    places = check.places(check.known({}), 1000)
    producer = FakeProducer(started.broker, "p-s")
    producer.start(lambda: False)
    topics = TableTopics(started.kafka.admin, NAMES, TopicSettings(1, 1))
    again = Publisher(producer, topics, Source("s", "1", 1, "sim"), started.last, places=places)
    assert again.last_key("public", "a", 1) == ("id",)
    assert again.last_key("public", "a", 2) == (), "another table has the name"


def test_a_loss_is_made_good_by_a_snapshot_of_the_table_alone() -> None:
    started = Started()
    started.commit("a", "b")
    started.broker.cut("p.public.a", 0, 0)
    check = started.check(resnapshot=True)
    assert check.tables_to_snapshot() == [("public", "a")]
    assert check.known({}).keys() == {"p.public.b"}


def test_a_loss_that_the_daemon_wrote_over_is_found_at_every_start_until_it_is_made_good() -> None:
    started = Started()
    started.commit("a", "b")
    started.broker.cut("p.public.a", 0, 0)
    with pytest.raises(TopicLost):
        started.commit("a", "a", "a")
    for _ in range(2):
        with pytest.raises(GapError, match=r"p\.public\.a was written to after it had lost records"):
            started.check()
    check = started.check(resnapshot=True)
    assert check.tables_to_snapshot() == [("public", "a")]
    assert check.known({}).keys() == {"p.public.b"}


def test_the_end_of_a_zombies_transaction_does_not_hide_a_loss() -> None:
    started = Started()
    started.commit("a")
    started.commit("a")
    started.broker.cut("p.public.a", 0, 1)
    zombie = FakeProducer(started.broker, "p-s.2")
    zombie.start(lambda: False)
    zombie.begin()
    zombie.produce("p.public.a", 0, [{"key": b"k", "value": b"row"}])
    check = started.check(resnapshot=True)
    assert check.lost.keys() == {"p.public.a"}
    FakeProducer(started.broker, "p-s.2").start(lambda: False)
    assert len(started.broker.topics["p.public.a"][0]) == 3, "as long as the progress says"
    check.check(started.last)
    assert check.lost.keys() == {"p.public.a"}
    assert "p.public.a" not in check.known({})


def test_a_loss_on_cdcds_own_topic_concerns_every_table() -> None:
    started = Started()
    started.builder.add_schema("f", "{}")
    started.commit("a", "b")
    started.broker.delete("p.schemas")
    assert started.check(resnapshot=True).tables_to_snapshot() == [("public", "a"), ("public", "b")]


def test_the_topic_of_a_table_that_is_not_published_any_more_may_go() -> None:
    started = Started()
    started.commit("a", "b")
    started.broker.delete("p.public.a")
    check = started.check({"p.public.b"})
    assert check.lost == {}
    assert check.known({}).keys() == {"p.public.b"}
    with pytest.raises(GapError):
        started.check({"p.public.a", "p.public.b"})


def test_a_topic_that_was_given_up_is_no_evidence_any_more_and_its_table_needs_another_snapshot() -> None:
    started = Started(partitions=2)
    started.commit("a", "b", "c")
    started.snapshot("a")
    started.broker.delete("p.public.a")
    started.broker.delete("p.public.b")
    given_up = started.check({"p.public.c"}).given_up()
    assert ends(given_up) == {
        "p.public.a": [0, 0],
        "p.public.b": [0, 0],
    }
    [wanted] = started.publisher.declare_loss([], 0.0, given_up.values())
    assert started.store.snapshots() == {"p.public.a": wanted}
    assert (wanted.state, wanted.starts_with_truncate, wanted.key_columns) == (WANTED, True, ("id",))
    assert "p.public.a" not in started.broker.topics
    again = started.check({"p.public.a", "p.public.b", "p.public.c"})
    assert not again.lost
    assert not again.given_up()
    assert again.known({}).keys() == {"p.public.c"}


@pytest.mark.parametrize("table", ["outbox.Order", "messages"])
def test_events_that_no_table_has_are_lost_with_their_topic(table: str) -> None:
    started = Started()
    started.commit("a")
    started.commit(table, schema="")
    started.broker.delete(f"p.{table}")
    with pytest.raises(GapError, match=rf"the topic p\.{table} does not exist any more"):
        started.check(["p.public.a"])
    check = started.check(["p.public.a"], resnapshot=True)
    assert check.tables_to_snapshot() == [("", table)]
    assert check.given_up() == {}
    producer = FakeProducer(started.broker, "p-s")
    producer.start(lambda: False)
    topics = TableTopics(started.kafka.admin, NAMES, TopicSettings(1, 1), known=check.known({}))
    publisher = Publisher(producer, topics, Source("s", "1", 1, "sim"), started.last, places=check.places({}, 1000))
    assert publisher.declare_loss(check.tables_to_snapshot(), 0.0) == []
    assert started.check(["p.public.a"]).lost == {}


def test_what_another_daemon_published_meanwhile_is_compared_the_second_time() -> None:
    started = Started()
    started.commit("a")
    check = started.check()
    started.commit("a", "b")
    check.check(started.last)
    assert ends(check.known({})) == {
        "p.public.a": [4],
        "p.public.b": [2],
    }
    places = check.places(check.known({}), 1000)
    assert places.record([]) == max(offset for _, offset in started.store.table_records(0).own.values()) - 1


def test_a_progress_of_another_cluster_is_refused() -> None:
    started = Started()
    started.commit("a")
    started.broker.cluster_id = "another"
    with pytest.raises(GapError, match="was written on another Kafka cluster"):
        started.check(resnapshot=True)


def test_an_open_transaction_of_another_slot_does_not_make_the_check_wait() -> None:
    started = Started()
    started.commit("a")
    other = FakeProducer(started.broker, "p-other")
    other.start(lambda: False)
    other.begin()
    other.produce(NAMES.progress, 0, [{"key": b"other", "value": b"{}"}])
    assert started.check().known({}).keys() == {"p.public.a"}
    assert replace(started.store.visible_record() or started.last).lsn == started.lsn + 8


def test_an_empty_topic_that_was_made_again_has_the_partitions_that_it_has_now() -> None:
    started = Started(partitions=3)
    started.commit("a")
    started.publisher.declare_loss([("public", "b")], 0.0)
    spec = started.broker.delete("p.public.b")
    started.broker.create(replace(spec, partitions=1))
    check = started.check()
    assert check.lost == {}
    assert check.known({})["p.public.b"].kafka.offsets == [0]


def test_parked_events_that_are_lost_are_missed_as_long_as_their_table_is_parked() -> None:
    started = Started(parked="b")
    started.commit("a", "b")
    assert NAMES.parked in started.last.own_topics
    spec = started.broker.delete(NAMES.parked)
    with pytest.raises(GapError, match=r"p\.parked does not exist any more"):
        started.check()
    started.broker.create(spec)
    with pytest.raises(GapError, match=r"p\.parked was deleted and made again"):
        started.check()


def test_the_parked_topic_may_go_once_no_table_is_parked_and_come_back() -> None:
    started = Started(parked="b")
    started.commit("a", "b", "b", "b")
    batch = Batch()
    batch.end_lsn = started.lsn + 8
    batch.requests = [Request(UNPARK, ("public", "b"))]
    started.publisher.publish(batch, 0.0)
    started.publisher.commit()
    while started.publisher.has_replay:
        started.publisher.replay(0.0)
    assert NAMES.parked not in started.last.own_topics
    started.broker.delete(NAMES.parked)
    assert started.check().lost == {}
    batch = Batch()
    batch.snapshot_records = [TableSnapshot("s", "p.public.a", "public", "a", RUNNING, started.lsn)]
    started.publisher.publish(batch, 0.0)
    started.publisher.commit()
    started.commit("a")
    assert started.last.own_topics[NAMES.parked].topic_id == started.broker.ids[NAMES.parked]
    assert started.check().lost == {}


def test_parked_events_that_were_cut_while_the_daemon_ran_are_missed_at_the_next_one() -> None:
    started = Started(parked="b")
    started.commit("b")
    started.broker.cut(NAMES.parked, 0, 0)
    with pytest.raises(TopicLost, match=r"p\.parked was written to after it had lost records"):
        started.commit("b")
    with pytest.raises(GapError, match=r"p\.parked was written to after it had lost records"):
        started.check()


def beyond(started: Started, last: SlotRecord) -> str:
    return started.check().topic_beyond(last, lambda: False)


def test_nothing_lies_beyond_a_progress_that_is_whole() -> None:
    started = Started()
    started.commit("a", "b")
    started.commit("b")
    assert beyond(started, started.last) == ""


def test_rows_that_no_slot_record_tells_of_show_that_the_progress_was_cut() -> None:
    started = Started()
    started.commit("a", "b")
    end = len(started.broker.log(NAMES.progress, 0))
    started.commit("b")
    started.broker.cut(NAMES.progress, 0, end)
    assert beyond(started, started.last) == "p.public.b"


def test_rows_that_were_aborted_show_nothing() -> None:
    started = Started()
    started.commit("a")
    producer = FakeProducer(started.broker, "p-s")
    producer.start(lambda: False)
    producer.begin()
    producer.produce("p.public.a", 0, [{"key": b"k", "value": event(0x1000)}])
    producer.abort()
    assert beyond(started, started.last) == ""


@pytest.mark.parametrize("value", [None, b"a person's own", event(0x50)])
def test_records_that_are_no_later_events_of_this_slot_show_nothing(value: bytes | None) -> None:
    """A person may write the tombstone of a row, and another slot may have had the table before."""
    started = Started()
    started.commit("a")
    producer = FakeProducer(started.broker, None)
    producer.begin()
    producer.produce("p.public.a", 0, [{"key": b"k", "value": value}, {"key": b"l", "value": value}])
    assert beyond(started, started.last) == ""


def test_a_topic_that_another_slot_has_written_to_shows_nothing() -> None:
    started = Started()
    started.commit("a")
    producer = FakeProducer(started.broker, "p-t")
    producer.start(lambda: False)
    producer.begin()
    producer.produce("p.public.a", 0, [{"key": b"k", "value": event(0x1000)}])
    table = TableRecord("t", "p.public.a", "public", "a", 0x1000, (3,))
    producer.produce(NAMES.progress, 0, [{"key": table.key(), "value": table.value()}])
    producer.commit()
    assert beyond(started, started.last) == ""


def test_a_progress_that_was_brought_back_is_compared_from_its_beginning() -> None:
    started = Started(window=20)
    for _ in range(30):
        started.commit("a", "b")
    kept = {seen.key: seen.value for seen in started.broker.visible(NAMES.progress)[0]}
    started.broker.create(started.broker.delete(NAMES.progress))
    log = started.broker.log(NAMES.progress, 0)
    log += [Entry(key, value, None, (NAMES.progress, 0)) for key, value in kept.items()]
    assert started.last.tables_offset > len(log)
    check = started.check()
    assert check.known({}).keys() == {"p.public.a", "p.public.b"}
    assert check.places(check.known({}), 20).written <= len(log), "else the daemon would take the topic for cut"
    started.broker.delete("p.public.a")
    with pytest.raises(GapError, match=r"p\.public\.a does not exist any more"):
        started.check()


SHARING = TopicNames("p", rules=[TopicRule(TablePattern("*.orders"), "{prefix}.orders")])
"""One topic for the orders of all schemas."""
ORDERS = {schema: f"p.orders#{schema}.orders" for schema in "ab"}


def sharing() -> Started:
    started = Started(names=SHARING)
    started.commit("orders", schema="a")
    started.commit("orders", schema="b")
    return started


def test_a_topic_that_tables_share_is_known_by_the_record_that_reaches_farthest() -> None:
    started = sharing()
    check = started.check()
    known = check.known({})
    assert ends(known) == {ORDERS["a"]: [4], ORDERS["b"]: [4]}
    assert known[ORDERS["a"]].kafka is known[ORDERS["b"]].kafka
    assert check.topic_beyond(started.last, lambda: False) == ""


@pytest.mark.parametrize("parked", ["", "b"])
def test_a_loss_of_a_shared_topic_concerns_all_its_tables_and_is_over_once_it_is_recorded(parked: str) -> None:
    started = sharing()
    started.broker.delete("p.orders")
    with pytest.raises(GapError, match=r"the topic p\.orders does not exist any more") as lost:
        started.check()
    assert "#" not in lost.value.message
    check = started.check(resnapshot=True)
    assert check.tables_to_snapshot() == [("a", "orders"), ("b", "orders")]
    pending = PendingParking()
    if parked:
        pending.parked[parked, "orders"] = "too large"
    topics = TableTopics(started.kafka.admin, SHARING, TopicSettings(1, 1), known=check.known({}))
    started.publisher._topics = topics
    reader = started.kafka.parked_reader(NAMES.parked)
    started.publisher._parked = ParkedTables(topics, "s", started.last, pending, reader)
    started.publisher.declare_loss(check.tables_to_snapshot(), 0.0)
    assert started.check().lost == {}


def test_a_table_that_is_not_published_any_more_does_not_hide_where_its_lost_topic_ends_for_others() -> None:
    started = sharing()
    started.broker.delete("p.orders")
    check = started.check({ORDERS["a"]}, resnapshot=True)
    assert check.tables_to_snapshot() == [("a", "orders")]
    started.publisher._topics = TableTopics(started.kafka.admin, SHARING, TopicSettings(1, 1), known=check.known({}))
    started.publisher.declare_loss(check.tables_to_snapshot(), 0.0, check.given_up().values())
    assert started.publisher.recorded["p.orders"] == started.kafka.admin.states(["p.orders"])["p.orders"]


def test_what_one_table_of_a_shared_topic_has_noticed_is_a_loss_of_the_others() -> None:
    """The Kafka transaction that found the loss was one of this table alone."""
    started = sharing()
    started.publisher._places.topics[ORDERS["b"]].kafka.lacks_records = True
    with pytest.raises(TopicLost):
        started.commit("orders", schema="b")
    assert started.check(resnapshot=True).tables_to_snapshot() == [("a", "orders"), ("b", "orders")]


def test_a_committed_event_behind_a_shared_topic_is_found() -> None:
    started = sharing()
    last = started.last
    started.commit("orders", schema="a")
    check = TopicCheck(started.kafka, started.store, None, started.pauses.append, {}, resnapshot=False)
    check.check(last)
    check._records = {name: (replace(record, offsets=(2,)), at) for name, (record, at) in check._records.items()}
    assert check.topic_beyond(last, lambda: False) == "p.orders"


def test_a_table_does_not_share_what_has_events_of_one_table_nor_take_what_others_share() -> None:
    started = Started()
    started.commit("orders", schema="orders")
    known = started.check().known({})
    names = TopicNames("p", rules=[TopicRule(TablePattern("t_*.orders"), "{prefix}.orders.orders")])
    topics = TableTopics(started.kafka.admin, names, TopicSettings(1, 1), known=known)
    with pytest.raises(Unpublishable, match=r"p\.orders\.orders has events of one table, and the settings let") as said:
        topics.find([("t_1", "orders")])
    assert said.value.table == ("t_1", "orders")
    shared = sharing().check().known({})
    topics = TableTopics(started.kafka.admin, TopicNames("p", "{prefix}.{table}"), TopicSettings(1, 1), known=shared)
    with pytest.raises(Unpublishable, match=r"p\.orders has events of several tables, and the settings give it to one"):
        topics.find([("public", "orders")])
