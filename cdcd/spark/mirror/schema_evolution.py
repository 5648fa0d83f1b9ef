"""How a mirrored table follows its source when columns change.

Before: the writers of a batch are known. After: `table_merge` alters the table, and decodes into these columns.

What can be followed: new columns, and types that the format can widen in place. What cannot stops with a hint: another
kind of type, and what looks like a renamed column (PostgreSQL tells no renames: the old column goes, a new one comes,
and the rows that exist would be null in it).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from cdcd.errors import RequestRejected
from cdcd.spark.mirror.targets.target import Target, decimal_of
from cdcd.spark.reading.types import Avro, common, common_fields, ddl
from cdcd.spark.reading.writer_schemas import Writer

_AVRO: Final[dict[str, Avro]] = {
    "int": "int", "bigint": "long", "float": "float", "double": "double", "boolean": "boolean", "string": "string",
    "binary": "bytes", "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}  # fmt: skip


@dataclass(frozen=True)
class Evolution:
    """What to do to a table before its batch is merged."""

    columns: list[dict[str, Any]]
    """Of the batch: what to decode into; all of them are in the table after the changes."""
    added: list[tuple[str, str]]
    widened: list[tuple[str, str]]


def evolve(
    target: Target,
    table: str,
    existing: Mapping[str, str],
    writers: Sequence[Writer],
    *,
    follow: bool,
    overwrites: bool = False,
) -> Evolution:
    """What the table, with these `existing` columns of the source (name -> type), must become for a batch's writers.

    `follow` leaves a table's type as it is where it cannot be widened, and casts to it; and takes a renamed column for
    a new one. Else these raise RequestRejected; but a rename is none to what `overwrites` all rows.
    """
    wanted = reduce(common_fields, (each.columns for each in writers))
    added = [(column["name"], ddl(column["type"])) for column in wanted if column["name"] not in existing]
    if existing and not (follow or overwrites):
        _refuse_renames(table, existing, writers)
    columns: list[dict[str, Any]] = []
    widened: list[tuple[str, str]] = []
    for column in wanted:
        name, avro = column["name"], column["type"]
        old = existing.get(name, ddl(avro))
        if ddl(avro) != old:
            known = _parsed(old)
            both = "string" if known is None else common(known, avro)
            if ddl(both) == old:
                avro = both
            elif target.widens(old, ddl(both)):
                avro = both
                widened.append((name, ddl(both)))
            elif follow:
                avro = _parsed(old) or "string"
            else:
                raise RequestRejected(
                    f"{table}: column {name} is {old}, and PostgreSQL's is {ddl(avro)} now, to which {target.using} "
                    "cannot widen it",
                    'Drop the table and load it anew, or set schema_changes = "follow" to cast to the old type',
                )
        columns.append({"name": name, "type": avro})
    return Evolution(columns, added, widened)


def _refuse_renames(table: str, existing: Mapping[str, str], writers: Sequence[Writer]) -> None:
    met = {column["name"] for writer in writers for column in writer.columns}
    for writer in writers:
        types = {column["name"]: ddl(column["type"]) for column in writer.columns}
        new = {name for name in types if name not in existing}
        for gone in sorted(existing.keys() - types.keys()):
            same = sorted(name for name in new if types[name] == existing[gone])
            if same and gone in met:
                raise RequestRejected(
                    f"{table}: some events of this run have a column {gone}, others {same[0]}, of the same type, "
                    "instead: if it was renamed, either would be null in the other's rows",
                    "Load it anew, with `cdcd spark snapshot`. "
                    'If it was no rename: set schema_changes = "follow" for one run',
                )
            if same:
                raise RequestRejected(
                    f"{table}: column {gone} went and {same[0]} came, of the same type: if that was a rename, "
                    "it would be null in all rows that exist",
                    f"If it was renamed: ALTER TABLE {table} RENAME COLUMN {gone} TO {same[0]}. "
                    'If not: set schema_changes = "follow" for one run',
                )


def _parsed(kind: str) -> Avro | None:
    """Spark's type as Avro's; None for what only stays as it is."""
    numbers = decimal_of(kind)
    if numbers is not None:
        return {"type": "bytes", "logicalType": "decimal", "precision": numbers[0], "scale": numbers[1]}
    found = re.fullmatch(r"array<(.*)>", kind)
    if found is not None:
        items = _parsed(found[1])
        return None if items is None else {"type": "array", "items": items}
    return _AVRO.get(kind)
