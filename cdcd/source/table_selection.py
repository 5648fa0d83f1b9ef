"""Which tables patterns select, in `source.tables` and in the arguments of every command. Pure.

Before: the settings or the command line have the patterns.
After: `publication` publishes the tables that match; the commands work on them.
Source: PostgreSQL, "Lexical Structure" (quoted identifiers); Python, `fnmatch`.

A pattern is `schema.table`:

- `*` stands for any characters, `?` for one, `[abc]` for one of these characters or for itself.
- A part in double quotes is a name, quoted as in SQL: `public."Order"`, `"a.b"."say ""hi"" twice"`. Wildcards in quotes
  are ordinary characters. No part is folded to lower case, with quotes or without.
- With several dots it is matched against the whole name: `a.b.c` is the table `c` of the schema `a.b`, and the table
  `b.c` of the schema `a`. An argument of a command may have no dot: `*` is every table.
- A name without double quotes matches itself, whatever other characters it has.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Final

from cdcd.errors import RequestRejected, SettingsError
from cdcd.source.identifiers import identifier

NAMES_MAX: Final = 10
"""So many tables are named in a line of the log."""

_QUOTED: Final = re.compile(r'"((?:[^"]|"")*)"')
_TOKEN: Final = re.compile(r'"(?:[^"]|"")*"|[^"]', re.DOTALL)
_WILDCARDS: Final = frozenset("*?[")
_PLAIN: Final = re.compile(r"[\w$-]+")


@dataclass(frozen=True)
class TablePattern:
    """One pattern. The constructor takes any text, as commands do; `parse` checks it, as the settings do."""

    text: str

    @classmethod
    def parse(cls, text: str) -> TablePattern:
        """A pattern of the settings. Raises SettingsError if `text` is not written as schema.table."""
        pattern = cls(text)
        if not pattern.is_valid:
            raise SettingsError(
                f"{text!r} is no table pattern",
                'Write schema.table, as in "public.*", "sales.order_*" or \'public."Order"\', in source.tables',
                code="setting-invalid",
            )
        return pattern

    def matches(self, schema: str, table: str) -> bool:
        """Whether the pattern matches this table."""
        name = f"{schema}.{table}"
        if "".join(self._tokens) != self.text:  # a quote does not end
            return self.text == name
        if self.text == name and '"' not in name:
            return True
        if self._parts is None:
            return _matches(self.text, name)
        return _matches(self._parts[0], schema) and _matches(self._parts[1], table)

    @cached_property
    def is_valid(self) -> bool:
        """Whether it is written as schema.table: it has a dot outside quotes, no part is empty, every quote ends."""
        if "".join(self._tokens) != self.text or '""' in self._tokens:
            return False
        return "." in self._tokens if self._parts is None else all(self._parts)

    @property
    def whole_schema(self) -> str | None:
        """The schema, if the pattern is `schema.*` for one schema; else None."""
        if self._parts is None or self._parts[1] != "*":
            return None
        schema = self._parts[0]
        return _QUOTED.sub(_unquoted, schema) if _WILDCARDS.isdisjoint(_TOKEN.findall(schema)) else None

    @property
    def names_one_table(self) -> bool:
        """Whether it is the name of one table: it has no wildcard outside quotes."""
        return _WILDCARDS.isdisjoint(self._tokens)

    @property
    def parts(self) -> tuple[str, str]:
        """The patterns of the schema and of the table; the whole pattern twice if its dots do not tell them."""
        return self._parts or (self.text, self.text)

    @property
    def wild_parts(self) -> tuple[bool, bool]:
        """Whether it matches more than one schema, and more than one table of a schema."""
        if self._parts is None:
            return not self.names_one_table, not self.names_one_table
        schema, table = (not _WILDCARDS.isdisjoint(_TOKEN.findall(part)) for part in self._parts)
        return schema, table

    @property
    def is_everything(self) -> bool:
        """Whether the pattern is `*.*`."""
        return self.text == "*.*"

    @cached_property
    def _tokens(self) -> list[str]:
        """The quoted parts, and the single characters outside. A quote that does not end is left out."""
        return _TOKEN.findall(self.text)

    @cached_property
    def _parts(self) -> tuple[str, str] | None:
        """The patterns of the schema and of the table, if the text has exactly one dot outside quotes."""
        if self._tokens.count(".") != 1:
            return None
        at = self._tokens.index(".")
        return "".join(self._tokens[:at]), "".join(self._tokens[at + 1 :])


def qualified_name(schema: str, table: str) -> str:
    """`schema.table`, as the pattern that matches this table and no other: with quotes only where they are needed.

    Logical messages have no schema: they are `.messages`.
    """
    return ".".join(part if not part or _PLAIN.fullmatch(part) else identifier(part) for part in (schema, table))


def count_and_names(tables: Iterable[tuple[str, str]]) -> str:
    """The number of tables (schema and name), and the names of the first ones, for a line of the log."""
    names = sorted(qualified_name(*table) for table in tables)
    more = [f"{len(names) - NAMES_MAX} more"] if len(names) > NAMES_MAX else []
    return f"{len(names)} ({', '.join([*names[:NAMES_MAX], *more])})" if names else "0"


def shell_word(name: str) -> str:
    """The pattern of a table, for a command that a person may paste into a shell. `name` is from `qualified_name`.

    The maker of a table chooses its name. A shell finds no meaning in single quotes, even where a log in JSON escapes
    the name. A quote inside the name, and all else that is no letter there, becomes a `?`.
    """
    if "'" in name:
        parts = (_QUOTED.sub(_unquoted, part) for part in _TOKEN.findall(name))
        name = "".join(part if part == "." else re.sub(r"\W", "?", part) for part in parts)
    return shlex.quote(name)


def settings_file_hint(word: str, command: str = "") -> str:
    """The hint if a person has given a file of settings as a word of `command`, such as a table; else empty."""
    given = f"{command} --config {shlex.quote(word)}".lstrip()
    return f"A file of settings goes behind --config: {given}" if word.endswith(".toml") else ""


def split_name(name: str) -> tuple[str, str]:
    """Schema and table of a name that `qualified_name` has made."""
    tokens = _TOKEN.findall(name)
    at = tokens.index(".")
    schema, table = (_QUOTED.sub(_unquoted, "".join(part)) for part in (tokens[:at], tokens[at + 1 :]))
    return schema, table


@dataclass(frozen=True)
class CandidateTable:
    """A table that can be published."""

    oid: int
    schema: str
    name: str
    root_oid: int | None
    """For a partition, the partitioned table at the top; None for any other table."""
    has_identity: bool
    """UPDATE and DELETE stay possible while it is published. For a partitioned table: on each of its partitions."""
    has_children: bool = False
    """Other tables inherit from it, which are no partitions. They are tables of their own."""
    is_partitioned: bool = False
    """Its rows lie in its partitions."""
    is_owned: bool = True
    """The role may publish it."""


def select_candidates(patterns: Sequence[TablePattern], tables: Iterable[CandidateTable]) -> list[CandidateTable]:
    """The tables that a pattern of `source.tables` matches. A partition is left out if its root matches, too."""
    selected = [table for table in tables if any(pattern.matches(table.schema, table.name) for pattern in patterns)]
    oids = {table.oid for table in selected}
    return [
        table
        for table in selected
        if table.root_oid is None or table.root_oid == table.oid or table.root_oid not in oids
    ]


def select_tables(
    words: Sequence[str], known: Iterable[tuple[str, str]], not_found: Callable[[str], str], listing_command: str
) -> list[tuple[str, str]]:
    """The tables of `known` (schema, name) that a word matches, in their order; without words, all tables.

    Raises RequestRejected, with the message `not_found(word)`, for a word that matches no table. The hint has the
    nearest name, or else `listing_command`.
    """
    tables = list(known)
    patterns = [TablePattern(word) for word in words]
    for pattern in patterns:
        if not any(pattern.matches(*table) for table in tables):
            nearest = nearest_table(pattern, tables)
            hint = f"Did you mean {shell_word(nearest)}?" if nearest else f"To see the tables, run: {listing_command}"
            hint = settings_file_hint(pattern.text) or hint
            raise RequestRejected(not_found(pattern.text), hint, code="tables-missing")
    return [table for table in tables if not words or any(pattern.matches(*table) for pattern in patterns)]


def select_published(
    words: Sequence[str], published: Iterable[tuple[str, str]], publication: str
) -> list[tuple[str, str]]:
    """As `select_tables`, for the tables of a publication."""
    return select_tables(
        words, published, lambda word: f"the publication {publication} has no table {word}", "cdcd schema"
    )


def nearest_table(pattern: TablePattern, tables: Iterable[tuple[str, str]]) -> str | None:
    """The table that is most like a pattern that matches none of them, as a pattern; None: none is like it."""
    names = {f"{schema}.{name}": qualified_name(schema, name) for schema, name in tables}
    nearest = get_close_matches(pattern.text, names, n=1)
    return names[nearest[0]] if nearest else None


def _matches(pattern: str, name: str) -> bool:
    """Whether a pattern, or a part of one, matches a name. Brackets are a set of characters, or ordinary ones."""
    return any(_expression(pattern, brackets).fullmatch(name) for brackets in ("[", "[[]"))


@lru_cache(maxsize=1024)
def _expression(pattern: str, brackets: str) -> re.Pattern[str]:
    """A regular expression. `brackets` replaces each opening bracket outside quotes."""
    texts = re.split(r'("(?:[^"]|"")*")', pattern)
    # `translate` ends each expression with \Z, which is cut off here.
    return re.compile(
        "".join(
            re.escape(_QUOTED.sub(_unquoted, text)) if at % 2 else translate(text.replace("[", brackets))[:-2]
            for at, text in enumerate(texts)
        )
    )


def _unquoted(quoted: re.Match[str]) -> str:
    return quoted[1].replace('""', '"')
