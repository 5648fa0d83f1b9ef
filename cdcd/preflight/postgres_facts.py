"""Asks PostgreSQL for the facts of `cdcd check`: reads catalogs, opens one replication connection, changes nothing.

Before: `check` has the settings.
After: `postgres` judges the facts, one subject after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdcd.source.privileges import TablePrivileges, may_create_publications, table_privileges
from cdcd.source.publication import Publication, PublishedOperations
from cdcd.source.published_tables import published_tables
from cdcd.source.replica_identity import TableIdentity, table_identities
from cdcd.source.replication_stream import ReplicationStream
from cdcd.source.server import ServerFacts, server_facts
from cdcd.source.session import Session
from cdcd.source.slot import Slot, SlotState
from cdcd.source.write_transactions import WriteTransaction, write_transactions


@dataclass(frozen=True)
class PostgresFacts:
    """Facts of one server. The tables are those of the publication, or those that a new one would have."""

    server: ServerFacts
    slot: SlotState | None
    slot_is_physical: bool
    """The slot's name belongs to a physical slot."""
    publication: PublishedOperations | None
    """None if it does not exist."""
    may_create: bool
    """The role may make publications in this database."""
    identities: Sequence[TableIdentity]
    privileges: Sequence[TablePrivileges]
    """For the same tables, in the same order (schema, name)."""
    writers: Sequence[WriteTransaction]
    """Open write transactions, the oldest first."""

    @property
    def tables(self) -> list[tuple[str, str]]:
        """Schema and name of each table."""
        return [(table.schema, table.name) for table in self.privileges]


def gather(dsn: str, slot: str, publication: str, patterns: Sequence[str]) -> PostgresFacts:
    """Ask the server. Raises PostgresUnavailable and RequestRejected, as `Session` and `ReplicationStream` do.

    `patterns` (schema.table) name the tables for a publication that does not exist yet. Raises SettingsError if one of
    them is not written so.
    """
    with Session(dsn, "cdcd check") as session:
        with ReplicationStream(dsn, "cdcd check") as stream:
            stream.identify()  # `cdcd run` does the same: this tests pg_hba.conf, REPLICATION and a free walsender
        publication_queries, slot_queries = Publication(session, publication), Slot(session, slot)
        operations = publication_queries.operations()
        if operations is None:
            oids = [table.oid for table in publication_queries.candidates(patterns)]
        else:
            oids = [table.oid for table in published_tables(session, publication)]
        state = slot_queries.state()
        return PostgresFacts(
            server=server_facts(session),
            slot=state,
            slot_is_physical=state is None and slot_queries.is_physical(),
            publication=operations,
            may_create=may_create_publications(session),
            identities=table_identities(session, oids),
            privileges=table_privileges(session, oids),
            writers=write_transactions(session),
        )
