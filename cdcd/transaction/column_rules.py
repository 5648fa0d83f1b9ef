"""Which columns of a table are published, masked, its key, or decide its partitions: the settings `[[table]]`. Pure.

Before: the settings have the rules; a Relation message names a table and its columns.
After: `column_masks` has what is to be done with the bytes of this relation, `relations` its key.

Columns are known by their names, at the moment that the stream tells of. The first rule that matches the table and
says which columns decides that; the first one that masks some decides the masks, the first one that has a key decides
the key, and so it is with the partitions. Such a key need not be unique. But PostgreSQL must send its columns with each
old row: they are columns of the replica identity. A column that decides the partition is one of the key: so all events
of a key have one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, final

from cdcd.pgoutput.messages import Relation
from cdcd.source.identifiers import identifier
from cdcd.source.requests_table import is_requests
from cdcd.source.table_selection import TablePattern
from cdcd.transaction.column_masks import Mask, MaskedColumn, Masking, RelationMasking, StoredText

_FULL: Final = "f"


@final
class PartitionChoice:
    """What decides the partition of a table's events. All events of a key have one partition, whatever it is."""

    def __init__(self, column: str = "", is_one: bool = False) -> None:
        """`column`: a column of the key; empty: the whole key. `is_one`: all events go to partition 0."""
        self.column: Final = column
        self.is_one: Final = is_one

    def __reduce__(self) -> tuple[Any, ...]:
        """What `pickle` needs: compiled, the attributes lie in no dictionary."""
        return PartitionChoice, (self.column, self.is_one)

    @property
    def is_by_key(self) -> bool:
        """Whether the whole key decides it, as Kafka's own clients do."""
        return not (self.column or self.is_one)


BY_KEY: Final = PartitionChoice()


@final
class ColumnRule:
    """One rule for the tables that a pattern matches."""

    def __init__(
        self,
        match: str,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        masks: Mapping[str, Mask] | None = None,
        key: Sequence[str] = (),
        partition_by: PartitionChoice | None = None,
    ) -> None:
        """`include`: only these columns, and `exclude`: all but these; one of them at most. Both empty: it says
        nothing. `key`: the columns of the key; empty: it says nothing. `partition_by`: None: it says nothing.
        """
        self.pattern: Final = TablePattern(match)
        self.include: Final = frozenset(include)
        self.exclude: Final = frozenset(exclude)
        self.masks: Final = dict(masks or {})
        self.key: Final = tuple(key)
        self.partition_by: Final = partition_by

    @property
    def says_something(self) -> bool:
        """Whether it decides anything at all."""
        return bool(self.selects or self.masks or self.key or self.partition_by)

    @property
    def selects(self) -> bool:
        """Whether it says which columns are published."""
        return bool(self.include or self.exclude)

    def leaves_out(self, column: str) -> bool:
        """Whether a column of the tables is not published."""
        return column not in self.include if self.include else column in self.exclude

    @property
    def names(self) -> frozenset[str]:
        """Every column that it leaves out or masks, or names so that others are left out."""
        return self.include | self.exclude | frozenset(self.masks)


@final
class ColumnRules:
    """The rules of all tables, in their order."""

    def __init__(
        self,
        rules: Sequence[ColumnRule] = (),
        secret: bytes = b"",
        shared_topic: Callable[[str, str], str] | None = None,
    ) -> None:
        """`secret`: the key of the hashes, 1 to 64 bytes if a rule has one. `shared_topic`: the topic of a table
        (schema and name), if other tables may have it, too; else empty.
        """
        self.rules: Final = tuple(rules)
        self._shared_topic = shared_topic
        self._masking = Masking(secret)

    def take_stored_text(self, stored: StoredText | None) -> None:
        """From now on text comes as it is stored, and `stored` reads it; None: as UTF-8."""
        self._masking.stored = stored

    def of(self, schema: str, table: str) -> tuple[ColumnRule | None, ColumnRule | None]:
        """The rule that says which columns of a table are published, and the rule that masks some; None if none."""
        if is_requests(schema, table):
            return None, None
        matching = [rule for rule in self.rules if rule.pattern.matches(schema, table)]
        selecting = next((rule for rule in matching if rule.selects), None)
        return selecting, next((rule for rule in matching if rule.masks), None)

    def shared_topic(self, schema: str, table: str) -> str:
        """The topic of a table, if other tables may have it, too; else empty."""
        return "" if self._shared_topic is None else self._shared_topic(schema, table)

    def keying(self, schema: str, table: str) -> ColumnRule | None:
        """The rule that has the key of a table; None if none has."""
        if is_requests(schema, table):
            return None
        return next((rule for rule in self.rules if rule.key and rule.pattern.matches(schema, table)), None)

    def partitioning(self, schema: str, table: str) -> ColumnRule | None:
        """The rule that says what decides the partitions of a table; None if none does."""
        if is_requests(schema, table):
            return None
        return next((rule for rule in self.rules if rule.partition_by and rule.pattern.matches(schema, table)), None)

    def masking(self, message: Relation) -> RelationMasking | None:
        """What is to be done with a relation; None if all its columns are published as they are."""
        if not self.rules:
            return None
        selecting, masking = self.of(message.nspname or "pg_catalog", message.relname)
        columns: list[MaskedColumn] = []
        left_out = 0
        for index, column in enumerate(message.columns):
            mask = None if masking is None else masking.masks.get(column.name)
            if selecting is not None and selecting.leaves_out(column.name):
                columns.append(MaskedColumn(column.name, column.type_oid, index, -1, None))
                left_out += 1
            elif mask is not None:
                columns.append(MaskedColumn(column.name, column.type_oid, index, index - left_out, mask))
        return RelationMasking(self._masking, message, columns) if columns else None


def unfit_key(key: Sequence[str], identity: str, columns: Collection[str], flagged: Collection[str]) -> str:
    """Why these columns cannot be the key of a table; empty if they can.

    `identity`: the replica identity, as in `pg_class.relreplident`. `columns`: those of the table; `flagged`: those of
    the replica identity.
    """
    if missing := [name for name in key if name not in columns]:
        return f"the table has no column {', '.join(missing)}"
    if identity != _FULL and (unsent := [name for name in key if name not in flagged]):
        return f"its replica identity lacks {', '.join(unsent)}, so an update or a delete would not name the old key"
    return ""


def unfit_key_hint(schema: str, table: str, key: Sequence[str]) -> str:
    """The SQL that makes these columns fit for a key of the settings."""
    table_name, columns = identifier(schema, table), ", ".join(map(identifier, key))
    index = identifier(f"{table[:12]}_key_of_events")
    return (
        f"Run: ALTER TABLE {table_name} REPLICA IDENTITY FULL. Or, if the columns are unique and not null, run: "
        f"CREATE UNIQUE INDEX {index} ON {table_name} ({columns}); "
        f"ALTER TABLE {table_name} REPLICA IDENTITY USING INDEX {index}. Or change the key in [[table]]"
    )


NO_RULES: Final = ColumnRules()
"""Every column is published as it is."""
