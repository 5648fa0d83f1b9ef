"""The tables of the page `types` of the manual: what they say about each type, and what the code says.

Each row of a table with HEADER has a type as SQL names it, its Avro type, its Spark type, an example (a literal in the
form in which PostgreSQL writes the value, and the value as `cdcd tail --json` shows it), and notes.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import fastavro
from librt.strings import BytesWriter

from cdcd import manual
from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.lookup import REGISTRY, TypeOptions, codec_for
from cdcd.avro.schema import envelope_schema
from cdcd.reading.decoder import plain
from cdcd.source.pg_types import PgType
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

HEADER = "| PostgreSQL type | Avro type | Spark type | Example | Notes |"
"""The tables of types."""
LOSSES_HEADER = "| PostgreSQL type | Values | Why |"
"""The table of values without an Avro form."""

SQL_NAMES = {
    "smallint": "int2", "integer": "int4", "bigint": "int8", "boolean": "bool", "real": "float4",
    "double precision": "float8", "character varying": "varchar", "character": "bpchar", '"char"': "char",
    "bit varying": "varbit", "timestamp with time zone": "timestamptz", "time with time zone": "timetz",
}  # fmt: skip
"""PostgreSQL's name in pg_type, for each name of SQL that differs from it."""

RANGES = {
    "int4range": "int4", "int8range": "int8", "numrange": "numeric", "daterange": "date", "tsrange": "timestamp",
    "tstzrange": "timestamptz",
}  # fmt: skip
"""The built-in ranges, and their subtypes."""

OTHER_EXTENSIONS = ("cube", "isbn", "halfvec", "sparsevec")
"""Types of extensions that cdcd does not know by name."""


def _typmod(name: str, numbers: list[int]) -> int:
    """The typmod of a type with these modifiers in parentheses, as PostgreSQL's typmodin functions make it."""
    if not numbers:
        return -1
    if name == "numeric":
        return (numbers[0] << 16 | numbers[1] & 0x7FF) + 4
    return numbers[0] + 4 if name in ("varchar", "bpchar") else numbers[0]


def _named(name: str) -> PgType:
    if name in RANGES:
        return PgType(1, "pg_catalog", name, "r", element=_named(RANGES[name]))
    if name.endswith("multirange"):
        return PgType(1, "pg_catalog", name, "m", element=_named(name.replace("multi", "")))
    is_extension = name in REGISTRY.extension_names or name in OTHER_EXTENSIONS
    delimiter = ";" if name == "box" else ","
    return PgType(1, "public" if is_extension else "pg_catalog", name, delimiter=delimiter)


def _array(element: PgType) -> PgType:
    return PgType(1, element.schema, f"_{element.name}", element=element, is_array=True)


_FLOATRANGE = PgType(1, "public", "floatrange", "r", element=_named("float8"))

OWN = {
    "mood": PgType(1, "public", "mood", "e"),
    "price": PgType(1, "public", "price", "d", base=_named("numeric"), base_typmod=_typmod("numeric", [10, 2])),
    "numbers": PgType(1, "public", "numbers", "d", base=_array(_named("int4"))),
    "address": PgType(
        1, "public", "address", "c", fields=(("street", _named("text"), -1), ("no", _named("int4"), -1)), asked_lsn=1
    ),
    "floatrange": _FLOATRANGE,
    "floatmultirange": PgType(1, "public", "floatmultirange", "m", element=_FLOATRANGE),
}  # fmt: skip
"""The types that the page's own SQL creates."""


def type_named(sql: str) -> tuple[PgType, int]:
    """The type that SQL names so, and its typmod."""
    if sql.endswith("[]"):
        element, typmod = type_named(sql.removesuffix("[]"))
        return _array(element), typmod
    if sql in OWN:
        return OWN[sql], -1
    name, _, modifier = sql.partition("(")
    name = SQL_NAMES.get(name, name)
    numbers = [int(number) for number in re.findall(r"-?\d+", modifier)]
    return _named(name), _typmod(name, numbers)


