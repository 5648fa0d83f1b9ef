"""The publication: what the server lets into the stream. Found as it is, or made for table patterns.

Before: `source.publication` and `source.tables`. After: `walsender.start` names it; preflight and snapshot ask for its
tables.
Source: PostgreSQL, "CREATE PUBLICATION", versions 14 to 18.

How it is made for patterns, the first that the role is allowed:

1. `FOR ALL TABLES` for `*.*`, `FOR TABLES IN SCHEMA` (PostgreSQL 15) for `schema.*`: a superuser's; new tables join.
2. `FOR TABLE a, b, ...`: the owner's. Tables made later must be added.

A published table without a replica identity refuses UPDATE and DELETE *to the application*: nothing is made that would
do so, unless the caller accepts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from psycopg import sql

from cdcd.errors import RequestRejected, SettingsError
from cdcd.source.session import Session, SessionClient, StatementRejected

Composed: TypeAlias = sql.SQL | sql.Composed

INSUFFICIENT_PRIVILEGE: Final = "42501"
MADE_ALREADY: Final = frozenset({"42710", "23505"})
"""duplicate_object; unique_violation, where another session made it at the very same moment."""

_PART: Final = r'(?:"(?:[^"]|"")+"|[^".\s]+)'
_PATTERN: Final = re.compile(rf"({_PART})\.({_PART})")


@dataclass(frozen=True)
class TablePattern:
    """`schema.table`: `*` stands for any characters, `?` for one; a part in double quotes is taken as it is."""

    schema: str
    table: str

    @classmethod
    def parse(cls, text: str) -> TablePattern:
        """Read a pattern; raises SettingsError if it is none."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise SettingsError(
                f"{text!r} is no table pattern",
                'Write schema.table, as in "public.*" or "sales.order_*", in source.tables',
            )
        return cls(match[1], match[2])

    def matches(self, schema: str, table: str) -> bool:
        """Whether it stands for this table."""
        return bool(_expression(self.schema).fullmatch(schema) and _expression(self.table).fullmatch(table))

    @property
    def whole_schema(self) -> str | None:
        """The schema whose every table it stands for; None if it is any other pattern."""
        if self.table != "*" or (not self.schema.startswith('"') and re.search(r"[*?]", self.schema)):
            return None
        return _unquoted(self.schema)

    @property
    def everything(self) -> bool:
        """Whether it stands for all tables."""
        return self.schema == "*" and self.table == "*"


@dataclass(frozen=True)
class PublicationState:
    """One row of `pg_publication`: which tables and which operations it publishes."""

    name: str
    all_tables: bool
    insert: bool
    update: bool
    delete: bool
    truncate: bool
    via_root: bool


@dataclass(frozen=True)
class PublishedTable:
    """A table as the stream will show it. `row_filter`: SQL, empty if all rows are published."""

    oid: int
    schema: str
    name: str
    columns: tuple[str, ...]
    row_filter: str
    has_identity: bool
    """Whether UPDATE and DELETE are possible while it is published."""


@dataclass(frozen=True)
class CreatedPublication:
    """A publication just made, and by what. `follows`: new tables of its schemas join by themselves."""

    statement: str
    follows: bool


