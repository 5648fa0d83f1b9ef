"""Makes Avro names from PostgreSQL's names. Two tables, or two columns of a table, never get the same name.

Before: `schema` has the names of a table and its columns.
After: `schema` uses the Avro names, and keeps PostgreSQL's name as a property where the two differ.
Source: Apache Avro specification, "Names"; Spark resolves column names without regard to case.

An Avro name matches `[A-Za-z_][A-Za-z0-9_]*`. Three things are escaped as `_xH_`, where H is the code point in
lower-case hex: any other character, a leading digit, and an underscore that could be read as the start of an escape. If
two column names differ in case only, their capitals are escaped, too: Spark could not tell the two columns apart.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_ESCAPED = re.compile(r"[^A-Za-z0-9_]|_(?=[xX][0-9a-fA-F]+[^A-Za-z0-9])")
_ESCAPE = re.compile(r"_x([0-9a-f]+)_")
_ESCAPED_IN_SMALL = re.compile(r"[^a-z0-9_]|_(?=[xX][0-9a-fA-F]+[^a-z0-9])")


def _escape(match: re.Match[str]) -> str:
    return f"_x{ord(match.group()):x}_"


def avro_name(name: str) -> str:
    """The Avro name of one PostgreSQL identifier; "" becomes `_x_` (PostgreSQL allows no empty name)."""
    return _with_escapes(name, _ESCAPED)


def postgres_name(name: str) -> str:
    """The PostgreSQL identifier of an Avro name that `avro_name` or `field_names` has made."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), name)


def field_names(columns: Sequence[str]) -> list[str]:
    """The Avro field names of a table's columns, in their order. No two are equal, even if case is ignored."""
    folded = Counter(column.lower() for column in columns)
    return [_with_escapes(column, _ESCAPED_IN_SMALL if folded[column.lower()] > 1 else _ESCAPED) for column in columns]


def _with_escapes(name: str, escaped: re.Pattern[str]) -> str:
    safe = escaped.sub(_escape, name)
    if not safe:
        return "_x_"
    return f"_x{ord(safe[0]):x}_{safe[1:]}" if safe[0].isdigit() else safe


def namespace(schema: str, table: str) -> str:
    """The Avro namespace of a table's records: two Avro names joined by a dot, which neither of them contains.

    Logical messages have the schema "". Their name alone is the namespace.
    """
    if not schema:
        return avro_name(table)
    return f"{avro_name(schema)}.{avro_name(table)}"
