"""SQL expressions for a column: what PostgreSQL selects, and how Spark makes the value that the topics would have.

Before: `writer_schemas` (or `cdcd schema`) describes the columns.
After: `load` reads rows by these expressions, `verify` compares rows by their texts.

To compare, both sides make the same text: numbers and strings as they are, times as microseconds, floats as their bits,
arrays element by element with lengths. To load, PostgreSQL sends what JDBC hands on exactly and fastest: numbers, also
for times, and strings. NULL stays NULL. A value that Avro cannot hold is sent as PostgreSQL's own text, and flagged.
Source: PostgreSQL, "Data Type Formatting Functions", "Date/Time Functions" (extract), "Bit String".
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from cdcd.avro.type_forms import INTERVAL_FIELDS, kind_of
from cdcd.spark.reading.type_table import KINDS
from cdcd.spark.reading.types import Avro, ddl, plain_decimal

_STRINGS: Final = ("text", "varchar")
"""PostgreSQL's types that JDBC gives as they are."""
_CAST_KEEPS_TEXT: Final = ("json", "jsonb", "uuid")
"""PostgreSQL's types whose cast to text gives what the output function gives."""
_DIRECT: Final = ("int", "long", "float", "double", "boolean", "decimal", "bytes")


def is_comparable(avro: Avro, pg_type: str) -> bool:
    """Whether both sides have a text for values of this type."""
    kind = kind_of(avro)
    if kind == "array" and isinstance(avro, dict):
        return not is_vector(pg_type) and kind_of(avro["items"]) not in ("array", "record", "map")
    if kind == "record":
        return _is_interval(avro)
    return kind != "map"


def _is_interval(avro: Avro) -> bool:
    return isinstance(avro, dict) and tuple(field["name"] for field in avro["fields"]) == INTERVAL_FIELDS


def is_vector(pg_type: str) -> bool:
    """Whether it is pgvector's type: an array in Avro, but not in PostgreSQL."""
    return pg_type.rpartition(".")[2] == "vector"


def postgres_name(described: dict[str, Any]) -> str:
    """The column's name in PostgreSQL."""
    return str(described.get("pg_name", described["name"]))


def representable(expression: str, avro: Avro) -> str:
    """A condition in PostgreSQL's SQL: Avro can hold the value. "true" if it always can."""
    kind = kind_of(avro)
    condition = (KINDS[kind].representable or "true").format(c=expression)
    if kind == "record" and _is_interval(avro):
        condition = f"isfinite({expression})"
    if kind == "array" and isinstance(avro, dict) and KINDS[kind_of(avro["items"])].representable:
        inside = representable("x", avro["items"])
        condition += f" AND NOT EXISTS (SELECT FROM unnest({expression}) u(x) WHERE NOT ({inside}))"
    return condition


def text_in_postgres(expression: str, avro: Avro) -> str:
    """An SQL expression: the value's text, of type text."""
    kind = kind_of(avro)
    if number := KINDS[kind].number:
        return f"{number.format(c=expression)}::text"
    if kind == "double":
        return f"(('x' || encode(float8send({expression}), 'hex'))::bit(64)::bigint)::text"
    if kind == "float":
        return f"(('x' || encode(float4send({expression}), 'hex'))::bit(32)::int)::text"
    if kind == "bytes":
        return f"encode({expression}::bytea, 'hex')"
    if kind == "boolean":
        return f"({expression})::text"
    if kind == "record":
        clock = f"extract(hour FROM {expression}) * 3600000000 + extract(minute FROM {expression}) * 60000000"
        parts = [
            f"(extract(year FROM {expression}) * 12 + extract(month FROM {expression}))::int",
            f"extract(day FROM {expression})::int",
            f"({clock} + extract(microseconds FROM {expression}))::bigint",
        ]
        return f"({' || chr(44) || '.join(f'{part}::text' for part in parts)})"
    if kind == "array" and isinstance(avro, dict):
        item = text_in_postgres("x", avro["items"])
        shown = f"CASE WHEN x IS NULL THEN 'N' ELSE length({item}) || ':' || {item} END"
        items = f"unnest({expression}) WITH ORDINALITY u(x, o)"
        whole = f"coalesce((SELECT string_agg({shown}, ',' ORDER BY o) FROM {items}), '')"
        return f"CASE WHEN {expression} IS NOT NULL THEN {whole} END"
    # The type's output function: a cast to text would trim character(n).
    return f"CASE WHEN {expression} IS NOT NULL THEN format('%s', {expression}) END"


def sent_by_postgres(expression: str, avro: Avro, pg_type: str) -> str:
    """An SQL expression for what `value_from` takes: for a time its number, else the text."""
    if number := KINDS[kind_of(avro)].number:
        return number.format(c=expression)
    if pg_type in _STRINGS:
        return expression
    return f"{expression}::text" if pg_type in _CAST_KEEPS_TEXT else text_in_postgres(expression, avro)


def text_in_spark(column: Column, avro: Avro) -> Column:
    """The same text, made by Spark of the value that it has."""
    kind = kind_of(avro)
    if kind == "timestamp-micros":
        return f.unix_micros(column).cast("string")
    if kind == "local-timestamp-micros":
        return _local_micros(column).cast("string")
    if kind == "date":
        return f.unix_date(column).cast("string")
    if kind == "double":
        return f.when(column.isNotNull(), f.reflect(f.lit("java.lang.Double"), f.lit("doubleToLongBits"), column))
    if kind == "float":
        return f.when(column.isNotNull(), f.reflect(f.lit("java.lang.Float"), f.lit("floatToIntBits"), column))
    if kind == "decimal" and isinstance(avro, dict):
        return plain_decimal(column, avro)
    if kind == "bytes":
        return f.lower(f.hex(column))
    if kind == "record":
        return f.concat(
            *(f.concat(f.lit("," if n else ""), column.getField(name)) for n, name in enumerate(INTERVAL_FIELDS))
        )
    if kind == "array" and isinstance(avro, dict):
        items = avro["items"]

        def shown(item: Column) -> Column:
            text = text_in_spark(item, items)
            return f.when(item.isNull(), f.lit("N")).otherwise(f.concat(f.length(text), f.lit(":"), text))

        return f.when(column.isNotNull(), f.concat_ws(",", f.transform(column, shown)))
    return column.cast("string")


def value_from(sent: Column, avro: Avro) -> Column:
    """The value that PostgreSQL sent by `sent_by_postgres`, or as text by `text_in_postgres`; null for null."""
    kind = kind_of(avro)
    if kind == "timestamp-micros":
        return f.timestamp_micros(sent.cast("bigint"))
    if kind == "local-timestamp-micros":
        return f.timestamp_add("MICROSECOND", sent.cast("bigint"), f.expr("timestamp_ntz'1970-01-01'"))
    if kind == "date":
        return f.date_from_unix_date(sent.cast("int"))
    if kind == "bytes":
        return f.unhex(sent)
    return sent.cast(ddl(avro))


def _local_micros(column: Column) -> Column:
    """Microseconds of a local time since 1970, from its parts: the session's time zone may not have that hour."""
    days, hours, minutes = f.unix_date(column.cast("date")).cast("bigint"), f.hour(column), f.minute(column)
    micros = (f.extract(f.lit("SECOND"), column) * 1_000_000).cast("bigint")
    return (days * 1440 + hours * 60 + minutes) * 60_000_000 + micros


def is_direct(avro: Avro) -> bool:
    """Whether JDBC gives the very value as it is."""
    return kind_of(avro) in _DIRECT
