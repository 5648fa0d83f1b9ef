"""Decides which tables need a new copy because the stream says so: the key changed, or another table has the name.

Before: a batch of the stream announces which key the events of a table have from here on, and the OID of the table.
After: `snapshot_requests` takes it as a request of a person. `request_intake` makes a request of it that commits with
the batch. `snapshot_requests` asks here about tables as the catalog describes them, too.

The rows that were not written since a change of the key are in Kafka under the old key. Those of another table, which
had the name before, are of that table. The copy begins with a truncate event, which ends them all, and has all rows as
they are. It shows the table as of a later LSN than that of the change. So changes that the stream brings before the
copy begins need no further copy, however many they are.

The request, what is announced, and the first events of it become durable together. So a change is found once: a later
start knows the new key and the new table, and knows that the copy is wanted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, TypeAlias

from cdcd.errors import FatalError
from cdcd.progress.snapshot_records import TableSnapshot
from cdcd.progress.topic_incarnations import TopicIncarnations
from cdcd.sink.batches import AnnouncedTable
from cdcd.sink.topics import TopicNames
from cdcd.source.incarnations import Incarnation
from cdcd.source.table_selection import qualified_name, shell_word

log = logging.getLogger(__name__)

Table: TypeAlias = "tuple[str, str]"
"""Schema and name."""
Key: TypeAlias = "tuple[str, ...]"
"""The names of the key's columns, in the order of the table; empty if events have no key."""


class Copies(Protocol):
    """The copies of tables (schema, name) that are wanted anyway."""

    def has_snapshot(self, schema: str, table: str) -> bool:
        """Whether the table's topic has a snapshot, or is to get one."""

    def is_wanted(self, schema: str, table: str) -> bool:
        """Whether a new snapshot is wanted, and has not begun: it will have all rows."""


class Recopies:
    """The copies of one stream. For the thread that owns the stream, `why_replaced` excepted."""

    def __init__(
        self,
        names: TopicNames,
        keys: Mapping[Table, Key],
        incarnations: Mapping[str, Incarnation],
        *,
        stops_on_key_change: bool = False,
        stops_on_replaced: bool = False,
        forbids: Callable[[str, str], bool] = lambda _, __: False,
    ) -> None:
        """`keys`: the key of each table's last events in Kafka, where it is known. `incarnations`: by topic, the table
        that its rows are from.

        `stops_on_key_change`: end the daemon before the first event under another key. `stops_on_replaced`: before the
        first event of another table. `forbids`: whether the settings forbid to copy a table (schema and name) because
        of a gap.
        """
        self._names = names
        self._keys = dict(keys)
        self.incarnations: Final = TopicIncarnations(incarnations)
        self._stops_on_key_change = stops_on_key_change
        self.stops_on_replaced: Final = stops_on_replaced
        self.forbids: Final = forbids

    def take(self, announced: Iterable[AnnouncedTable], copies: Copies) -> list[Table]:
        """Return the tables that need a new snapshot.

        `announced`: the tables whose events come next, in order. A key that goes again at once counts, because it has
        events. Raises FatalError if a key has changed or a table was replaced, and the daemon is to stop then.
        """
        copied: dict[Table, None] = {}
        for each in announced:
            table = (each.schema, each.name)
            before = self._keys.get(table, each.key)
            self._keys[table] = each.key
            topic = self._names.topic(*table)
            other = self.incarnations.announce(topic, each.oid).get(topic)
            if table in copied or copies.is_wanted(*table):
                continue
            if other is not None:
                self.follow(*table, other.contradiction(Incarnation(each.oid)))
                copied[table] = None
            elif before != each.key and self._is_copied(table, before, each.key, copies):
                copied[table] = None
        return list(copied)

    def why_replaced(self, topic: str, seen: Incarnation) -> str:
        """Why a topic does not have the rows of the table `seen`; empty if nothing tells so. For any thread."""
        before = self.incarnations.get(topic)
        return "" if before is None else before.contradiction(seen)

    def reach(self, begun: TableSnapshot) -> bool:
        """The rows of a copy come now. Returns whether the last events have another key, or are of another table."""
        table, key, seen = (begun.schema, begun.table), begun.key_columns or (), begun.incarnation
        is_other = self._keys.get(table, key) != key
        self._keys[table] = key
        if seen is not None:
            is_other = bool(self.why_replaced(begun.topic, seen)) or is_other
            self.incarnations.put(begun.topic, seen)
        return is_other

    def follow(self, schema: str, table: str, reason: str) -> None:
        """A table was replaced. Raises FatalError if the daemon is to stop then."""
        name = qualified_name(schema, table)
        if self.stops_on_replaced:
            raise FatalError(
                f"{name} was replaced: {reason}",
                'Set tables.on_replaced = "copy" and start again: the topic gets a truncate event, and then all rows',
                code="table-replaced",
            )
        log.warning("%s was replaced: %s. It gets a new snapshot, which begins with a truncate event", name, reason)

    def _is_copied(self, table: Table, before: Key, now: Key, copies: Copies) -> bool:
        name = qualified_name(*table)
        change = f"the key of {name} changed from {_words(before)} to {_words(now)}"
        if self._stops_on_key_change:
            raise FatalError(
                f'{change}, and tables.on_key_change is "stop"',
                'Set tables.on_key_change = "copy", and start again: the daemon then takes a new snapshot of the table',
                code="key-changed",
            )
        if not copies.has_snapshot(*table):
            log.warning(
                "%s. The topic has no snapshot, so no new one is taken: the rows that were not written since are in "
                "Kafka under the old key, if at all. To have all rows there, run: cdcd snapshot %s",
                change,
                shell_word(name),
            )
            return False
        log.warning("%s: the table gets a new snapshot, which begins with a truncate event", change)
        return True


def _words(key: Key) -> str:
    return f"({', '.join(key)})" if key else "none"
