"""Judges whether the publication exists or can be made, and whether it publishes every operation. Pure.

Before: `postgres_facts` has asked the server.
After: `check` passes the findings on.
Source: PostgreSQL, "CREATE PUBLICATION", "Logical Replication: Security".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cdcd.config.settings import SourceSettings
from cdcd.preflight.findings import Finding, error, ok, warning
from cdcd.preflight.postgres_facts import PostgresFacts
from cdcd.source.identifiers import identifier
from cdcd.source.privileges import TablePrivileges
from cdcd.source.publication import PublishedOperations
from cdcd.terminal.text_format import plural

TABLES_SHOWN: Final = 20
"""At most so many tables are named in a statement."""


def judge(facts: PostgresFacts, source: SourceSettings) -> Iterator[Finding]:
    """The findings about the publication of these settings."""
    if facts.publication is None:
        yield _missing(facts, source)
    else:
        yield from _existing(source.publication, facts.publication, len(facts.privileges))


def _existing(publication: str, operations: PublishedOperations, tables: int) -> Iterator[Finding]:
    name = identifier(publication)
    if tables:
        yield ok("publication", f"The publication {publication} has {plural(tables, 'table')}")
    else:
        hint = f"Run: ALTER PUBLICATION {name} ADD TABLE ..."
        yield warning("publication", f"The publication {publication} has no tables", hint)
    kinds = {
        "insert": operations.inserts,
        "update": operations.updates,
        "delete": operations.deletes,
        "truncate": operations.truncates,
    }
    if missing := [kind for kind, published in kinds.items() if not published]:
        message = f"The publication {publication} leaves out {' and '.join(missing)}: the topics will not follow these"
        hint = f"Run: ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')"
        yield warning("publication", message, hint)


def _missing(facts: PostgresFacts, source: SourceSettings) -> Finding:
    name, tables, server = source.publication, facts.privileges, facts.server
    statement = f"CREATE PUBLICATION {identifier(name)} FOR TABLE {_listed(tables) or '...'}"
    foreign = [table for table in tables if not table.is_owned]
    if not source.create:
        return error("publication", f"There is no publication {name}, and source.create is false", f"Run: {statement}")
    if not tables:
        message = "No table matches source.tables, so there is nothing to publish"
        return error("publication", message, "Correct source.tables")
    if not facts.may_create:
        grant = f"GRANT CREATE ON DATABASE {identifier(server.database)} TO {identifier(server.role)}"
        # This privilege would not let the role publish tables of other roles.
        hint = f"As a superuser, run: {statement}" + ("" if foreign else f". Or: {grant}")
        return error("publication", f"The role {server.role} may not make publications in {server.database}", hint)
    if foreign:
        message = f"The role {server.role} does not own {foreign[0].quoted}, which source.tables names"
        return error("publication", message, f"As the owner of the tables, run: {statement}")
    return ok(
        "publication", f"There is no publication {name} yet: cdcd run makes it for {plural(len(tables), 'table')}"
    )


def _listed(tables: Sequence[TablePrivileges]) -> str:
    names = [table.quoted for table in tables]
    return ", ".join(names[:TABLES_SHOWN]) + (", ..." if len(names) > TABLES_SHOWN else "")
