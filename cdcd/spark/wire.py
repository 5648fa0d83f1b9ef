"""Bytes of records to typed events: each decoded by the schema that wrote it, then cast to types that hold them all.

Before: `kafka` reads records, `writers` knows their schemas. After: `changes` and `collapse`.
Source: Spark, "Apache Avro Data Source Guide" (`from_avro`).

One fixed schema would turn the rows of other versions into nulls, or into other numbers. So the first bytes of each
record choose among the writers' schemas. Where Avro's own resolution is right, one expression per schema decodes
straight into the common type; where it is not (another scale, another type) the record is decoded as it was written and
cast by Catalyst. A record of an unknown schema is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro

from cdcd.spark.types import avro_resolves, common_fields, envelope, row
from cdcd.spark.writers import Writer

FIELDS: Final = ("op", "source", "identity", "before", "after", "unchanged", "unrepresentable")
"""Of the envelope, in its order. An event may have more, such as a truncate's options; those are left out."""

_REST: Final = 2**31 - 1


def common_columns(writers: Sequence[Writer]) -> list[dict[str, Any]]:
    """The columns of all these versions of a table, each of a type that holds what all of them hold."""
    return reduce(common_fields, (writer.columns for writer in writers))


def start(column: str = "value") -> Column:
    """The bytes of a record that name its schema: ten, or five in Confluent's wire format."""
    value = f.col(column)
    return f.when(f.substring(value, 1, 1) == f.lit(b"\x00"), f.substring(value, 1, 5)).otherwise(
        f.substring(value, 1, 10)
    )


def decode(records: DataFrame, writers: Sequence[Writer], columns: Sequence[dict[str, Any]], topic: str) -> DataFrame:
    """Replace the column `value` of records by the envelope's fields, `before` and `after` with these columns.

    `columns` must hold what `common_columns` of the writers does. Records without a value (tombstones) are left out.
    """
    records = records.where("value IS NOT NULL")
    wanted = list(columns)
    foreign = [each for each in writers if not _resolves(each, wanted)]
    event: Column | None = None
    for index, each in enumerate(foreign):
        # A column of its own: as a shared subexpression it would be decoded once a field.
        records = records.withColumn(f"_as_written_{index}", f.when(_is(each), _from_avro(each)))
    for each in writers:
        if each in foreign:
            written = f.col(f"_as_written_{foreign.index(each)}")
            decoded = f.struct(*(_field(written, name, each, wanted) for name in FIELDS))
        else:
            same = each.columns == wanted and tuple(field["name"] for field in each.schema["fields"]) == FIELDS
            decoded = _from_avro(each, None if same else envelope(wanted, each.schema, FIELDS))
        event = f.when(_is(each), decoded) if event is None else event.when(_is(each), decoded)
    unknown = f.raise_error(
        f.concat(
            f.lit(f"cdcd: a record of {topic} names a schema that was not known when the query was made: "),
            f.lower(f.hex(start())),
            f.lit(". Start the query again: schemas are read at its start"),
        )
    )
    event = unknown if event is None else event.otherwise(unknown)
    kept = [name for name in records.columns if name != "value" and not name.startswith("_as_written_")]
    return records.select(*kept, event.alias("_event")).select("_event.*", *kept)


def _resolves(writer: Writer, wanted: Sequence[dict[str, Any]]) -> bool:
    types = {field["name"]: field["type"] for field in wanted}
    return all(avro_resolves(field["type"], types[field["name"]]) for field in writer.columns)


def _is(writer: Writer) -> Column:
    return f.substring("value", 1, len(writer.header)) == f.lit(writer.header)


def _from_avro(writer: Writer, reader: str | None = None) -> Column:
    payload = f.substring("value", len(writer.header) + 1, _REST)
    options = {"mode": "FAILFAST"}
    if reader is not None:
        options["avroSchema"] = reader
    return from_avro(payload, writer.text, options)


def _field(written: Column, name: str, writer: Writer, wanted: list[dict[str, Any]]) -> Column:
    value = written.getField(name)
    if name in ("before", "after"):
        value = f.when(value.isNotNull(), row(value, writer.columns, wanted))
    return value.alias(name)
