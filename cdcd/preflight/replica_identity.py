"""Judges replica identities: PostgreSQL may reject UPDATE and DELETE, or log too little of an old row. Pure.

Before: `postgres_facts` has asked the server.
After: `postgres` passes the findings on.
Source: PostgreSQL, "ALTER TABLE" (REPLICA IDENTITY), "Logical Replication: Publication".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from cdcd.error_codes import Code
from cdcd.preflight.findings import Finding, error, ok, warning
from cdcd.source.identifiers import identifier
from cdcd.source.publication_contents import EVERYTHING, PublishedOperations
from cdcd.source.replica_identity import TableIdentity
from cdcd.terminal.text_format import plural

Each = TypeVar("Each")

TABLES_SHOWN: Final = 20
"""At most so many tables get a finding of their own; the others are counted."""


def judge(
    publication: PublishedOperations | None,
    tables: Sequence[TableIdentity],
    name: str = "cdcd",
    asked: PublishedOperations = EVERYTHING,
) -> Iterator[Finding]:
    """The findings about the replica identities.

    `publication` None: `name`, the publication, does not exist yet, and will have the operations `asked`.

    A table without a replica identity is an error only if there is no publication yet, because the daemon's own
    statement would break the application. Once the table is published, the application is broken already, and the
    daemon is not: it gets the inserts. Under FOR ALL TABLES everybody who may make a table can bring that about.

    A partition with a smaller replica identity than its root is an error: the daemon would get deletes that do not say
    which row they delete.
    """
    operations = publication or asked
    if not (operations.updates or operations.deletes):
        return
    bare = [table for each in tables for table in _bare_tables(each)]
    yield from _for_each(bare, _bare, error if publication is None else warning, "replica-identity-missing")
    keyless = [table for table in tables if table.identity == "f" and table.is_keyless]
    yield from _for_each(keyless, _keyless, warning, "table-unkeyed")
    lesser = [table for table in tables if table.lesser_partitions or (table.is_root and table.is_bare)]
    yield from _for_each(lesser, lambda table: _lesser(table, name), error, "partition-identity-lesser")
    if tables and not bare and not lesser:
        yield ok("replica identity", f"{plural(len(tables), 'table')} with a replica identity, none without")


def _bare_tables(table: TableIdentity) -> list[tuple[str, str]]:
    """The tables without a replica identity, where PostgreSQL looks for one: in the partitions of a root."""
    if table.is_root:
        return list(table.bare_partitions)
    return [(table.schema, table.name)] if table.is_bare else []


def _bare(table: tuple[str, str]) -> tuple[str, str]:
    quoted = identifier(*table)
    hint = f"Run: ALTER TABLE {quoted} REPLICA IDENTITY FULL; or give it a primary key"
    return f"{quoted} has no replica identity: while it is published, no row can be updated or deleted", hint


def _keyless(table: TableIdentity) -> tuple[str, str]:
    return f"{table.quoted} has no primary key: its events are unkeyed, in one partition", "Give it one, or leave it so"


def _lesser(table: TableIdentity, publication: str) -> tuple[str, str]:
    names = [identifier(*name) for name in table.lesser_partitions]
    if table.is_bare:
        message = (
            f"{table.quoted} is published as one table, for all its partitions, and has no replica identity of its own:"
            " its events would be unkeyed, and its deletes would not say which row they delete"
        )
        names.insert(0, table.quoted)
    else:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        message = (
            f"The partition {names[0]}{more} of {table.quoted}, which is published as its root, has a smaller replica"
            " identity: its deletes would lack columns that identify the row"
        )
    run = "; ".join(f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in names[:TABLES_SHOWN])
    also = "; ..." if len(names) > TABLES_SHOWN else ""
    via_root = f"ALTER PUBLICATION {identifier(publication)} SET (publish_via_partition_root = false)"
    own = "Or publish each partition as a table of its own, with source.publish_via_partition_root = false"
    return message, f"Run: {run}{also}. {own}; in a publication that cdcd does not alter: {via_root}"


def _for_each(
    tables: Sequence[Each], describe: Callable[[Each], tuple[str, str]], finding: Callable[..., Finding], code: Code
) -> Iterator[Finding]:
    """A finding for each table; `describe` gives its message and hint. Tables beyond TABLES_SHOWN are only counted."""
    for table in tables[:TABLES_SHOWN]:
        yield finding("replica identity", *describe(table), code=code)
    if len(tables) > TABLES_SHOWN:
        yield finding(
            "replica identity", f"The same holds for {len(tables) - TABLES_SHOWN} more tables", "As above", code=code
        )
