"""Judges whether the publication has the tables that `source.tables` asks for, and whether these exist. Pure.

Before: `postgres_facts` has asked the server.
After: `postgres` passes the findings on.

While there is no publication, a name without a table is an error: cdcd would make a publication without it. Once there
is one, it streams what it has. DROP TABLE must not keep the daemon from its next start, so every difference is a
warning then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cdcd.preflight.findings import Finding, error, warning
from cdcd.preflight.postgres_facts import PostgresFacts
from cdcd.source.identifiers import identifier
from cdcd.source.publication import listed_tables
from cdcd.source.table_selection import (
    CandidateTable,
    TablePattern,
    nearest_table,
    qualified_name,
    select_candidates,
)

TABLES_SHOWN: Final = 20
"""At most so many tables are named in a hint."""


def judge(facts: PostgresFacts, publication: str, asked: Sequence[str]) -> Iterator[Finding]:
    """The findings about the patterns `asked`, which the publication is to fulfil."""
    patterns = [TablePattern(text) for text in asked]
    selected = select_candidates(patterns, facts.candidates)
    yield from _unmatched(facts, patterns if selected else [each for each in patterns if each.names_one_table])
    if facts.publication is None or not patterns:
        return
    names = set(facts.tables)
    published = [table for table in facts.candidates if (table.schema, table.name) in names]
    if lacking := _without(selected, published):
        yield _lacking(publication, lacking, facts.candidates)
    roots = {table.oid: table for table in facts.candidates if table.is_partitioned}
    unasked = [
        qualified_name(table.schema, table.name)
        for table in published
        if not any(
            pattern.matches(each.schema, each.name)
            for pattern in patterns
            for each in (table, roots.get(table.root_oid or 0, table))
        )
    ]
    if unasked:
        yield warning(
            "tables",
            f"The publication {publication} has {_first(unasked)}, which source.tables does not name: cdcd streams it",
            "An existing publication is used as it is. Take the table out of it, or name it in source.tables",
            code="publication-incomplete",
        )


def _unmatched(facts: PostgresFacts, patterns: Sequence[TablePattern]) -> Iterator[Finding]:
    names = [(table.schema, table.name) for table in facts.candidates]
    published = [] if facts.publication is None else facts.tables  # it may have tables of extensions, too
    for pattern in patterns:
        if any(pattern.matches(*name) for name in published) or any(pattern.matches(*name) for name in names):
            continue
        is_fatal = facts.publication is None and pattern.names_one_table
        other = next((kind for schema, name, kind in facts.other_relations if pattern.matches(schema, name)), None)
        nearest = nearest_table(pattern, names)
        message = f"source.tables names {pattern.text}, and there is no such table"
        hint = f"Did you mean {nearest}?" if nearest else "Make the table first, or correct source.tables"
        if other is not None:
            message = f"source.tables names {pattern.text}, which is {other}: cdcd does not publish it"
            hint = "Leave it out of source.tables"
        elif not pattern.names_one_table:
            message, hint = f"No table matches {pattern.text} in source.tables", "Correct it, or leave it so"
        yield (error if is_fatal else warning)("tables", message, hint, code="tables-missing")


def _without(selected: Sequence[CandidateTable], published: Sequence[CandidateTable]) -> list[CandidateTable]:
    """The selected tables of which neither the table itself, nor its root, nor a partition is published."""
    oids, roots = {table.oid for table in published}, {table.root_oid for table in published}
    return [table for table in selected if not ({table.oid, table.root_oid} & oids or table.oid in roots)]


def _lacking(publication: str, lacking: Sequence[CandidateTable], candidates: Sequence[CandidateTable]) -> Finding:
    shown = lacking[:TABLES_SHOWN]
    oids = {table.oid for table in shown}
    steps = [  # first: PostgreSQL would reject the application's updates otherwise
        f"ALTER TABLE {identifier(table.schema, table.name)} REPLICA IDENTITY FULL"
        for table in candidates
        if {table.oid, table.root_oid} & oids and not table.has_identity and not table.is_partitioned
    ]
    steps.append(f"ALTER PUBLICATION {identifier(publication)} ADD {listed_tables(shown)}")
    names = [qualified_name(table.schema, table.name) for table in lacking]
    message = f"source.tables asks for {_first(names)}, which the publication {publication} lacks: it is not streamed"
    return warning(
        "tables", message, f"Run: {'; '.join(steps)}. Or leave it out of source.tables", code="publication-incomplete"
    )


def _first(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
