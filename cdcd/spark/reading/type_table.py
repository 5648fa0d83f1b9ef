"""The kinds of Avro types that cdcd writes: the type of each in Spark, and SQL for its values in PostgreSQL.

Before: `avro.type_forms` names the kinds, and says which of them are fallible.
After: every module of `cdcd.spark` that depends on a kind. A new kind is a new line here.
Source: Spark, "Apache Avro Data Source Guide" (which Avro type becomes which type of Spark).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Kind:
    """One kind of Avro types. The SQL templates take the expression `{c}`."""

    spark: str
    """Spark SQL's type; empty where it depends on parameters. Not `timestamp`: a setting says which one that is."""
    base: str = ""
    """The Avro type that a logical type annotates; empty if the kind is no logical type."""
    representable: str = ""
    """A condition in PostgreSQL's SQL: Avro can hold the value. Empty: always, or the caller decides by the parts."""
    number: str = ""
    """PostgreSQL's SQL for the value as a number of days or microseconds. Empty: the value is no time."""


_MICROSECONDS: Final = "((extract(epoch FROM {c}) * 1000000)::bigint)"

KINDS: Final[dict[str, Kind]] = {
    "boolean": Kind("boolean"),
    "int": Kind("int"),
    "long": Kind("bigint"),
    "float": Kind("float"),
    "double": Kind("double"),
    "string": Kind("string"),
    "bytes": Kind("binary"),
    "uuid": Kind("string", "string"),
    "decimal": Kind("", "bytes", representable="({c} < 'Infinity' AND {c} > '-Infinity')"),
    "date": Kind(
        "date", "int", number="({c} - date '1970-01-01')",
        representable="({c} >= date '0001-01-01' AND {c} < date '10000-01-01')",
    ),
    "time-micros": Kind("bigint", "long", number=_MICROSECONDS, representable="{c} <> '24:00'"),
    "timestamp-micros": Kind(
        "timestamp_ltz", "long", number=_MICROSECONDS,
        representable="({c} >= timestamptz '0001-01-01 00:00Z' AND {c} < timestamptz '10000-01-01 00:00Z')",
    ),
    "local-timestamp-micros": Kind(
        "timestamp_ntz", "long", number=_MICROSECONDS,
        representable="({c} >= timestamp '0001-01-01' AND {c} < timestamp '10000-01-01')",
    ),
    "array": Kind(
        "", representable="(array_ndims({c}) IS NULL OR array_ndims({c}) = 1 AND array_lower({c}, 1) = 1)",
    ),
    "map": Kind(""),
    "record": Kind(""),
}  # fmt: skip
"""By Avro's name. Avro has the years 1 to 9999. PostgreSQL's infinities lie outside these, its NaN above Infinity."""
