"""The event envelope: its fields, in the order of their bytes. Only data.

Before: nothing.
After: `schema` builds the envelope's schema from these tables; `envelope_writer` and `event_encoder` write the fields
in this order; `cdcd.spark` reads the fields of ENVELOPE.
Source: Apache Avro specification, "Binary Encoding": a record is the values of its fields in order, without names.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias


class EnvelopeField(NamedTuple):
    """One field. Its type is the name of an Avro type, a record, or a list."""

    name: str
    type: FieldType
    is_nullable: bool = False


class RecordType(NamedTuple):
    """A record: its Avro name and its fields."""

    name: str
    fields: tuple[EnvelopeField, ...]


class ListType(NamedTuple):
    """An Avro array."""

    items: str | RecordType


FieldType: TypeAlias = "str | RecordType | ListType"

ROW: Final = "Row"
"""The record of the table's columns: the one type that differs from table to table."""

TIMESTAMP: Final = "timestamp-micros"
"""The logical type; the Avro type is long."""

SOURCE: Final = RecordType(
    "Source",
    (
        EnvelopeField("commit_lsn", "long"),
        EnvelopeField("seq", "long"),
        EnvelopeField("lsn", "long"),
        # The same for every event of a transaction:
        EnvelopeField("xid", "long"),
        EnvelopeField("commit_ts", TIMESTAMP),
        EnvelopeField("origin", "string", is_nullable=True),
    ),
)

TABLE: Final = (EnvelopeField("schema", "string"), EnvelopeField("table", "string"))
"""The table, by PostgreSQL's names: the last fields of `source`, and the first ones of a key, if others share the
topic."""

SHARING_SOURCE: Final = RecordType(SOURCE.name, (*SOURCE.fields, *TABLE))
"""The source of an event on a topic of several tables."""

UNREPRESENTABLE: Final = RecordType(
    "Unrepresentable",
    (EnvelopeField("image", "string"), EnvelopeField("column", "string"), EnvelopeField("text", "string")),
)

KEY_UNREPRESENTABLE: Final = RecordType("Unrepresentable", UNREPRESENTABLE.fields[1:])
"""In a key: without the field `image`, because a key has only one row image."""

TRUNCATE: Final = RecordType(
    "Truncate", (EnvelopeField("cascade", "boolean"), EnvelopeField("restart_identity", "boolean"))
)

ENVELOPE: Final = (
    EnvelopeField("op", "string"),
    EnvelopeField("source", SOURCE),
    EnvelopeField("identity", "string"),
    EnvelopeField("before", ROW, is_nullable=True),
    EnvelopeField("after", ROW, is_nullable=True),
    EnvelopeField("unchanged", ListType("string")),
    EnvelopeField("unrepresentable", ListType(UNREPRESENTABLE)),
)

TRUNCATE_ENVELOPE: Final = (*ENVELOPE, EnvelopeField("truncate", TRUNCATE, is_nullable=True))
"""Truncates have a schema of their own, so that the extra field costs the events of rows no byte."""
