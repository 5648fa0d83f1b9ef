"""The way back from the topics: a PostgreSQL type's name -> its kind in Avro, whether that loses values, its text.

Before: the codecs are the way there. `tests/unit/avro/test_type_forms.py` compares the two.
After: `reading.postgres_text` writes values as text by this table; `cdcd.spark` decides by it which keys lose values.
Source: PostgreSQL's output functions; Apache Avro specification, "Logical Types".

Only data, and nothing that imports a codec: readers that run far from the daemon import it, too.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

TextForm: TypeAlias = Literal[
    "plain", "boolean", "float4", "float8", "hex", "ewkb", "decimal", "date", "time", "timestamp", "timestamptz",
    "interval", "vector", "hstore",
]  # fmt: skip
"""How PostgreSQL's output function writes a value. plain: as Avro's string, or as a decimal integer."""


class TypeForm(NamedTuple):
    """A type as a reader meets it."""

    kind: str
    """Avro's logical type where there is one, else Avro's type."""
    text: TextForm = "plain"
    is_fallible: bool = False
    """Some values are null in Avro and have their text in `unrepresentable`."""
    delimiter: str = ","
    """`typdelim`: what separates the elements in the text of an array of this type."""


TYPE_FORMS: Final[dict[str, TypeForm]] = {
    "bool": TypeForm("boolean", "boolean"),
    **dict.fromkeys(("int2", "int4"), TypeForm("int")),
    **dict.fromkeys(("int8", "oid", "xid", "cid", "xid8"), TypeForm("long")),
    "float4": TypeForm("float", "float4"),
    "float8": TypeForm("double", "float8"),
    "numeric": TypeForm("decimal", "decimal", is_fallible=True),
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "char", "xml", "json", "jsonb"), TypeForm("string")),
    **dict.fromkeys(("citext", "ltree", "lquery", "ltxtquery", "tsvector", "timetz"), TypeForm("string")),
    **dict.fromkeys(("inet", "cidr", "macaddr", "macaddr8", "bit", "varbit", "pg_lsn"), TypeForm("string")),
    "box": TypeForm("string", delimiter=";"),
    "uuid": TypeForm("uuid"),
    "bytea": TypeForm("bytes", "hex"),
    **dict.fromkeys(("geometry", "geography"), TypeForm("bytes", "ewkb", delimiter=":")),
    "date": TypeForm("date", "date", is_fallible=True),
    "time": TypeForm("time-micros", "time", is_fallible=True),
    "timestamp": TypeForm("local-timestamp-micros", "timestamp", is_fallible=True),
    "timestamptz": TypeForm("timestamp-micros", "timestamptz", is_fallible=True),
    "interval": TypeForm("record", "interval", is_fallible=True),
    "hstore": TypeForm("map", "hstore", is_fallible=True),
    "vector": TypeForm("array", "vector", is_fallible=True),
}
"""By PostgreSQL's name. A numeric without precision, and every type that is not here, is a string."""

_STRING: Final = TypeForm("string")
_NESTED: Final = ("array", "map", "record")

_FORMS_OF_KINDS: Final[dict[str, TypeForm]] = {
    form.kind: form for form in reversed(TYPE_FORMS.values()) if form.kind not in _NESTED
}
"""The first type of each kind speaks for it."""

FALLIBLE_KINDS: Final = frozenset([form.kind for form in TYPE_FORMS.values() if form.is_fallible])
"""Every array, map and record is among them: its parts may be fallible."""

INTERVAL_FIELDS: Final = ("months", "days", "micros")
"""The fields of an interval's record."""

RANGE_FIELDS: Final = ("lower", "upper", "lower_inc", "upper_inc", "empty")
"""The fields of a range's record: two nullable bounds, three flags."""


def kind_of(avro_type: str | dict[str, object]) -> str:
    """The kind of an Avro type, as JSON has it: its logical type where there is one, else its type."""
    return avro_type if isinstance(avro_type, str) else str(avro_type.get("logicalType") or avro_type["type"])


def form_of(kind: str, pg_type: str) -> TypeForm:
    """The form of a type that is no array, map or record, by its kind and PostgreSQL's name.

    The name may have a schema. It is "" where it is not known, as inside a composite.
    """
    named = TYPE_FORMS.get(pg_type.rpartition(".")[2])
    # A user's type may have a built-in one's name.
    return named if named is not None and named.kind == kind else _FORMS_OF_KINDS.get(kind, _STRING)
