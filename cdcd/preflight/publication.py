"""Judges whether the publication exists or can be made, and whether it publishes every operation. Pure.

Before: `postgres_facts` has asked the server.
After: `postgres` passes the findings on.
Source: PostgreSQL, "CREATE PUBLICATION", "Logical Replication: Security".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cdcd.config.settings import SourceSettings
from cdcd.preflight.findings import Finding, error, ok, warning
from cdcd.preflight.postgres_facts import PostgresFacts
from cdcd.source.identifiers import identifier
from cdcd.source.publication import may_cover_new_tables
from cdcd.source.publication_contents import creation_statement
from cdcd.source.published_tables import UnsentPartition
from cdcd.terminal.text_format import plural

TABLES_SHOWN: Final = 20
"""At most so many partitions get a finding of their own; the others are counted."""


def judge(facts: PostgresFacts, source: SourceSettings) -> Iterator[Finding]:
    """The findings about the publication of these settings."""
    if facts.publication is None:
        yield _missing(facts, source)
    else:
        yield from _existing(facts, source)
        if facts.requests is not None:
            without = "cdcd snapshot and cdcd unpark need it, nothing else does"
            yield warning(
                "requests", f"{facts.requests.message}: {without}", facts.requests.hint, code="requests-not-taken"
            )
    for partition in facts.unsent[:TABLES_SHOWN]:
        yield _unsent(partition)
    if len(facts.unsent) > TABLES_SHOWN:
        yield warning(
            "partitions",
            f"The same holds for {len(facts.unsent) - TABLES_SHOWN} more",
            "As above",
            code="partition-not-sent",
        )


def _existing(facts: PostgresFacts, source: SourceSettings) -> Iterator[Finding]:
    publication, tables = source.publication, len(facts.privileges)
    name = identifier(publication)
    if tables:
        yield ok("publication", f"The publication {publication} has {plural(tables, 'table')}")
    else:
        hint = f"Run: ALTER PUBLICATION {name} ADD TABLE ..."
        yield warning(
            "publication",
            f"The publication {publication} has no tables: nothing is streamed",
            hint,
            code="publication-incomplete",
        )
    if facts.publication is None or facts.follows(source.asked.slot):
        return
    if missing := [kind for kind in source.publish if kind not in facts.publication.words]:
        message = f"The publication {publication} leaves out {' and '.join(missing)}: the topics will not follow these"
        hint = f"Run: ALTER PUBLICATION {name} SET (publish = '{', '.join(source.asked.operations.words)}')"
        yield warning("publication", message, hint, code="publication-incomplete")
    elif "publish" in source.model_fields_set and len(facts.publication.words) > len(set(source.publish)):
        message = f"The publication {publication} has {', '.join(facts.publication.words)}, and source.publish has less"
        hint = f"Run: ALTER PUBLICATION {name} SET (publish = '{', '.join(source.asked.operations.words)}')"
        yield warning("publication", message, hint, code="publication-incomplete")
    via_root = source.publish_via_partition_root
    is_asked = "publish_via_partition_root" in source.model_fields_set
    if is_asked and facts.found is not None and via_root != facts.found.contents.via_root:
        yield warning(
            "publication",
            f"source.publish_via_partition_root is {str(via_root).lower()}, and the publication {publication} has the "
            "opposite",
            f"Run: ALTER PUBLICATION {name} SET (publish_via_partition_root = {str(via_root).lower()})",
            code="publication-incomplete",
        )


def _unsent(partition: UnsentPartition) -> Finding:
    name = identifier(partition.schema, partition.name)
    kind = "foreign" if partition.is_foreign else "unlogged"
    hint = "Leave it so, or move its rows into a partition of this server"
    if not partition.is_foreign:
        hint = f"Run: ALTER TABLE {name} SET LOGGED. If its root has been copied, then run cdcd snapshot with the root"
    return warning(
        "partitions",
        f"The partition {name} is {kind}: PostgreSQL does not send its rows to anyone",
        hint,
        code="partition-not-sent",
    )


def _missing(facts: PostgresFacts, source: SourceSettings) -> Finding:
    name, tables, server = source.publication, facts.privileges, facts.server
    asked = source.asked
    statement = creation_statement(name, asked.select(facts.candidates), asked)
    foreign = [table for table in tables if not table.is_owned]
    if not source.create:
        return error(
            "publication",
            f"There is no publication {name}, and source.create is false",
            f"Run: {statement}",
            code="publication-missing",
        )
    if server.is_standby:
        return error(
            "publication",
            f"There is no publication {name}, and a standby cannot make it",
            f"Run: {statement}",
            code="publication-missing",
        )
    unmatched = f"No table matches {', '.join(source.tables)}"
    if not tables and not may_cover_new_tables(asked, server.version):
        message = f"{unmatched}, so there is nothing to publish"
        return error("publication", message, "Make the tables first, or correct source.tables", code="tables-missing")
    if not facts.may_create:
        grant = f"GRANT CREATE ON DATABASE {identifier(server.database)} TO {identifier(server.role)}"
        # This privilege would not let the role publish tables of other roles.
        hint = f"As a superuser, run: {statement}" + ("" if foreign else f". Or: {grant}")
        return error(
            "publication",
            f"The role {server.role} may not make publications in {server.database}",
            hint,
            code="publication-not-permitted",
        )
    if not tables:
        hint = "If its role is a superuser, cdcd run makes a publication of the tables to come. Else make them first"
        return warning("publication", unmatched, hint, code="tables-missing")
    if foreign:
        message = f"The role {server.role} does not own {foreign[0].quoted}, which source.tables names"
        return error(
            "publication", message, f"As the owner of the tables, run: {statement}", code="publication-not-permitted"
        )
    return ok(
        "publication", f"There is no publication {name} yet: cdcd run makes it for {plural(len(tables), 'table')}"
    )
