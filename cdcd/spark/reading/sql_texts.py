"""Texts in Spark SQL, which a session must not read as other ones.

Before: texts from everywhere, such as keys of rows. After: the modules that write SQL.
Source: Spark SQL, "Literals" and "Configuration" (`spark.sql.variable.substitute`, `escapedStringLiterals`).

Spark puts a variable's value for `${variable}` in all statements, also inside of literals. Backslashes escape, but not
in a session with `escapedStringLiterals`.
"""

from __future__ import annotations

import re
from typing import Final

_SPECIAL: Final = re.compile(r"[\\'$]")


def sql_text(text: str) -> str:
    """A text as a value: a literal, or bytes if a session may read the literal as another text."""
    return f"'{text}'" if plain_start(text) == text else f"cast(X'{text.encode().hex()}' AS string)"


def plain_start(text: str) -> str:
    """The characters before the first one that has a meaning in a literal."""
    return _SPECIAL.split(text, maxsplit=1)[0]


def sql_literal(text: str) -> str:
    """A text where SQL takes nothing but a literal, as in LOCATION."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "$\\{") + "'"
