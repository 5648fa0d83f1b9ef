"""What a publication has, what the settings ask for, and the statements that make the one of the other. Pure.

Before: `publication` has asked the catalog; the settings say what they ask for.
After: `publication` runs the statements where cdcd owns the publication; `cdcd check` prints them.
Source: PostgreSQL, "ALTER PUBLICATION", "COMMENT", versions 14 to 18.

cdcd writes into the comment of a publication what it has put there, and for which slot, in the transaction of the
statement. It alters the publication only while comment and catalog agree: what a person has changed stays as it is.
Tables are known by their OIDs, so a renamed table is the same one, and a dropped one is no change by a person.

The publication of a whole schema lists the tables of today, too. So a table has the same entry before and after the
schema leaves the publication (`incarnations`): it needs no new snapshot then.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from cdcd.source.identifiers import identifier, literal
from cdcd.source.table_selection import CandidateTable, TablePattern, select_candidates

FIRST_WORDS: Final = "cdcd alters this publication as its settings ask, until somebody else does"


@dataclass(frozen=True)
class PublishedOperations:
    """Which operations a publication publishes."""

    updates: bool
    deletes: bool
    inserts: bool = True
    truncates: bool = True

    @property
    def words(self) -> tuple[str, ...]:
        """The operations as the option `publish` names them, in PostgreSQL's order."""
        found = {
            "insert": self.inserts,
            "update": self.updates,
            "delete": self.deletes,
            "truncate": self.truncates,
        }
        return tuple(word for word, is_published in found.items() if is_published)


EVERYTHING: Final = PublishedOperations(updates=True, deletes=True)


def operations_of(words: Collection[str]) -> PublishedOperations:
    """The operations with these words of the option `publish`."""
    return PublishedOperations("update" in words, "delete" in words, "insert" in words, "truncate" in words)


@dataclass(frozen=True)
class AskedPublication:
    """What the settings ask for."""

    tables: Sequence[str]
    """Patterns of tables."""
    exclude: Sequence[str] = ()
    """Patterns of tables that are left out all the same, with their partitions."""
    operations: PublishedOperations = EVERYTHING
    via_root: bool = False
    """Partitioned tables are published as one table: `publish_via_partition_root`."""
    slot: str = ""
    """The slot whose daemon alters the publication; empty: none does."""

    @cached_property
    def patterns(self) -> list[TablePattern]:
        """The patterns of `tables`. Raises SettingsError if one is not written as schema.table."""
        return [TablePattern.parse(text) for text in self.tables]

    @cached_property
    def _excluded(self) -> list[TablePattern]:
        return [TablePattern.parse(text) for text in self.exclude]

    @property
    def is_everything(self) -> bool:
        """All tables are asked for, with those to come."""
        return not self.exclude and any(pattern.is_everything for pattern in self.patterns)

    @property
    def whole_schemas(self) -> set[str]:
        """The schemas that are asked for as a whole, with the tables to come. PostgreSQL leaves no table out there."""
        return {name for each in self.patterns if (name := each.whole_schema) is not None and not self.exclude}

    def has(self, table: CandidateTable, root: CandidateTable | None) -> bool:
        """Whether a table is asked for, itself or by the partitioned table at its top."""
        if root is not None and root.oid != table.oid and self.has(root, None):
            return True
        names = [(each.schema, each.name) for each in (table, root) if each is not None]
        return _match(self.patterns, names[:1]) and not _match(self._excluded, names)

    def select(self, candidates: Sequence[CandidateTable]) -> list[CandidateTable]:
        """The tables of today that are asked for. A partition is left out if its root is asked for, or excluded."""
        left_out = {table.oid for table in candidates if _match(self._excluded, [(table.schema, table.name)])}
        left = [table for table in candidates if not {table.oid, table.root_oid} & left_out]
        return select_candidates(self.patterns, left)

    def options(self, now: PublicationContents | None = None) -> list[str]:
        """The options that `now` has otherwise, as CREATE and ALTER PUBLICATION take them; None: the defaults."""
        operations, via_root = (EVERYTHING, False) if now is None else (now.operations, now.via_root)
        found = [] if self.operations == operations else [f"publish = '{', '.join(self.operations.words)}'"]
        if self.via_root != via_root:
            found.append(f"publish_via_partition_root = {str(self.via_root).lower()}")
        return found