class Publication(SessionClient):
    """A publication by name, seen through an ordinary connection. Errors as `Session` names them."""

    def __init__(self, source: str | Session, name: str) -> None:
        """`source`: a DSN, or a session shared with others."""
        super().__init__(source)
        self.name = name

    def state(self) -> PublicationState | None:
        """Read the publication; None if there is none of that name."""
        rows = self.session.rows(_STATE, [self.name])
        return PublicationState(*rows[0]) if rows else None

    def exists(self) -> bool:
        """Whether there is one of that name."""
        return self.state() is not None

    def tables(self) -> list[PublishedTable]:
        """The tables it publishes now, by name: partitions, not their root, unless it publishes via the root."""
        modern = self.session.server_version >= 150_000
        query = _TABLES.format(
            columns=sql.SQL("a.attname = ANY(p.attnames)" if modern else "a.attgenerated = ''"),
            row_filter=sql.SQL("p.rowfilter" if modern else "NULL"),
            has_identity=_has_identity("c"),
        )
        return [
            PublishedTable(oid, schema, name, tuple(columns or ()), row_filter or "", has_identity)
            for oid, schema, name, columns, row_filter, has_identity in self.session.rows(query, [self.name])
        ]

    def create(self, patterns: Sequence[str], *, accept_without_identity: bool = False) -> CreatedPublication | None:
        """Make it for the tables that `patterns` stand for; None if another made it at the same moment.

        Raises RequestRejected, with the SQL that cures it, if the role may not, if no table matches, or if a matching
        table has no replica identity: unless `accept_without_identity`, for tables that only ever see INSERT.
        """
        wanted = [TablePattern.parse(pattern) for pattern in patterns]
        chosen = self._matching(wanted)
        blind = [table for table, has_identity in chosen if not has_identity]
        if blind and not accept_without_identity:
            raise RequestRejected(
                f"{'a table has' if len(blind) == 1 else f'{len(blind)} of the tables have'} no replica identity "
                f"({_names(blind)}): once published, every UPDATE and DELETE would be refused",
                "Give each a primary key, or run "
                + "; ".join(self._text(_FULL.format(sql.Identifier(*table))) for table in blind[:5])
                + ("; and so on" if len(blind) > 5 else "")
                + "; or leave them out of source.tables",
            )
        tables = [table for table, _ in chosen]
        attempts = self._statements(wanted, tables)
        if not attempts:
            raise RequestRejected(
                f"no table matches {', '.join(patterns)}",
                f"Make the tables first, or name others in source.tables, or make the publication yourself: "
                f"{self._text(_CREATE.format(sql.Identifier(self.name), sql.SQL('FOR TABLE ...')))}",
            )
        return self._make(attempts)

    def _make(self, attempts: list[tuple[Composed, bool]]) -> CreatedPublication | None:
        denied: StatementRejected | None = None
        for statement, follows in attempts:
            try:
                self.session.rows(statement)
            except StatementRejected as error:
                if error.sqlstate in MADE_ALREADY:
                    return None
                if error.sqlstate != INSUFFICIENT_PRIVILEGE:
                    raise
                denied = error
            else:
                return CreatedPublication(self._text(statement), follows)
        # What new tables join by themselves only a superuser may make; a list of tables their owner, too.
        whole = [self._text(statement) for statement, follows in attempts if follows]
        listed = [self._text(statement) for statement, follows in attempts if not follows]
        cures = [f"Let a superuser run: {statement}" for statement in whole]
        cures += [f"Let the tables' owner (with CREATE on the database) run: {statement}" for statement in listed]
        raise RequestRejected(
            f'the role may not make the publication "{self.name}": {denied.message if denied else "permission denied"}',
            "; or: ".join(cures),
        )

    def _matching(self, patterns: Iterable[TablePattern]) -> list[tuple[tuple[str, str], bool]]:
        """The tables that match, with whether they have a replica identity; a partition goes with its root."""
        rows = self.session.rows(
            _CANDIDATES.format(has_identity=_has_identity("c"), leaf_has_identity=_has_identity("leaf"))
        )
        chosen = [row for row in rows if any(pattern.matches(row[1], row[2]) for pattern in patterns)]
        oids = {row[0] for row in chosen}
        return [
            ((schema, name), has_identity)
            for oid, schema, name, root, has_identity in chosen
            if root is None or root == oid or root not in oids
        ]

    def _statements(
        self, patterns: Sequence[TablePattern], tables: Sequence[tuple[str, str]]
    ) -> list[tuple[Composed, bool]]:
        """What to try, best first, each with whether new tables join."""
        attempts: list[tuple[Composed, bool]] = []
        name = sql.Identifier(self.name)
        schemas = {pattern.whole_schema for pattern in patterns} - {None}
        if any(pattern.everything for pattern in patterns):
            attempts.append((_CREATE.format(name, sql.SQL("FOR ALL TABLES")), True))
        elif schemas and self.session.server_version >= 150_000 and self._have(schemas):
            whole = _list(sql.Identifier(schema) for schema in sorted(filter(None, schemas)))
            parts: list[Composed] = [_IN_SCHEMA.format(whole)]
            if others := [table for table in tables if table[0] not in schemas]:
                parts.append(_FOR_TABLE.format(_list(sql.Identifier(*table) for table in others)))
            attempts.append((_CREATE.format(name, sql.SQL("FOR ") + _list(parts)), True))
        if tables:
            listed = _FOR_TABLE.format(_list(sql.Identifier(*table) for table in tables))
            attempts.append((_CREATE.format(name, sql.SQL("FOR ") + listed), False))
        return attempts

    def _have(self, schemas: set[str | None]) -> bool:
        [(count,)] = self.session.rows(_SCHEMAS, [sorted(filter(None, schemas))])
        return bool(count == len(schemas))

    def _text(self, statement: Composed) -> str:
        return statement.as_string(None)


