"""The topics of one daemon on the broker: makes those that are missing, and knows where each ends.

Before: `publisher` names tables and cdcd's own topics.
After: `interfaces.TopicAdmin` asks the broker; each topic is asked about once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from cdcd.errors import KafkaUnavailable, Unpublishable
from cdcd.progress.records import SnapshotState, TopicState
from cdcd.progress.topic_evidence import UNKNOWN_END
from cdcd.sink.interfaces import TopicAdmin
from cdcd.sink.kafka_transaction import Table, Topic
from cdcd.sink.producer_bounds import ProducerBounds
from cdcd.sink.topic_limits import TopicLimits
from cdcd.sink.topics import SHARED_TOPIC_HINT, TopicNames, TopicSpec, own_specs, parked_spec


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
        self._owners = dict(owners or {})
        self._by_name: dict[str, Topic] = {}
        self._by_table: dict[Table, Topic] = {}
        self._parked_exists = False  # as far as this process knows: a person may have removed it since
        *_, self.schema_partitions = admin.ensure(*own_specs(names, settings.replication_factor, settings.config))
        states = self._states({names.schemas, names.snapshots})
        self.own = {
            name: Topic(name, ("", ""), list(state.ends), None, state.topic_id) for name, state in states.items()
        }
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

    def table_of(self, topic: str) -> Table | None:
        """Return the table whose topic this is; None if it is no topic of a table, or was never asked for."""
        return self._by_name[topic].table if topic in self._by_name else None

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
            other = self._owners.setdefault(name, table)
            if other != table:
                raise Unpublishable(
                    f"the tables {'.'.join(other)} and {'.'.join(table)} would share the topic {name}",
                    SHARED_TOPIC_HINT,
                    table=table,
                    code="topics-collide",
                )
            if known is not None and known.table == table and name not in self._by_name:
                self._by_name[name] = self._by_table[table] = known
                there.append(name)
            else:
                new[name] = table
        self._make(new)
        self.limits.look([*there, *new])

    def _make(self, new: Mapping[str, Table]) -> None:
        if not new:
            return
        settings = self._settings
        specs = [
            TopicSpec(
                name,
                self.names.partitions(*table, settings.partitions),
                settings.replication_factor,
                settings.config,
            )
            for name, table in new.items()
        ]
        try:
            self._admin.ensure(*specs)
        except Unpublishable as error:
            error.table = new.get(error.topic)
            raise
        # Asked before this slot's first record: so the table record is right for partitions that get no record.
        for name, state in self._states(new).items():
            topic = Topic(name, new[name], list(state.ends), self._snapshots.get(name), state.topic_id)
            self._by_name[name] = self._by_table[topic.table] = topic

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
        self.own.setdefault(parked, Topic(parked, ("", ""), list(state.ends), None, state.topic_id))
        return state.ends[0]

    def shorten_deadlines(self, within_s: float) -> None:
        """From now on no call to the broker lasts longer than this. May be called by another thread."""
        self._admin.shorten_deadlines(within_s)
