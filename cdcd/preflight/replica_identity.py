"""Judges replica identities: PostgreSQL may reject UPDATE and DELETE, or log too little of an old row. Pure.

Before: `postgres_facts` has asked the server.
After: `check` passes the findings on.
Source: PostgreSQL, "ALTER TABLE" (REPLICA IDENTITY), "Logical Replication: Publication".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from cdcd.preflight.findings import Finding, error, ok, warning
from cdcd.source.identifiers import identifier
from cdcd.source.publication import PublishedOperations
from cdcd.source.replica_identity import TableIdentity
from cdcd.terminal.text_format import plural

TABLES_SHOWN: Final = 20
"""At most so many tables get a finding of their own; the others are counted."""


def judge(publication: PublishedOperations | None, tables: Sequence[TableIdentity]) -> Iterator[Finding]:
    """The findings about the replica identities. `publication` None: it does not exist yet."""
    operations = publication or PublishedOperations(updates=True, deletes=True)
    if not (operations.updates or operations.deletes):
        return
    bare = [table for table in tables if table.identity != "f" and not table.has_index]
    yield from _for_each(bare, _bare)
    keyless = [table for table in tables if table.identity == "f" and not table.has_index]
    yield from _for_each(keyless, _keyless, warning)
    # Without a publication, it is not known whether partitions will be published as their root.
    lesser = [table for table in tables if publication and table.lesser_partitions]
    yield from _for_each(lesser, _lesser)
    if tables and not bare and not lesser:
        yield ok("replica identity", f"{plural(len(tables), 'table')} with a replica identity, none without")


def _bare(table: TableIdentity) -> tuple[str, str]:
    hint = f"Run: ALTER TABLE {table.quoted} REPLICA IDENTITY FULL; or give it a primary key"
    return f"{table.quoted} has no replica identity: while it is published, no row can be updated or deleted", hint


def _keyless(table: TableIdentity) -> tuple[str, str]:
    return f"{table.quoted} has no primary key: its events are unkeyed, in one partition", "Give it one, or leave it so"


def _lesser(table: TableIdentity) -> tuple[str, str]:
    names = [identifier(*name) for name in table.lesser_partitions]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    message = (
        f"The partition {names[0]}{more} of {table.quoted}, which is published as its root, has a smaller replica"
        " identity. If the WAL lacks columns of an old row there, the daemon stops, or `before` has null for them"
    )
    run = "; ".join(f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in names[:TABLES_SHOWN])
    return message, f"Run: {run}" + ("; ..." if len(names) > TABLES_SHOWN else "")


def _for_each(
    tables: Sequence[TableIdentity],
    describe: Callable[[TableIdentity], tuple[str, str]],
    finding: Callable[..., Finding] = error,
) -> Iterator[Finding]:
    """A finding for each table; `describe` gives its message and hint. Tables beyond TABLES_SHOWN are only counted."""
    for table in tables[:TABLES_SHOWN]:
        yield finding("replica identity", *describe(table))
    if len(tables) > TABLES_SHOWN:
        yield finding("replica identity", f"The same holds for {len(tables) - TABLES_SHOWN} more tables", "As above")