def field_of(sql: str) -> dict[str, Any]:
    """The field of a column `v` of this type, in the record of the row in an event's schema."""
    pgtype, typmod = type_named(sql)
    column = ResolvedColumn("v", pgtype, typmod, in_key=False)
    relation = ResolvedRelation(7, "public", "t", "d", [column])
    schema = json.loads(envelope_schema(relation, [codec_for(pgtype, typmod, TypeOptions())]))
    [before] = [field for field in schema["fields"] if field["name"] == "before"]
    [field] = before["type"][1]["fields"]
    return dict(field)


def notation(avro: Any) -> str:
    """An Avro type as the page writes it."""
    if isinstance(avro, list):
        null, value = avro
        assert null == "null"
        return f"{notation(value)}?"
    if isinstance(avro, str):
        return avro
    if avro["type"] == "array":
        return f"array<{notation(avro['items'])}>"
    if avro["type"] == "map":
        return f"map<{notation(avro['values'])}>"
    if avro["type"] == "record":
        fields = ", ".join(f"{field['name']} {notation(field['type'])}" for field in avro["fields"])
        return f"record {avro['name']} {{{fields}}}"
    digits = f"({avro['precision']},{avro['scale']})" if "precision" in avro else ""
    logical = f"/{avro['logicalType']}" if "logicalType" in avro else ""
    return f"{avro['type']}{logical}{digits}"


def avro_of(codec: Codec, text: bytes, *, is_binary: bool = False) -> bytes | None:
    """The Avro form of a value that PostgreSQL sends so; None if there is none."""
    out = BytesWriter()
    read = codec.binary if is_binary else codec.text
    return out.getvalue() if read(text, 0, len(text), out) else None


def shown_as(sql: str, literal: str) -> str:
    """The value of this literal as `cdcd tail --json` shows it."""
    codec = codec_for(*type_named(sql), TypeOptions())
    avro = avro_of(codec, literal.encode())
    assert avro is not None, f"{literal}::{sql} has no Avro form"
    value = fastavro.schemaless_reader(io.BytesIO(avro), fastavro.parse_schema(codec.schema), None)
    return json.dumps(plain(value), ensure_ascii=False)


@dataclass(frozen=True)
class Row:
    """One row, as it stands on the page."""

    line: str

    @property
    def cells(self) -> tuple[str, ...]:
        """What stands between its bars."""
        return tuple(cell.strip() for cell in self.line[1:-1].split("|"))

    @property
    def sql(self) -> str:
        """The type as SQL names it."""
        return spans(self.cells[0])[0]

    @property
    def literal(self) -> str:
        """The example as PostgreSQL writes it."""
        return spans(self.cells[3])[0][1:-1].replace("''", "'")

    def corrected(self, spark: Callable[[Any], str] | None) -> str:
        """The row as the code has it; without `spark`, which gives the Spark type of an Avro type, this cell stays."""
        avro = field_of(self.sql)["type"][1]
        name, _, spark_cell, example, notes = self.cells
        example = f"{example.partition(' → ')[0]} → {span(shown_as(self.sql, self.literal))}"
        spark_cell = spark_cell if spark is None else span(spark(avro))
        return f"| {name} | {span(notation(avro))} | {spark_cell} | {example} | {notes} |"


def span(code: str) -> str:
    """Code in Markdown."""
    return f"`{code}`"


def spans(cell: str) -> list[str]:
    """What is code in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def rows(header: str) -> Iterator[Row]:
    """The rows of all tables of the page that have this header."""
    inside = False
    for line in manual.page("types").splitlines():
        inside = line == header or (inside and line.startswith("|"))
        if inside and line != header and not line.startswith("|---"):
            yield Row(line)


def corrected(spark: Callable[[Any], str] | None = None) -> str:
    """The page with what the code says in its tables of types."""
    page = manual.page("types")
    for row in rows(HEADER):
        page = page.replace(row.line, row.corrected(spark))
    return page
