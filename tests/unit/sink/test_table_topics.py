"""The topics are asked about once, and made as the settings say."""

from __future__ import annotations

import pytest
from sim.fake_kafka import FakeAdmin, FakeBroker

from cdcd.errors import Unpublishable
from cdcd.progress.records import SnapshotState
from cdcd.sink.kafka_transaction import KafkaTopic, Topic
from cdcd.sink.table_topics import TableTopics, TopicSettings
from cdcd.sink.topics import TopicNames, TopicRule, TopicSpec
from cdcd.source.table_selection import TablePattern

A, B = ("public", "a"), ("public", "b")


class Topics(TableTopics):
    """With the calls that reach the broker."""

    def __init__(self, template: str = "{prefix}.{schema}.{table}") -> None:
        self.broker = FakeBroker()
        self.calls: list[str] = []
        self.broker.on_call = self.calls.append
        snapshots = {"p.public.a": SnapshotState(8, done=True, rows=3)}
        super().__init__(FakeAdmin(self.broker), TopicNames("p", template), TopicSettings(2, 1), snapshots)
        self.calls.clear()


def test_cdcds_own_topics_are_there_from_the_start() -> None:
    topics = Topics()
    assert set(topics.broker.topics) == {"p.progress", "p.snapshots", "p.schemas"}
    assert topics.schema_partitions == 1


def test_a_table_is_asked_about_once() -> None:
    topics = Topics()
    topics.find([A, B])
    topics.calls.clear()
    topics.find([A, B])
    assert topics.calls == []
    assert (topics[A].name, topics[A].kafka.partitions, topics[A].kafka.offsets) == ("p.public.a", 2, [0, 0])
    assert topics[A].snapshot == SnapshotState(8, done=True, rows=3)
    assert topics[B].snapshot is None


def test_a_topic_that_is_known_already_is_only_asked_for_its_limit() -> None:
    topics, known = Topics(), Topic("p.public.a", A, KafkaTopic("p.public.a", [3, 4], "id"), None)
    topics.broker.create(TopicSpec("p.public.a", 2, 1))
    knowing = TableTopics(FakeAdmin(topics.broker), topics.names, TopicSettings(2, 1), known={known.name: known})
    topics.calls.clear()
    knowing.find([A, A])
    assert topics.calls == ["configs"]
    assert knowing[A] is known
    other = TableTopics(
        FakeAdmin(topics.broker), TopicNames("p", "p.public.{table}"), TopicSettings(2, 1), known={known.name: known}
    )
    other.find([("renamed", "a")])
    assert other["renamed", "a"].kafka.offsets == [0, 0], "the topic is of another table now"


def test_a_topic_knows_its_table() -> None:
    topics = Topics()
    topics.find([A])
    assert topics.tables_of("p.public.a") == [A]
    assert topics.tables_of("p.public.b") == []
    assert topics.tables_of("p.progress") == []


def test_two_tables_never_share_a_topic() -> None:
    topics = Topics("{prefix}.{table}")
    topics.find([A])
    with pytest.raises(Unpublishable, match=r"public\.a and other\.a would share the topic p\.a") as raised:
        topics.find([("other", "a")])
    assert raised.value.table == ("other", "a")
    with pytest.raises(Unpublishable, match=r"public\.c and other\.c would share the topic p\.c"):
        topics.find([("public", "c"), ("other", "c")])
    assert "p.c" not in topics.broker.topics


def test_a_table_that_has_a_topic_keeps_it_whoever_comes_first() -> None:
    topics = TableTopics(
        FakeAdmin(FakeBroker()), TopicNames("p", "{prefix}.{table}"), TopicSettings(1, 1), owners={"p.a": A}
    )
    with pytest.raises(Unpublishable, match=r"public\.a and other\.a would share") as raised:
        topics.find([("other", "a")])
    assert raised.value.table == ("other", "a")
    topics.find([A])
    assert topics[A].name == "p.a"


def test_a_refused_topic_is_told_with_its_table_and_the_others_are_found_without_it() -> None:
    topics = Topics()
    items, colliding = ("public", "order_items"), ("public_order", "items")
    topics.find([items])
    with pytest.raises(Unpublishable, match=r"p\.public_order\.items") as raised:
        topics.find([B, colliding])
    assert raised.value.table == colliding
    topics.find([A, B])
    assert topics.existing(colliding) is None
    assert topics.existing(A) is topics[A]


SHARING = TopicNames("p", "{prefix}.{table}", [TopicRule(TablePattern("t_*.orders"), "{prefix}.orders")])


def test_a_refused_topic_that_tables_share_is_told_with_all_of_them() -> None:
    broker, tables = FakeBroker(), [("t_1", "orders"), ("t_2", "orders"), ("t_3", "orders")]
    topics = TableTopics(FakeAdmin(broker), SHARING, TopicSettings(1, 1))
    broker.refused = "p.orders"
    with pytest.raises(Unpublishable, match=r"p\.orders") as raised:
        topics.find([A, *tables])
    assert [raised.value.table, *raised.value.others] == tables


def test_a_table_that_appears_later_does_not_mix_with_those_that_share_a_topic() -> None:
    shared, alone = ("t_1", "orders"), ("public", "orders")
    for tables in ([shared, alone], [alone, shared]):
        topics = TableTopics(FakeAdmin(FakeBroker()), SHARING, TopicSettings(1, 1))
        topics.find(tables[:1])
        with pytest.raises(Unpublishable, match=r"the topic p\.orders has events of") as raised:
            topics.find([A, *tables[1:]])
        assert raised.value.table == tables[1]
        with pytest.raises(Unpublishable, match=r"the topic p\.orders has events of"):
            TableTopics(FakeAdmin(FakeBroker()), SHARING, TopicSettings(1, 1)).find(tables)


def test_the_parked_topic_is_made_when_it_is_needed_and_its_end_is_always_asked_for() -> None:
    topics = Topics()
    topics.ensure_parked()
    assert "p.parked" in topics.broker.topics
    topics.calls.clear()
    topics.ensure_parked()
    assert topics.calls == []
    assert topics.parked_end() == 0
    assert topics.calls == ["ensure", "states"], "somebody may have removed it meanwhile"


def test_an_existing_topic_keeps_its_partitions() -> None:
    topics = Topics()
    topics.broker.create(TopicSpec("p.public.a", 5, 1))
    topics.find([A])
    assert topics[A].kafka.partitions == 5