@dataclass(frozen=True)
class PublicationContents:
    """What a publication has. Tables and schemas are OIDs. The table of requests is left out."""

    operations: PublishedOperations
    via_root: bool
    is_everything: bool = False
    """FOR ALL TABLES."""
    schemas: frozenset[int] = frozenset()
    tables: frozenset[int] = frozenset()
    """The tables that are listed."""

    @property
    def covers_new(self) -> bool:
        """It has tables that are made later, too."""
        return self.is_everything or bool(self.schemas)

    def comment(self, slot: str) -> str:
        """The comment that says that the daemon of `slot` has put this there."""
        document = {
            "slot": slot,
            "publish": self.operations.words,
            "via_root": self.via_root,
            "everything": self.is_everything,
            "schemas": sorted(self.schemas),
            "tables": sorted(self.tables),
        }
        return f"{FIRST_WORDS}: {json.dumps(document)}"


def _written(comment: str) -> tuple[str, PublicationContents | None]:
    """The slot to whose daemon a comment gives the publication, and what that has put there; empty, None: no comment
    of cdcd, or one with the slot alone.
    """
    try:
        document = json.loads(comment[comment.index("{") :])
        slot = str(document["slot"])
        if len(document) == 1:
            return slot, None
        return slot, PublicationContents(
            operations_of(document["publish"]),
            bool(document["via_root"]),
            bool(document["everything"]),
            frozenset(map(int, document["schemas"])),
            frozenset(map(int, document["tables"])),
        )
    except (ValueError, TypeError, KeyError, RecursionError):  # somebody else has written it
        return "", None


@dataclass(frozen=True)
class ListedTable:
    """A table that a publication lists."""

    oid: int
    schema: str
    name: str
    has_children: bool = False
    is_partitioned: bool = False
    is_qualified: bool = False
    """It has a row filter or a list of columns there: somebody else than cdcd has listed it."""


@dataclass(frozen=True)
class FoundPublication:
    """A publication as it is now, and what cdcd may do about it."""

    contents: PublicationContents
    comment: str = ""
    is_owned: bool = False
    """The role may alter it, on this server."""
    may_add_schemas: bool = False
    """The role is a superuser, and the server has FOR TABLES IN SCHEMA."""
    listed: Sequence[ListedTable] = ()
    schema_oids: Mapping[str, int] = field(default_factory=dict)
    """All schemas, by name."""
    existing: Collection[int] = ()
    """The OIDs of `commented_tables` that are tables still."""

    @property
    def commented_tables(self) -> list[int]:
        """The OIDs of the tables that its comment names."""
        _, written = _written(self.comment)
        return [] if written is None else sorted(written.tables)

    def is_given_to(self, slot: str) -> bool:
        """Whether its comment gives it to the daemon of `slot`."""
        return bool(slot) and _written(self.comment)[0] == slot

    def is_followed_by(self, slot: str) -> bool:
        """Whether the daemon of `slot` alters it: nobody else has changed it since."""
        _, written = _written(self.comment)
        if not (self.is_owned and self.is_given_to(slot)) or any(table.is_qualified for table in self.listed):
            return False
        if written is None:
            return True
        now, schemas = self.contents, self.schema_oids.values()
        # What was dropped since is no change by a person.
        left = replace(
            written,
            schemas=written.schemas - (written.schemas - now.schemas).difference(schemas),
            tables=written.tables - (written.tables - now.tables).difference(self.existing),
        )
        return now == left


@dataclass(frozen=True)
class PublicationChange:
    """What makes a publication what the settings ask for."""

    statements: Sequence[str] = ()
    """In their order; the last one writes the comment. Empty: nothing is to be done, or nothing can be."""
    added: Sequence[CandidateTable] = ()
    taken_out: Sequence[ListedTable] = ()
    bare: Sequence[CandidateTable] = ()
    """Asked for, and not added: PostgreSQL would refuse updates of these, because they have no replica identity."""
    foreign: Sequence[CandidateTable] = ()
    """Asked for, and not added: the role does not own them."""
    needs_new_one: bool = False
    """It stays as it is: PostgreSQL takes no table out of all tables, or no table that is asked for can be added."""


def publication_change(
    name: str, asked: AskedPublication, found: FoundPublication, candidates: Sequence[CandidateTable]
) -> PublicationChange:
    """The change of the publication `name`. `candidates`: every table that can be published."""
    now, selected = found.contents, asked.select(candidates)
    if now.is_everything:
        if not asked.is_everything or asked.via_root != now.via_root:
            return PublicationChange(needs_new_one=True)
        return _statements(name, asked, found, PublicationContents(asked.operations, now.via_root, is_everything=True))
    oids = found.schema_oids
    wanted_schemas = {oids[schema] for schema in asked.whole_schemas if schema in oids}
    schemas = frozenset(wanted_schemas if found.may_add_schemas else wanted_schemas & now.schemas)
    missing = [table for table in selected if table.oid not in now.tables]
    needs_identity = asked.operations.updates or asked.operations.deletes
    bare = [table for table in missing if needs_identity and not table.has_identity]
    left = {table.oid for table in bare}
    foreign = [table for table in missing if not table.is_owned and table.oid not in left]
    left |= {table.oid for table in foreign}
    added = [table for table in missing if table.oid not in left]
    tables = frozenset(table.oid for table in selected if table.oid not in left)
    if not (tables or schemas):
        return PublicationChange(bare=bare, foreign=foreign, needs_new_one=True)
    target = PublicationContents(asked.operations, asked.via_root, False, schemas, tables)
    return replace(_statements(name, asked, found, target, added), bare=bare, foreign=foreign)


