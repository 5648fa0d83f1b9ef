"""The schemas of Debezium's keys and events.

Before: `field_writer` knows the columns of a relation.
After: `event_writer` makes them known to readers, by the encoding.
Source: Debezium's `Envelope`, `SourceInfo`, `TableSchemaBuilder` and `LogicalDecodingMessageMonitor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cdcd.debezium.connect_schema import INT64, STRING, Schema

SOURCE_SCHEMA: Final = Schema(
    "struct",
    "io.debezium.connector.postgresql.Source",
    1,
    fields=(
        ("version", STRING),
        ("connector", STRING),
        ("name", STRING),
        ("ts_ms", INT64),
        (
            "snapshot",
            Schema(
                "string",
                "io.debezium.data.Enum",
                1,
                parameters=(
                    (
                        "allowed",
                        "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental",
                    ),
                ),
                is_optional=True,
                default=b'"false"',
            ),
        ),
        ("db", STRING),
        ("sequence", STRING.optional),
        ("ts_us", INT64.optional),
        ("ts_ns", INT64.optional),
        ("schema", STRING),
        ("table", STRING),
        ("txId", INT64.optional),
        ("lsn", INT64.optional),
        ("xmin", INT64.optional),
        ("origin", STRING.optional),
        ("origin_lsn", INT64.optional),
    ),
)

_TRANSACTION: Final = Schema(
    "struct",
    "event.block",
    1,
    is_optional=True,
    fields=(("id", STRING), ("total_order", INT64), ("data_collection_order", INT64)),
)

MESSAGE_KEY: Final = Schema(
    "struct", "io.debezium.connector.postgresql.MessageKey", 1, fields=(("prefix", STRING.optional),)
)

TRANSACTION_KEY: Final = Schema(
    "struct", "io.debezium.connector.common.TransactionMetadataKey", 1, fields=(("id", STRING),)
)

TRANSACTION_VALUE: Final = Schema(
    "struct",
    "io.debezium.connector.common.TransactionMetadataValue",
    1,
    fields=(
        ("status", STRING),
        ("id", STRING),
        ("event_count", INT64.optional),
        (
            "data_collections",
            Schema(
                "array",
                is_optional=True,
                items=Schema(
                    "struct",
                    "event.collection",
                    1,
                    is_optional=True,
                    fields=(("data_collection", STRING), ("event_count", INT64)),
                ),
            ),
        ),
        ("ts_ms", INT64),
    ),
)


def envelope_schema(name: str, columns: Sequence[tuple[str, Schema]]) -> Schema:
    """The schema of a table's events. `name`: as `table_name` gives it."""
    row = Schema("struct", f"{name}.Value", is_optional=True, fields=tuple(columns))
    return Schema(
        "struct",
        f"{name}.Envelope",
        2,
        fields=(
            ("before", row),
            ("after", row),
            ("source", SOURCE_SCHEMA),
            ("transaction", _TRANSACTION),
            ("op", STRING),
            ("ts_ms", INT64.optional),
            ("ts_us", INT64.optional),
            ("ts_ns", INT64.optional),
        ),
    )


def row_schema(name: str, columns: Sequence[tuple[str, Schema]]) -> Schema:
    """The schema of a table's flat rows. `columns`: with the fields that are added to them."""
    return Schema("struct", f"{name}.Value", fields=tuple(columns))


def key_schema(name: str, columns: Sequence[tuple[str, Schema]]) -> Schema:
    """The schema of a table's keys."""
    return Schema("struct", f"{name}.Key", fields=tuple(columns))


def message_schema(content: Schema) -> Schema:
    """The schema of logical messages; `content`: that of their content."""
    message = Schema(
        "struct",
        "io.debezium.connector.postgresql.Message",
        1,
        fields=(("prefix", STRING.optional), ("content", content.optional)),
    )
    return Schema(
        "struct",
        "io.debezium.connector.postgresql.MessageValue",
        1,
        fields=(
            ("op", STRING),
            ("ts_ms", INT64.optional),
            ("source", SOURCE_SCHEMA),
            ("transaction", _TRANSACTION),
            ("message", message),
        ),
    )


def before_payload(schema: Schema | None) -> bytes:
    """Return the JSON that stands before the payload; empty if there is no schema."""
    return b"" if schema is None else b'{"schema":' + schema.json() + b',"payload":'
