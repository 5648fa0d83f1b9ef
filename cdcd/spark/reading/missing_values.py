"""What rows hold in columns that are younger: the defaults with which columns were added, as Spark's values.

Before: `writer_schemas` has the schemas, whose fields say it as PostgreSQL's text (`pg_missing_value`).
After: `decoding` fills it into events that lack the column; the mirror and `verify` into rows that have no event since.
Source: PostgreSQL, "pg_attribute" (attmissingval).

The daemon's codecs make Avro of the text, and Spark decodes that as it decodes events. So a default is the value that
an event would have. A text of which they make none (infinity as a date) is one that Avro cannot hold: `unrepresentable`
has it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as f

from cdcd.reading.avro_values import avro_value
from cdcd.spark.reading.sql_texts import sql_text
from cdcd.spark.reading.types import Avro, cast, ddl, resolved
from cdcd.spark.reading.writer_schemas import Writer


@dataclass(frozen=True)
class MissingValue:
    """What the rows hold that are older than a column."""

    text: str
    """PostgreSQL's text."""
    type: Avro
    """The column's type where the default was told."""
    avro: bytes | None
    """The value; None if Avro cannot hold it."""
    schema: str
    """The Avro schema of these bytes, as JSON."""
    columns: frozenset[str] = field(default=frozenset(), compare=False)
    """The names of all columns where the default was told."""
    name: str = field(default="", compare=False)
    """The column's name."""

    def is_lacked_by(self, writer: Writer) -> bool:
        """Whether events of this schema are older than the column, and do not have it under an earlier name.

        A column that is renamed keeps what rows hold that are older than it.
        """
        types = {column["name"]: column["type"] for column in writer.columns}
        renamed = (
            each["name"]
            for each in writer.described()
            if each.get("pg_missing_value") == self.text and types[each["name"]] == self.type
        )
        return self.name not in types and all(name in self.columns for name in renamed)

    def sql(self) -> str:
        """The value as SQL, for a value that Avro can hold."""
        assert self.avro is not None
        return f"from_avro(X'{self.avro.hex()}', {sql_text(self.schema)}, map('mode', 'FAILFAST'))"

    def value(self, wanted: Avro) -> Column:
        """The value, cast to the type `wanted`; null if Avro cannot hold it."""
        if self.avro is None:
            return f.lit(None).cast(ddl(wanted))
        return cast(f.expr(self.sql()), self.type, wanted)


def missing_values(writers: Sequence[Writer]) -> dict[str, MissingValue]:
    """By the name of the column. The last of these schemas that tells a column's default counts.

    A schema may lack a default that an earlier one tells: PostgreSQL forgets it once it has written all rows anew.
    """
    found = {}
    for writer in writers:
        types = {column["name"]: column["type"] for column in writer.columns}
        for each in writer.described():
            if isinstance(each.get("pg_missing_value"), str):
                found[each["name"]] = _missing_value(each, types)
    return found


def _missing_value(described: dict[str, Any], types: dict[str, Avro]) -> MissingValue:
    name, text = described["name"], str(described["pg_missing_value"])
    made = avro_value(text, str(described["pg_type"]), types[name])
    if made is None or resolved(made[1], {}) != types[name]:
        return MissingValue(text, types[name], None, "", frozenset(types), name)
    return MissingValue(text, types[name], made[0], json.dumps(made[1]), frozenset(types), name)
