"""Avro names for PostgreSQL's: injective, so that no two tables or columns ever share one.

After: `schema` names records and fields by it, and keeps the original as a property where it differs.
Source: Apache Avro specification, "Names"; Spark resolves column names without regard to case.

An Avro name matches `[A-Za-z_][A-Za-z0-9_]*`. Any other character becomes `_xH_`, H its code point in lower-case hex,
as does a leading digit, and an underscore that would otherwise seem to start such an escape. Within a table,
a name with capitals that differs from another one in nothing but case has its capitals escaped too: Spark could not
tell them apart.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_ESCAPE_LIKE = re.compile(r"_(?=[xX][0-9a-fA-F]+[^A-Za-z0-9])")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_]")
_CAPITAL = re.compile(r"[A-Z]")


def _escape(match: re.Match[str]) -> str:
    return f"_x{ord(match.group()):x}_"


def avro_name(name: str) -> str:
    """The Avro name of one PostgreSQL identifier; "" (which PostgreSQL does not allow) becomes `_x_`."""
    safe = _FORBIDDEN.sub(_escape, _ESCAPE_LIKE.sub("_x5f_", name))
    if not safe:
        return "_x_"
    return f"_x{ord(safe[0]):x}_{safe[1:]}" if safe[0].isdigit() else safe


def field_names(columns: Sequence[str]) -> list[str]:
    """The Avro field names of a table's columns, in their order; no two alike even without regard to case."""
    folded = Counter(column.lower() for column in columns)
    return [
        _CAPITAL.sub(_escape, avro_name(column)) if folded[column.lower()] > 1 else avro_name(column)
        for column in columns
    ]


def namespace(schema: str, table: str) -> str:
    """The Avro namespace of a table's records: two names joined by a dot, which neither of them contains.

    What is no table has the schema "": its name alone is the namespace.
    """
    if not schema:
        return avro_name(table)
    return f"{avro_name(schema)}.{avro_name(table)}"
