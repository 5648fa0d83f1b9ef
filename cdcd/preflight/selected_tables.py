"""Judges whether the publication has the tables that `source.tables` asks for, and whether these exist. Pure.

Before: `postgres_facts` has asked the server.
After: `postgres` passes the findings on.

The daemon alters its own publication (`publication_contents`), so there is nothing for a person to do.

While there is no publication, a name without a table is an error: cdcd would make a publication without it. Once there
is one, it streams what it has. DROP TABLE must not keep the daemon from its next start, so every difference is a
warning then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cdcd.preflight.findings import Finding, error, ok, warning
from cdcd.preflight.postgres_facts import PostgresFacts
from cdcd.source.identifiers import identifier
from cdcd.source.publication_contents import (
    AskedPublication,
    PublicationChange,
    given,
    listed_tables,
    made_anew,
    publication_change,
    tables_in_schemas,
)
from cdcd.source.table_selection import CandidateTable, TablePattern, nearest_table, qualified_name

TABLES_SHOWN: Final = 20
"""At most so many tables are named in a hint."""


def judge(facts: PostgresFacts, publication: str, asked: AskedPublication, tables: Sequence[str]) -> Iterator[Finding]:
    """The findings about what is asked for. `tables`: its patterns, or none if the publication decides."""
    patterns = [TablePattern(text) for text in tables]
    selected = asked.select(facts.candidates) if patterns else []
    yield from _unmatched(facts, patterns if selected else [each for each in patterns if each.names_one_table])
    if facts.publication is None or not patterns:
        return
    if facts.found is not None and facts.follows(asked.slot):
        change = publication_change(publication, asked, facts.found, facts.candidates)
        yield from _followed(publication, asked, change, facts)
        return
    names = set(facts.tables)
    published = [table for table in facts.candidates if (table.schema, table.name) in names]
    if lacking := _without(selected, published):
        yield _lacking(publication, lacking, facts.candidates)
    roots = {table.oid: table for table in facts.candidates if table.is_partitioned}
    unasked = [table for table in published if not asked.has(table, roots.get(table.root_oid or 0))]
    if unasked:
        yield _unasked(publication, asked, unasked, facts)
    is_given = facts.found is not None and facts.found.is_given_to(asked.slot)
    if (lacking or unasked) and is_given and not facts.server.is_standby:
        yield _left_alone(publication, asked, facts)


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


def _lacking(
    publication: str, lacking: Sequence[CandidateTable], candidates: Sequence[CandidateTable], slot: str = ""
) -> Finding:
    """`slot`: of the daemon that alters the publication. The statements let it go on to do so."""
    shown = lacking[:TABLES_SHOWN]
    oids = {table.oid for table in shown}
    steps = [  # first: PostgreSQL would reject the application's updates otherwise
        f"ALTER TABLE {identifier(table.schema, table.name)} REPLICA IDENTITY FULL"
        for table in candidates
        if {table.oid, table.root_oid} & oids and not table.has_identity and not table.is_partitioned
    ]
    steps.append(f"ALTER PUBLICATION {identifier(publication)} ADD {listed_tables(shown)}")
    if slot:
        steps.append(given(publication, slot))
    names = [qualified_name(table.schema, table.name) for table in lacking]
    message = f"source.tables asks for {_first(names)}, which the publication {publication} lacks: it is not streamed"
    return warning(
        "tables", message, f"Run: {'; '.join(steps)}. Or leave it out of source.tables", code="publication-incomplete"
    )


def _unasked(
    publication: str, asked: AskedPublication, unasked: Sequence[CandidateTable], facts: PostgresFacts
) -> Finding:
    """The tables to take out of it, and how."""
    found, selected = facts.found, asked.select(facts.candidates)
    listed = frozenset[int]() if found is None else found.contents.tables
    out = {oid for table in unasked for oid in (table.oid, table.root_oid) if oid in listed}
    rest = [table for table in unasked if not {table.oid, table.root_oid} & out]
    alter = f"ALTER PUBLICATION {identifier(publication)}"
    steps = []
    if found is not None and found.contents.is_everything:
        steps = [made_anew(publication, asked, facts.candidates)]
    else:
        if rest and found is not None:  # whole schemas have them, or their roots
            oids = {oid for table in rest for oid in (table.oid, table.root_oid)}
            holding = {table.schema for table in facts.candidates if table.oid in oids}
            schemas = {each for each in holding if found.schema_oids.get(each) in found.contents.schemas}
            kept = [table for table in selected if table.schema in schemas and table.oid not in listed]
            steps += [f"{alter} ADD {listed_tables(kept)}"] if kept else []
            steps += [f"{alter} DROP {tables_in_schemas(sorted(schemas))}"] if schemas else []
        if out and found is not None:
            steps.append(f"{alter} DROP {listed_tables([table for table in found.listed if table.oid in out])}")
    names = [qualified_name(table.schema, table.name) for table in unasked]
    return warning(
        "tables",
        f"The publication {publication} has {_first(names)}, which the settings do not ask for: cdcd streams it",
        f"Run: {'; '.join(steps)}. Or name it in source.tables",
        code="publication-incomplete",
    )


def _left_alone(publication: str, asked: AskedPublication, facts: PostgresFacts) -> Finding:
    """Why the daemon does not alter the publication that its comment gives to it."""
    found, name = facts.found, identifier(publication)
    qualified = [] if found is None else [table for table in found.listed if table.is_qualified]
    if found is not None and not found.is_owned:
        why = f"the role {facts.server.role} does not own it"
        hint = f"Let its owner run: ALTER PUBLICATION {name} OWNER TO {identifier(facts.server.role)}"
    elif qualified:
        table = qualified_name(qualified[0].schema, qualified[0].name)
        why = f"it has a row filter or a list of columns for {table}, which would be lost"
        hint = "Alter it yourself, or take out the filter and the list: then cdcd alters it again"
    else:
        why = "it is not as cdcd has left it: somebody has altered it, or the database was restored from a dump"
        hint = f"To let cdcd alter it again, run: {given(publication, asked.slot)}"
    return warning(
        "publication",
        f"cdcd does not alter the publication {publication}, because {why}",
        hint,
        code="publication-incomplete",
    )


def _followed(
    publication: str, asked: AskedPublication, change: PublicationChange, facts: PostgresFacts
) -> Iterator[Finding]:
    """What the next stream does about the publication, and what it leaves."""
    for what, tables in (("adds to", change.added), ("takes out of", change.taken_out)):
        if tables:
            names = [qualified_name(table.schema, table.name) for table in tables]
            yield ok("tables", f"The next stream of cdcd {what} the publication {publication}: {_first(names)}")
    if change.needs_new_one:
        why = "the settings ask for no table that it could add, and it leaves no publication empty"
        hint = "Correct source.tables and source.exclude"
        if facts.found is not None and facts.found.contents.is_everything:
            why = "PostgreSQL alters no publication of all tables so"
            anew = made_anew(publication, asked, facts.candidates, asked.slot)
            hint = f"Correct the settings, or run: {anew}. Then run cdcd check; cdcd copies the tables again"
        yield warning(
            "tables",
            f"cdcd cannot alter the publication {publication} as the settings ask: {why}",
            hint,
            code="publication-incomplete",
        )
    if change.bare:
        yield _lacking(publication, change.bare, facts.candidates, asked.slot)
    if change.foreign:
        yield _lacking(publication, change.foreign, facts.candidates, asked.slot)


def _first(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
