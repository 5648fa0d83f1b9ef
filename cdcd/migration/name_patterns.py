"""Regular expressions for the names of tables and columns, as Debezium takes them, to patterns of cdcd. Pure.

Before: `conversion` has the text of an option such as `table.include.list`.
After: the settings have patterns (`source.table_selection`), if the expressions say what patterns can say.
Source: Debezium, `io.debezium.function.Predicates`, `io.debezium.util.RegExSplitter`; Java, `java.util.regex.Pattern`.

An option has expressions separated by commas. Each matches a whole name, upper and lower case alike. `public.orders` is
the name, although its dot is any character for a regular expression; and so is `public.*` every table of the schema
public. `expand` understands this, alternatives, and expressions for any name or any one character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from string import ascii_letters, digits
from typing import Final

from cdcd.source.table_selection import TablePattern

PATTERNS_MAX: Final = 1_000
"""Alternatives of one expression."""
PATTERN_SIZE_MAX: Final = 1_000
"""Characters of one pattern: more than any three names have."""

_ANY: Final = (r".*", r".+", r"[^.]*", r"[^.]+", r"[^\.]*", r"[^\.]+", r"\w*", r"\w+")
"""Any name, or the rest of a name."""
_SET: Final = re.compile(r"\[[A-Za-z0-9_-]+\]")
_QUANTIFIERS: Final = "*+?{"

_PIECE: Final = re.compile(r"\[[^\]]*\]|.", re.DOTALL)
_FILLINGS: Final = ("a", "Z", "0", "_", "a_0")
_WORDS_MAX: Final = 16
SAMPLE: Final = ("q7zK", "w8yJ")
"""What stands for `*` in the schema and in the table of the first sample: no name is likely to hold it otherwise."""


def split_list(text: str) -> list[str]:
    """The expressions in a list: a comma with a backslash before it belongs to an expression."""
    return [part.strip().replace("\\,", ",") for part in re.split(r"(?<!\\),", text) if part.strip()]


def table_patterns(text: str) -> list[str] | None:
    """The list as patterns for tables, `schema.table`; None if patterns cannot say the same."""
    found: list[str] = []
    for expression in split_list(text):
        expanded = expand(expression)
        if expanded is None:
            return None
        for each in expanded:
            pattern = f"{each[:-1]}.*" if each.endswith("*") and "." not in each and each != "*" else each
            pattern = "*.*" if pattern == "*" else pattern
            if pattern.count(".") != 1 or not TablePattern(pattern).is_valid:
                return None
            found.append(pattern)
    return list(dict.fromkeys(found))


def column_patterns(text: str) -> list[tuple[str, str]] | None:
    """The list as pairs of a pattern for tables and the name of a column; None if these cannot say the same."""
    found: list[tuple[str, str]] = []
    for expression in split_list(text):
        expanded = expand(expression)
        if expanded is None:
            return None
        for each in expanded:
            table, _, column = each.rpartition(".")
            if each.count(".") != 2 or not column or set(column) & set("*?[") or not TablePattern(table).is_valid:
                return None
            found.append((table, column))
    return list(dict.fromkeys(found))


def schema_patterns(text: str) -> list[str] | None:
    """The list of schemas as patterns for their tables; None if these cannot say the same."""
    found: list[str] = []
    for expression in split_list(text):
        expanded = expand(expression)
        if expanded is None or any("." in each for each in expanded):
            return None
        found += [f"{each}.*" for each in expanded]
    return list(dict.fromkeys(found))


def may_overlap(tables: Iterable[str]) -> bool:
    """Whether two of the patterns may match one table: of entries of [[table]], only the first one would count."""
    distinct = [TablePattern(each) for each in dict.fromkeys(tables)]
    wild = [each for each in distinct if not each.names_one_table]
    return any(one is not other and _may_meet(one, other) for one in wild for other in distinct)


def _may_meet(one: TablePattern, other: TablePattern) -> bool:
    return all(map(_parts_may_meet, one.parts, other.parts))


def _parts_may_meet(one: str, other: str) -> bool:
    """Whether one name may match both; if both have wildcards, what stands before the first ones tells."""
    (before, is_wild), (other_before, other_is_wild) = (
        (re.split(r"[*?\[]", each)[0], bool(set(each) & set("*?["))) for each in (one, other)
    )
    if not is_wild:
        return fnmatchcase(one, other)
    if not other_is_wild:
        return fnmatchcase(other, one)
    return before.startswith(other_before) or other_before.startswith(before)


def samples(pattern: str, words: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Schemas and tables that a pattern matches: the table that it names, or some that differ as much as they can.

    `words`: text that tables may hold in place of `*`, besides a few others. Each character of a set is there. The
    first sample has SAMPLE in place of `*`.
    """
    found = TablePattern(pattern)
    if found.names_one_table:
        return [found.parts]
    fillings = [*_FILLINGS, *list(dict.fromkeys(words))[:_WORDS_MAX]]
    schemas, tables = (_filled(part, [first, *fillings]) for part, first in zip(found.parts, SAMPLE, strict=True))
    return [(schema, table) for schema in schemas for table in tables]


