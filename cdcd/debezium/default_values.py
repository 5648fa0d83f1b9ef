"""The default of a column, as Debezium puts it into the column's schema.

Before: `source.catalog` has the expression of DEFAULT, as `pg_get_expr` writes it.
After: `field_writer` has it in the schema, and where a value is missing.
Source: Debezium's `PostgresDefaultValueConverter`.

Only literals count. Debezium does not evaluate functions and operators: it takes a value of the type in their place.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from librt.strings import BytesWriter

from cdcd.avro.codecs.numeric import typmod_scale
from cdcd.avro.codecs.registry import ENUM
from cdcd.debezium.values.base import Value
from cdcd.source.pg_types import PgType

_STANDS_FOR_FUNCTION: Final = {
    "bool": "f", "int2": "0", "int4": "0", "int8": "0", "float4": "0", "float8": "0", "numeric": "0", "text": "",
    "varchar": "", "bpchar": "", "bit": "00", "varbit": "00", "uuid": "00000000-0000-0000-0000-000000000000",
    "date": "1970-01-01", "time": "00:00:00", "timestamp": "1970-01-01 00:00:00",
    "timestamptz": "1970-01-01 00:00:00+00", "timetz": "00:00:00+00", "interval": "00:00:00", "json": "{}",
    "jsonb": "{}", "xml": "",
}  # fmt: skip
"""By type, PostgreSQL's text of what stands for a function. Other types have no default."""
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'(?:::.*)?", re.DOTALL)
_BITS: Final = re.compile(r"B'([01]*)'(?:::.*)?", re.DOTALL)
_NUMBER: Final = re.compile(r"\(?(-?[0-9.]+(?:e[+-]?[0-9]+)?)\)?(?:::.*)?", re.DOTALL)
_NAME: Final = re.compile(r"[A-Z_]+")
_BOOLEANS: Final = {"true": "t", "false": "f"}


def default_json(value: Value, pgtype: PgType, typmod: int, expression: str) -> bytes:
    """JSON of the default of a column of this type; empty if its schema has none.

    `expression`: of DEFAULT; empty: there is none.
    """
    is_text = pgtype.schema == "pg_catalog" and pgtype.name in ("text", "varchar", "bpchar")
    is_known = pgtype.schema == "pg_catalog" and pgtype.name in _STANDS_FOR_FUNCTION
    if not expression or expression.startswith("NULL::") or not (is_known or pgtype.kind == ENUM):
        return b""
    if value.schema.type == "struct":
        return b""
    text = _literal(expression)
    if text is None and is_text and _NAME.fullmatch(expression):
        text = expression  # CURRENT_USER and its like
    if text is None:
        if not is_known:
            return b""
        text = _STANDS_FOR_FUNCTION[pgtype.name]
    out, raw = BytesWriter(), text.encode()
    try:
        if is_known and pgtype.name == "numeric" and typmod >= 0:
            raw = f"{Decimal(text):.{max(typmod_scale(typmod), 0)}f}".encode()
        is_held = value.text(raw, 0, len(raw), out)
    except Exception:  # noqa: BLE001  # whoever makes tables writes the expression: without a default it is right, too
        return b""
    return out.getvalue() if is_held else b""


def _literal(expression: str) -> str | None:
    """PostgreSQL's text of the literal; None if the expression is none."""
    found = _QUOTED.fullmatch(expression)
    if found is not None:
        return found[1].replace("''", "'")
    found = _BITS.fullmatch(expression) or _NUMBER.fullmatch(expression)
    return found[1] if found is not None else _BOOLEANS.get(expression)
