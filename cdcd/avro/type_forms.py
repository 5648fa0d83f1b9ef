"""The way back from Avro to PostgreSQL: by a type's name, its Avro type, its text form, and whether values get lost.

Before: the codecs are the way to Avro. `tests/unit/avro/test_type_forms.py` compares both ways.
After: `reading.postgres_text` makes PostgreSQL's text by this table; `cdcd.spark` learns from it which keys lose
values.
Source: PostgreSQL's output functions; Apache Avro specification, "Logical Types".

Only data, and no import of a codec: readers that run without the daemon import this module, too.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

TextForm: TypeAlias = Literal[
    "plain", "boolean", "float4", "float8", "hex", "ewkb", "decimal", "date", "time", "timestamp", "timestamptz",
    "interval", "vector", "hstore",
]  # fmt: skip
"""How PostgreSQL's output function writes a value. plain: the Avro string as it is, or a decimal integer."""


class TypeForm(NamedTuple):
    """One PostgreSQL type, for readers."""

    kind: str
    """Avro's logical type where there is one, else Avro's type."""
    text: TextForm = "plain"
    is_fallible: bool = False
    """Avro cannot hold some values: they are null, and `unrepresentable` has their text."""
    delimiter: str = ","
    """`typdelim`: the character between the elements in the text of an array of this type."""


TYPE_FORMS: Final[dict[str, TypeForm]] = {
    "bool": TypeForm("boolean", "boolean"),
    **dict.fromkeys(("int2", "int4"), TypeForm("int")),
    **dict.fromkeys(("int8", "oid", "xid", "cid"), TypeForm("long")),
    "float4": TypeForm("float", "float4"),
    "float8": TypeForm("double", "float8"),
    "numeric": TypeForm("decimal", "decimal", is_fallible=True),
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "char", "xml", "json", "jsonb"), TypeForm("string")),
    **dict.fromkeys(("citext", "ltree", "lquery", "ltxtquery", "tsvector", "timetz"), TypeForm("string")),
    **dict.fromkeys(("inet", "cidr", "macaddr", "macaddr8", "bit", "varbit", "pg_lsn", "xid8"), TypeForm("string")),
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
"""For each kind, the form of its first type in TYPE_FORMS."""

FALLIBLE_KINDS: Final = frozenset(["string", *(form.kind for form in TYPE_FORMS.values() if form.is_fallible)])
"""All arrays, maps and records are fallible, because a part of them may be.

So are all strings, because their schema does not tell the database's encoding: in one that is not UTF8 text may be no
UTF-8. `TypeForm.is_fallible` is about a database in UTF8.
"""

INTERVAL_FIELDS: Final = ("months", "days", "micros")
"""The fields of an interval's record."""

RANGE_FIELDS: Final = ("lower", "upper", "lower_inc", "upper_inc", "empty")
"""The fields of a range's record: two nullable bounds, three flags."""


def kind_of(avro_type: str | dict[str, object]) -> str:
    """The kind of an Avro type, given as parsed JSON: its logical type if it has one, else its type."""
    return avro_type if isinstance(avro_type, str) else str(avro_type.get("logicalType") or avro_type["type"])


def form_of(kind: str, pg_type: str) -> TypeForm:
    """The form of a type, by its kind and PostgreSQL's name; not for arrays, maps and records.

    The name may have a schema. It is "" if it is not known, as inside a composite.
    """
    named = TYPE_FORMS.get(pg_type.rpartition(".")[2])
    # A user's type may have a built-in one's name.
    return named if named is not None and named.kind == kind else _FORMS_OF_KINDS.get(kind, _STRING)
