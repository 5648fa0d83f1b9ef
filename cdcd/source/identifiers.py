"""Quotes names and strings for SQL. Pure.

Before: names as they are in the catalog or in the settings.
After: statements, replication commands, pgoutput's options, and the SQL in hints.
Source: PostgreSQL, "Lexical Structure"; repl_scanner.l, the grammar of the replication commands.

SQL and the replication commands have grammars of their own, and both take these forms. The replication commands have no
E'...' strings: a backslash is an ordinary character there. So psycopg's Literal, which writes E'...' for a backslash,
does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable

from cdcd.errors import RequestRejected


def identifier(*names: str) -> str:
    """`names` in double quotes, joined by dots. Raises RequestRejected for a zero byte."""
    return ".".join('"' + _without_zero_byte(name).replace('"', '""') + '"' for name in names)


def literal(value: str) -> str:
    """`value` in single quotes. Raises RequestRejected for a zero byte."""
    return "'" + _without_zero_byte(value).replace("'", "''") + "'"


def publication_names(names: Iterable[str]) -> str:
    """The value of pgoutput's option `publication_names`. The quotes keep capitals, and commas inside a name."""
    return ",".join(identifier(name) for name in names)


def _without_zero_byte(text: str) -> str:
    if "\0" in text:
        raise RequestRejected("a name or option for PostgreSQL holds a zero byte", "Remove it", code="setting-invalid")
    return text
