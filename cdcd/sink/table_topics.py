"""The topics of one daemon on the broker: makes those that are missing, and knows where each ends.

Before: `publisher` names tables and cdcd's own topics.
After: `interfaces.TopicAdmin` asks the broker; each topic is asked about once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from cdcd.errors import KafkaUnavailable, Unpublishable
from cdcd.progress.records import SnapshotState, TopicState, kafka_topic
from cdcd.progress.topic_evidence import UNKNOWN_END
from cdcd.sink.interfaces import TopicAdmin
from cdcd.sink.kafka_transaction import KafkaTopic, Table, Topic
from cdcd.sink.producer_bounds import ProducerBounds
from cdcd.sink.topic_limits import TopicLimits
from cdcd.sink.topics import (
    MIXED_TOPIC_HINT,
    SHARED_TOPIC_HINT,
    TopicNames,
    TopicSpec,
    divided,
    mixed_topic,
    own_specs,
    parked_spec,
)


@dataclass(frozen=True)
class TopicSettings:
    """How a table's topic is made if it is missing."""

    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


class TableTopics:
    """The topics that one publisher writes to."""

    def __init__(
        self,
        admin: TopicAdmin,
        names: TopicNames,
        settings: TopicSettings,
        snapshots: Mapping[str, SnapshotState] | None = None,
        known: Mapping[str, Topic] | None = None,
        owners: Mapping[str, Table] | None = None,
        bounds: ProducerBounds | None = None,
    ) -> None:
        """`snapshots` are the states of the tables' snapshots by topic, from the progress; `known` are topics that the
        broker was asked about already.

        `owners` are tables by their topics: no other table gets these topics. `bounds` are those of the producer.

        Makes cdcd's own topics if they are missing; raises as TopicAdmin does.
        """
        self.names = names
        self._admin = admin
        self._settings = settings
        self.limits = TopicLimits(admin, bounds or ProducerBounds())
        """Keeps batches below the limits of the topics."""
        self._snapshots = dict(snapshots or {})
        self._known = dict(known or {})
        self._divided = divided(self._known)
        """The topics on the broker that are of several tables, and those that are of one."""
        self._known_on_broker = {topic.kafka.name: topic.kafka for topic in self._known.values()}
        self._owners = dict(owners or {})
        self._by_table: dict[Table, Topic] = {}
        self._on_broker: dict[str, KafkaTopic] = {}
        """The topics that tables were found to have, by name."""
        self._tables: dict[str, list[Table]] = {}
        """The tables that were found to have each of these topics."""
        self._parked_exists = False  # as far as this process knows: a person may have removed it since
        *_, self.schema_partitions = admin.ensure(*own_specs(names, settings.replication_factor, settings.config))
        states = self._states({names.schemas, names.snapshots})
        self.own = {name: KafkaTopic(name, list(state.ends), state.topic_id) for name, state in states.items()}
        """Topics of cdcd's own that must not lose a record: schemas, snapshots, and parked events, by name."""

    def __getitem__(self, table: Table) -> Topic:
        """Return the topic of a table that `find` was asked for."""
        return self._by_table[table]

    def existing(self, table: Table) -> Topic | None:
        """Return the topic of a table if it is known to exist; else None."""
        known = self._known.get(self.names.topic(*table))
        if known is not None and known.table == table:
            self.find([table])
        return self._by_table.get(table)

    def note_snapshot(self, topic: str, snapshot: SnapshotState) -> None:
        """Note how far the snapshot of a table is whose topic may not exist yet: its table records say so then."""
        self._snapshots[topic] = snapshot

    def tables_of(self, topic: str) -> list[Table]:
        """Return the tables whose topic this is; none if it is no topic of a table, or was never asked for."""
        return self._tables.get(topic, [])

    def find(self, tables: Iterable[Table]) -> None:
        """Make the topics of these tables if they are missing. One request asks for all: they can be many.

        Raises Unpublishable for a table whose topic another table has, or whose topic Kafka refuses; BatchTooLarge if a
        topic takes less than the producer puts into one batch; else as TopicAdmin does.
        """
        new: dict[str, Table] = {}
        there: list[str] = []
        for table in tables:
            if table in self._by_table:
                continue
            name = self.names.topic(*table)
            known = self._known.get(name)
            alike, others = self._divided[::-1] if name == kafka_topic(name) else self._divided
            if kafka_topic(name) in others:
                raise Unpublishable(mixed_topic(name), MIXED_TOPIC_HINT, table=table, code="topics-collide")
            alike.add(kafka_topic(name))
            other = self._owners.setdefault(name, table)
            if other != table:
                raise Unpublishable(
                    f"the tables {'.'.join(other)} and {'.'.join(table)} would share the topic {name}",
                    SHARED_TOPIC_HINT,
                    table=table,
                    code="topics-collide",
                )
            on_broker = self._on_broker.get(kafka_topic(name))
            if on_broker is None and (name != kafka_topic(name) or (known is not None and known.table == table)):
                on_broker = self._known_on_broker.get(kafka_topic(name))
                there += [] if on_broker is None else [on_broker.name]
            if on_broker is None:
                new[name] = table
            else:
                self._take(name, table, on_broker)
        made: dict[str, str] = {}
        for name in new:
            made.setdefault(kafka_topic(name), name)
        try:
            self._make({name: new[name] for name in made.values()})
        except Unpublishable as error:
            sharing = [table for name, table in new.items() if kafka_topic(name) == error.topic]
            error.table, error.others = next(iter(sharing), None), sharing[1:]
            raise
        for name, table in new.items():
            if table not in self._by_table:
                self._take(name, table, self._on_broker[kafka_topic(name)])
        self.limits.look([*there, *made])

    def _take(self, name: str, table: Table, on_broker: KafkaTopic) -> None:
        """The table has this topic, by TopicNames' name, which is on the broker."""
        topic = self._known.get(name)
        if topic is None or topic.kafka is not on_broker or topic.table != table:
            topic = Topic(name, table, on_broker, self._snapshots.get(name))
        self._by_table[table] = topic
        self._on_broker[on_broker.name] = on_broker
        self._tables.setdefault(on_broker.name, []).append(table)

    def _make(self, new: Mapping[str, Table]) -> None:
        """Make the topics of these tables, which have none in common."""
        if not new:
            return
        settings = self._settings
        specs = [
            TopicSpec(
                kafka_topic(name),
                self.names.partitions(*table, settings.partitions),
                settings.replication_factor,
                settings.config,
            )
            for name, table in new.items()
        ]
        self._admin.ensure(*specs)
        # Asked before this slot's first record: so the table record is right for partitions that get no record.
        states = self._states([spec.name for spec in specs])
        for name, table in new.items():
            state = states[kafka_topic(name)]
            self._take(name, table, KafkaTopic(kafka_topic(name), list(state.ends), state.topic_id))

    def _states(self, topics: Collection[str]) -> dict[str, TopicState]:
        """Ask for topics that exist."""
        states = self._admin.states(topics)
        for topic in topics:
            if topic not in states or UNKNOWN_END in states[topic].ends:
                raise KafkaUnavailable(
                    f"the topic {topic} has just lost a leader, or was deleted",
                    "The daemon tries again",
                    code="kafka-unavailable",
                )
        return states

    def progress_keeps_leader(self) -> bool:
        """Whether the progress topic has a leader as long as any other topic has one."""
        return self._admin.keeps_leader(self.names.progress)

    def ensure_parked(self) -> None:
        """Make the parked topic, unless this process knows that it exists."""
        if not self._parked_exists:
            self.parked_end()

    def forget_parked(self) -> None:
        """No event is parked, so a person may have removed the topic, or may have made it again."""
        self.own.pop(self.names.parked, None)

    def parked_end(self) -> int:
        """Return the offset of the next record on the parked topic; makes the topic if it is missing."""
        settings, parked = self._settings, self.names.parked
        self._admin.ensure(parked_spec(self.names, settings.replication_factor, settings.config))
        self._parked_exists = True
        state = self._states({parked})[parked]
        self.own.setdefault(parked, KafkaTopic(parked, list(state.ends), state.topic_id))
        return state.ends[0]

    def shorten_deadlines(self, within_s: float) -> None:
        """From now on no call to the broker lasts longer than this. May be called by another thread."""
        self._admin.shorten_deadlines(within_s)
