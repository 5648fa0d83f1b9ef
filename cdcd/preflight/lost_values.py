"""Judges which values of published tables Debezium's types cannot hold, in the modes that the settings choose. Pure.

Before: `source.table_columns` and `source.catalog` have asked the server.
After: `check` passes the finding on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.debezium.modes import Modes
from cdcd.debezium.values.lookup import ValueLookup
from cdcd.pgoutput.messages import Column, Relation
from cdcd.preflight.findings import Finding, warning
from cdcd.source.pg_types import PgType
from cdcd.source.table_columns import TableColumns
from cdcd.source.table_selection import qualified_name
from cdcd.terminal.text_format import plural
from cdcd.transaction.column_rules import ColumnRules

ABOUT: Final = "values"
COLUMNS_SHOWN: Final = 20
"""At most so many columns are named."""


def judge(
    modes: Modes, tables: Sequence[TableColumns], types: Mapping[int, PgType], rules: ColumnRules
) -> Iterator[Finding]:
    """The finding, if there is one. `types`: those of the columns, by OID. `rules`: which are left out, or masked."""
    lookup = ValueLookup(modes, TypeOptions("string"))
    lost: list[str] = []
    cures: dict[str, None] = {}
    for table in tables:
        for column in _sent(table, rules):
            if column.type_oid not in types:
                continue
            what, cure = lookup.lost(types[column.type_oid], column.typmod)
            if what:
                lost.append(f"{qualified_name(table.schema, table.name)}.{column.name} ({what})")
                if cure:
                    cures[f"debezium.{cure}"] = None
    if lost:
        more = f", and {len(lost) - COLUMNS_SHOWN} more" if len(lost) > COLUMNS_SHOWN else ""
        better = f"These settings lose fewer: {', '.join(cures)}. " if cures else ""
        kept = (
            "The header __cdcd.unrepresentable has the text of these values"
            if modes.keeps_lost
            else "With debezium.unrepresentable_in_header = true a header has the text of these values"
        )
        yield warning(
            ABOUT,
            f"Debezium's types cannot hold some values of {plural(len(lost), 'column')}: "
            f"{', '.join(lost[:COLUMNS_SHOWN])}{more}",
            f'{better}{kept}. sink.format = "cdcd" loses none',
            code="values-lost",
        )


def _sent(table: TableColumns, rules: ColumnRules) -> Sequence[Column]:
    """The columns as the encoders get them: behind the masks."""
    facts = zip(table.columns, table.type_oids, table.typmods, strict=True)
    relation = Relation(0, 0, table.schema, table.name, "d", tuple(Column(False, *each) for each in facts))
    masking = rules.masking(relation)
    return relation.columns if masking is None else masking.relation(relation).columns
