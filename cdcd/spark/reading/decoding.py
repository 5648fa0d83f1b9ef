"""Bytes of records to typed events: the schema that wrote a record decodes it, then Spark casts it to common types.

Before: `kafka` reads records, `writer_schemas` knows their schemas.
After: `topics` gives the events to users, `state.collapse` takes them.
Source: Spark, "Apache Avro Data Source Guide" (`from_avro`).

One fixed schema would turn the rows of other versions into nulls, or into other numbers. So the first bytes of each
record choose among the writers' schemas, and all of them decode into one struct. Where Avro's own resolution is right,
a field decodes straight into the common type. Where Avro's resolution is wrong (another scale, another type), the field
decodes as it was written, into a field of its own, and Catalyst casts it. The reader may give a field of the writer's
schema another name for this, because names are not on the wire. A record of an unknown schema is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro

from cdcd.avro.envelope_fields import ENVELOPE
from cdcd.avro.single_object import HEADER_SIZE
from cdcd.spark.reading.types import avro_resolves, cast, common_fields, envelope
from cdcd.spark.reading.writer_schemas import CONFLUENT_HEADER_BYTES, Writer

FIELDS: Final = tuple(field.name for field in ENVELOPE)
"""The envelope's fields that readers get. An event may have more, such as a truncate's options."""

_REST: Final = 2**31 - 1
"""A length for `substring` that no value reaches."""


def common_columns(writers: Sequence[Writer]) -> list[dict[str, Any]]:
    """The columns of all these versions of a table, each of the type that holds the values of all versions."""
    return reduce(common_fields, (writer.columns for writer in writers))


def header(column: str = "value") -> Column:
    """The first bytes of a record, which name its schema: ten, or five in Confluent's wire format."""
    value = f.col(column)
    is_confluent = f.substring(value, 1, 1) == f.lit(b"\x00")
    return f.when(is_confluent, f.substring(value, 1, CONFLUENT_HEADER_BYTES)).otherwise(
        f.substring(value, 1, HEADER_SIZE)
    )


def decode(records: DataFrame, writers: Sequence[Writer], columns: Sequence[dict[str, Any]], topic: str) -> DataFrame:
    """Replace the column `value` of records by the envelope's fields, `before` and `after` with these columns.

    `columns` must hold at least what `common_columns` of the writers holds. Records without a value (tombstones) are
    left out.
    """
    versions = _versions(writers, columns)
    event: Column | None = None
    for each in reversed(writers):
        wrote_it = f.startswith("value", f.lit(each.header))
        decoded = _from_avro(each, versions)
        event = f.when(wrote_it, decoded) if event is None else event.when(wrote_it, decoded)
    unknown = f.raise_error(
        f.concat(
            f.lit(f"cdcd: a record of {topic} names a schema that was not known when the query was made: "),
            f.lower(f.hex(header())),
            f.lit(". Start the query again: schemas are read at its start"),
        )
    )
    event = unknown if event is None else event.otherwise(unknown)
    kept = [name for name in records.columns if name != "value"]
    records = records.where("value IS NOT NULL").select(*kept, event.alias("_event"))
    return records.select(*(_field(name, versions).alias(name) for name in FIELDS), *kept)


def _versions(writers: Sequence[Writer], columns: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The fields that each column decodes into: one of the common type, and one for each type that needs a cast.

    No column can have the name of such another field: `_x0_` would be the escape of a zero byte, see `avro_names`.
    """
    versions = {column["name"]: [column] for column in columns}
    for column in (column for writer in writers for column in writer.columns):
        known = versions[column["name"]]
        if not avro_resolves(column["type"], known[0]["type"]) and all(column["type"] != e["type"] for e in known):
            known.append({"name": f"_x0_{len(known)}_{column['name']}", "type": column["type"]})
    return versions


def _from_avro(writer: Writer, versions: Mapping[str, list[dict[str, Any]]]) -> Column:
    reader = envelope([each for known in versions.values() for each in known], writer.schema, FIELDS)
    names = {}
    for column in writer.columns:
        of_its_type = (each["name"] for each in versions[column["name"]] if each["type"] == column["type"])
        names[column["name"]] = next(of_its_type, column["name"])
    payload = f.substring("value", len(writer.header) + 1, _REST)
    return from_avro(payload, writer.renamed(names), {"mode": "FAILFAST", "avroSchema": reader})


def _field(name: str, versions: Mapping[str, list[dict[str, Any]]]) -> Column:
    decoded = f.col("_event").getField(name)
    if name not in ("before", "after") or all(len(known) == 1 for known in versions.values()):
        return decoded
    made = []
    for column, known in versions.items():
        values = [cast(decoded.getField(each["name"]), each["type"], known[0]["type"]) for each in known]
        made.append(f.coalesce(*values).alias(column))
    return f.when(decoded.isNotNull(), f.struct(*made))