def _statements(
    name: str,
    asked: AskedPublication,
    found: FoundPublication,
    target: PublicationContents,
    added: Sequence[CandidateTable] = (),
) -> PublicationChange:
    now, names = found.contents, {oid: schema for schema, oid in found.schema_oids.items()}
    taken_out = [table for table in found.listed if table.oid not in target.tables]
    alter = f"ALTER PUBLICATION {identifier(name)}"
    options, out = asked.options(now), [*taken_out]
    back: list[ListedTable] = []
    schemas_out, schemas_in = now.schemas - target.schemas, target.schemas - now.schemas
    if target.via_root != now.via_root:
        # Another name has the rows from now on. With new entries, no kill hides that from the daemon.
        back = [table for table in found.listed if table.is_partitioned and table.oid in target.tables]
        out += back
        schemas_out, schemas_in = now.schemas, target.schemas
    statements = []
    if options:
        statements.append(f"{alter} SET ({', '.join(options)})")
    if out:
        statements.append(f"{alter} DROP {listed_tables(out)}")
    if schemas_out:
        statements.append(f"{alter} DROP {tables_in_schemas(names[oid] for oid in sorted(schemas_out))}")
    if added or back:
        statements.append(f"{alter} ADD {listed_tables([*added, *back])}")
    if schemas_in:
        statements.append(f"{alter} ADD {tables_in_schemas(names[oid] for oid in sorted(schemas_in))}")
    comment = target.comment(asked.slot)
    if comment != found.comment:
        statements.append(comment_statement(name, comment))
    return PublicationChange(statements, added, taken_out)


def given(publication: str, slot: str) -> str:
    """The statement by which the owner of a publication gives it to the daemon of `slot`, as it is."""
    return comment_statement(publication, f"{FIRST_WORDS}: {json.dumps({'slot': slot})}")


def comment_statement(publication: str, comment: str) -> str:
    """The statement that gives a publication its comment."""
    return f"COMMENT ON PUBLICATION {identifier(publication)} IS {literal(comment)}"


def creation_statement(
    publication: str, tables: Sequence[CandidateTable], asked: AskedPublication | None = None
) -> str:
    """The statement that makes the publication for exactly these tables, for their owner.

    `asked` has the options.
    """
    return created_for(publication, listed_tables(tables) if tables else "TABLE ...", asked)


def created_for(publication: str, target: str, asked: AskedPublication | None = None) -> str:
    """The statement that makes the publication FOR `target`, with the options of `asked`."""
    options = asked.options() if asked else []
    return f"CREATE PUBLICATION {identifier(publication)} FOR {target}" + (
        f" WITH ({', '.join(options)})" if options else ""
    )


def made_anew(publication: str, asked: AskedPublication, candidates: Sequence[CandidateTable], slot: str = "") -> str:
    """The statements that drop the publication and make it as asked; `slot`: they give it to the daemon of this slot.

    They are one transaction. PostgreSQL could never send a change that was made while there was no publication.
    """
    selected = asked.select(candidates)
    if asked.is_everything:
        made = created_for(publication, "ALL TABLES", asked)
    else:
        made = creation_statement(publication, selected, asked)
    comment = [given(publication, slot)] if slot else []
    return "; ".join(["BEGIN", f"DROP PUBLICATION {identifier(publication)}", made, *comment, "COMMIT"])


def listed_tables(tables: Sequence[CandidateTable | ListedTable]) -> str:
    """The tables as CREATE and ALTER PUBLICATION name them.

    Without ONLY, PostgreSQL would publish the tables that inherit from one of these, too.
    """
    names = (f"{'ONLY ' if table.has_children else ''}{identifier(table.schema, table.name)}" for table in tables)
    return f"TABLE {', '.join(names)}"


def tables_in_schemas(schemas: Iterable[str]) -> str:
    """Whole schemas as CREATE and ALTER PUBLICATION name them."""
    return f"TABLES IN SCHEMA {', '.join(map(identifier, schemas))}"


def _match(patterns: Sequence[TablePattern], names: Sequence[tuple[str, str]]) -> bool:
    return any(pattern.matches(*name) for pattern in patterns for name in names)
