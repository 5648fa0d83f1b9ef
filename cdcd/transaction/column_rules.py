"""Which columns of a table are published, and which are masked: the settings `[[table]]`. Pure.

Before: the settings have the rules; a Relation message names a table and its columns.
After: `column_masks` has what is to be done with the bytes of this relation.

Columns are known by their names, at the moment that the stream tells of. The first rule that matches the table and
says which columns decides that; the first one that masks some decides the masks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

from cdcd.pgoutput.messages import Relation
from cdcd.source.requests_table import is_requests
from cdcd.source.table_selection import TablePattern
from cdcd.transaction.column_masks import Mask, MaskedColumn, Masking, RelationMasking, StoredText


@final
class ColumnRule:
    """One rule for the tables that a pattern matches."""

    def __init__(
        self,
        match: str,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        masks: Mapping[str, Mask] | None = None,
    ) -> None:
        """`include`: only these columns, and `exclude`: all but these; one of them at most. Both empty: it says
        nothing.
        """
        self.pattern: Final = TablePattern(match)
        self.include: Final = frozenset(include)
        self.exclude: Final = frozenset(exclude)
        self.masks: Final = dict(masks or {})

    @property
    def selects(self) -> bool:
        """Whether it says which columns are published."""
        return bool(self.include or self.exclude)

    @property
    def names(self) -> frozenset[str]:
        """Every column that it names."""
        return self.include | self.exclude | frozenset(self.masks)


@final
class ColumnRules:
    """The rules of all tables, in their order."""

    def __init__(self, rules: Sequence[ColumnRule] = (), secret: bytes = b"") -> None:
        """`secret`: the key of the hashes, 1 to 64 bytes if a rule has one."""
        self.rules: Final = tuple(rules)
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

    def masking(self, message: Relation) -> RelationMasking | None:
        """What is to be done with a relation; None if all its columns are published as they are."""
        if not self.rules:
            return None
        selecting, masking = self.of(message.nspname or "pg_catalog", message.relname)
        columns: list[MaskedColumn] = []
        left_out = 0
        for index, column in enumerate(message.columns):
            mask = None if masking is None else masking.masks.get(column.name)
            is_left_out = selecting is not None and (
                column.name not in selecting.include if selecting.include else column.name in selecting.exclude
            )
            if is_left_out:
                columns.append(MaskedColumn(column.name, column.type_oid, index, -1, None))
                left_out += 1
            elif mask is not None:
                columns.append(MaskedColumn(column.name, column.type_oid, index, index - left_out, mask))
        return RelationMasking(self._masking, message, columns) if columns else None


NO_RULES: Final = ColumnRules()
"""Every column is published as it is."""