def _filled(part: str, fillings: Sequence[str]) -> list[str]:
    """Names that one part of a pattern matches."""
    choices = [_choices(piece, fillings) for piece in _PIECE.findall(part)]
    names = ("".join(each[at % len(each)] for each in choices) for at in range(max(map(len, choices))))
    return list(dict.fromkeys(names))


def _choices(piece: str, fillings: Sequence[str]) -> Sequence[str]:
    if piece == "*":
        return fillings
    if piece == "?" or piece.startswith("["):
        return [each for each in f"{ascii_letters}{digits}_" if fnmatchcase(each, piece)] or [piece]
    return [piece]


def expand(expression: str) -> list[str] | None:
    """The expression as patterns, one for each of its alternatives; None if patterns cannot say the same."""
    text = expression.removeprefix("^")
    if text.endswith("$") and not text.endswith("\\$"):
        text = text[:-1]
    try:
        result = _alternatives(text, 0)
    except RecursionError:  # groups in groups
        return None
    if result is None or result[1] != len(text):
        return None
    return result[0]


def _alternatives(text: str, at: int) -> tuple[list[str], int] | None:
    """The patterns from `at` on up to the end of the group, and where that is; None: there are none."""
    found: list[str] = []
    while True:
        sequence = _sequence(text, at)
        if sequence is None:
            return None
        found += sequence[0]
        at = sequence[1]
        if len(found) > PATTERNS_MAX:
            return None
        if text[at : at + 1] != "|":
            return found, at
        at += 1


def _sequence(text: str, at: int) -> tuple[list[str], int] | None:
    found = [""]
    while at < len(text) and text[at] not in "|)":
        part = _part(text, at)
        if part is None:
            return None
        pieces, at = part
        if len(found) * len(pieces) > PATTERNS_MAX or text[at : at + 1] in (*_QUANTIFIERS,):
            return None
        found = [before + piece for before in found for piece in pieces]
        if max(map(len, found)) > PATTERN_SIZE_MAX:
            return None
    return found, at


def _part(text: str, at: int) -> tuple[list[str], int] | None:
    """What one part of a sequence matches, and where it ends."""
    for spelled in _ANY:
        if text.startswith(spelled, at):
            end = at + len(spelled)
            return ["*"], end + (text[end : end + 1] == "?")
    character = text[at]
    if character == "(":
        start = at + (3 if text.startswith("(?:", at) else 1)
        group = _alternatives(text, start)
        if group is None or text[group[1] : group[1] + 1] != ")":
            return None
        return group[0], group[1] + 1
    if character == "[":
        found = _SET.match(text, at)
        return None if found is None else ([found[0]], found.end())
    if character == "\\":
        escaped = text[at + 1 : at + 2]
        if escaped == "d":
            return ["[0-9]"], at + 2
        return ([escaped], at + 2) if escaped in (".", "_", "-", "$") and escaped else None
    return ([character], at + 1) if character in ".-_" or character.isalnum() else None