def publication_names(names: Iterable[str]) -> str:
    """The value of pgoutput's option `publication_names`: identifiers, quoted, so that none is folded or split."""
    return ",".join(sql.Identifier(name).as_string(None) for name in names)


_STATE: Final = """
    SELECT pubname, puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot
    FROM pg_catalog.pg_publication WHERE pubname = %s
"""

# Replica identity: f full, i an index, d the primary key if there is one, n nothing.
_HAS_IDENTITY: Final = sql.SQL("""
    ({of}.relreplident = 'f' OR EXISTS (
        SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = {of}.oid AND i.indimmediate
        AND CASE {of}.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END))
""")

_TABLES: Final = sql.SQL("""
    SELECT c.oid, n.nspname, c.relname,
           (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND {columns}),
           {row_filter}, {has_identity}
    FROM pg_catalog.pg_publication_tables p
    JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname
    JOIN pg_catalog.pg_class c ON c.relname = p.tablename AND c.relnamespace = n.oid
    WHERE p.pubname = %s
    ORDER BY 2, 3
""")

# Tables that can be published: ordinary and partitioned, permanent, not the system's and not an extension's.
# Of a partitioned table the partitions count, for it is they that hold the rows.
_CANDIDATES: Final = sql.SQL("""
    SELECT c.oid, n.nspname, c.relname, CASE WHEN c.relispartition THEN pg_catalog.pg_partition_root(c.oid)::oid END,
           CASE WHEN c.relkind = 'r' THEN {has_identity} ELSE NOT EXISTS (
               SELECT FROM pg_catalog.pg_partition_tree(c.oid) t JOIN pg_catalog.pg_class leaf ON leaf.oid = t.relid
               WHERE t.isleaf AND leaf.relkind = 'r' AND NOT {leaf_has_identity}) END
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
      AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
                      AND d.objid = c.oid AND d.deptype = 'e')
    ORDER BY 2, 3
""")

_SCHEMAS: Final = "SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = ANY(%s)"
_CREATE: Final = sql.SQL("CREATE PUBLICATION {} {}")
_IN_SCHEMA: Final = sql.SQL("TABLES IN SCHEMA {}")
_FOR_TABLE: Final = sql.SQL("TABLE {}")
_FULL: Final = sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL")


def _has_identity(alias: str) -> sql.Composed:
    return _HAS_IDENTITY.format(of=sql.Identifier(alias))


def _list(parts: Iterable[sql.Composable]) -> sql.Composed:
    joined: sql.Composed = sql.SQL(", ").join(parts)
    return joined


def _names(tables: Sequence[tuple[str, str]]) -> str:
    return ", ".join(".".join(table) for table in tables[:5]) + (", ..." if len(tables) > 5 else "")


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def _expression(part: str) -> re.Pattern[str]:
    if part.startswith('"'):
        return re.compile(re.escape(_unquoted(part)))
    return re.compile(re.escape(part).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)
