"""Names and strings as SQL writes them. Pure.

Before: names as they are in the catalog or in the settings.
After: statements, replication commands, pgoutput's options, and the SQL in hints.
Source: PostgreSQL, "Lexical Structure"; repl_scanner.l, the grammar of the replication commands.

Both grammars take these forms. The replication commands know no E'...' string, and a backslash is an ordinary character
there. So psycopg's Literal, which writes E'...' for a backslash, would not do.
"""

from __future__ import annotations

from collections.abc import Iterable

from cdcd.errors import RequestRejected


def identifier(*names: str) -> str:
    """`names` in double quotes, with dots between them. Raises RequestRejected for a zero byte."""
    return ".".join('"' + _without_zero_byte(name).replace('"', '""') + '"' for name in names)


def literal(value: str) -> str:
    """`value` in single quotes. Raises RequestRejected for a zero byte."""
    return "'" + _without_zero_byte(value).replace("'", "''") + "'"


def publication_names(names: Iterable[str]) -> str:
    """The value of pgoutput's option `publication_names`: quoted, so that the server folds and splits none."""
    return ",".join(identifier(name) for name in names)


def _without_zero_byte(text: str) -> str:
    if "\0" in text:
        raise RequestRejected("a name or option for PostgreSQL holds a zero byte", "Remove it")
    return text
