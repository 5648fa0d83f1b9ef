"""What a user chooses of Debezium's format, and of flat rows.

Before: the settings of the sections `debezium` and `row`.
After: `values.lookup` and `event_encoder` follow them.
Source: Debezium 3.7, "Debezium connector for PostgreSQL", the connector's properties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

DEBEZIUM_VERSION: Final = "3.7.0.Final"
"""The version of Debezium whose format the events have."""

PLACEHOLDER: Final = "__debezium_unavailable_value"
"""Debezium's default for `unavailable.value.placeholder`."""

DecimalMode: TypeAlias = Literal["precise", "double", "string"]
TimeMode: TypeAlias = Literal[
    "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"
]
IntervalMode: TypeAlias = Literal["numeric", "string"]
BinaryMode: TypeAlias = Literal["bytes", "base64", "base64-url-safe", "hex"]
HstoreMode: TypeAlias = Literal["json", "map"]
AdjustmentMode: TypeAlias = Literal["none", "avro", "avro_unicode"]
DeleteMode: TypeAlias = Literal["tombstone", "rewrite", "rewrite-with-tombstone", "drop"]


@dataclass(frozen=True)
class RowModes:
    """The properties of Debezium's ExtractNewRecordState."""

    fields: tuple[tuple[str, str], ...] = ()
    """`add.fields`: the name in the row, and the place in the event, such as "op" or "source.lsn"."""
    deletes: DeleteMode = "tombstone"
    """`delete.tombstone.handling.mode`."""


@dataclass(frozen=True)
class Modes:
    """The connector's properties, by their names there."""

    decimal: DecimalMode = "precise"
    """`decimal.handling.mode`."""
    time: TimeMode = "adaptive"
    """`time.precision.mode`."""
    interval: IntervalMode = "numeric"
    """`interval.handling.mode`."""
    binary: BinaryMode = "bytes"
    """`binary.handling.mode`."""
    hstore: HstoreMode = "json"
    """`hstore.handling.mode`."""
    placeholder: str = PLACEHOLDER
    """`unavailable.value.placeholder`."""
    unknown_types: bool = False
    """`include.unknown.datatypes`."""
    truncates: bool = False
    """`skipped.operations` lacks t."""
    null_as_default: bool = False
    """A null in a column with a default is written as the default: `replace.null.with.default` of Connect's
    converters, which is true there."""
    transactions: bool = False
    """`provide.transaction.metadata`."""
    keeps_lost: bool = False
    """A header has PostgreSQL's text of the values that Connect's types cannot hold. Debezium has no such header."""
    schema_names: AdjustmentMode = "none"
    """`schema.name.adjustment.mode`."""
    field_names: AdjustmentMode = "none"
    """`field.name.adjustment.mode`."""
    table_in_key: str = "__dbz__physicalTableIdentifier"
    """`key.field.name` of ByLogicalTableRouter: the keys of tables that share a topic have this field. Empty:
    `key.enforce.uniqueness` is false."""
    with_schemas: bool = False
    """`schemas.enable` of Connect's converter: every key and value has its schema."""
    rows: RowModes | None = None
    """Not None: flat rows instead of events."""
