"""Asks PostgreSQL for the facts that a start is judged by: reads catalogs, changes nothing.

Before: `check` has the settings, or `daemon.stream_startup` is about to make the publication and the slot.
After: `postgres` judges the facts, one subject after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cdcd.config.settings import SourceSettings
from cdcd.progress.continuity import Server
from cdcd.source.login import Dsn
from cdcd.source.privileges import TablePrivileges, may_create_publications, table_privileges, unreadable_later
from cdcd.source.publication import Publication
from cdcd.source.publication_contents import FoundPublication, PublishedOperations
from cdcd.source.published_tables import UnsentPartition, published_oids, unsent_partitions
from cdcd.source.replica_identity import TableIdentity, table_identities
from cdcd.source.replication_stream import ReplicationStream
from cdcd.source.requests_table import RequestsProblem, requests_problem
from cdcd.source.server import ServerFacts, server_facts
from cdcd.source.session import Session
from cdcd.source.slot import Slot, SlotState
from cdcd.source.table_selection import CandidateTable, TablePattern
from cdcd.source.write_transactions import WriteTransaction, write_transactions


@dataclass(frozen=True)
class PostgresFacts:
    """Facts of one server. The tables are those of the publication, or those that a new one would have."""

    server: ServerFacts
    slot: SlotState | None
    publication: PublishedOperations | None
    """None if it does not exist."""
    may_create: bool
    """The role may make publications in this database."""
    identities: Sequence[TableIdentity]
    """One for each table as it is published: for the root or for the partitions of a partitioned table."""
    privileges: Sequence[TablePrivileges]
    """By schema and name."""
    candidates: Sequence[CandidateTable] = ()
    """Every table that can be published; empty if the settings leave the choice to an existing publication."""
    other_relations: Sequence[tuple[str, str, str]] = ()
    """Schema, name and kind of the relations that cdcd does not publish; empty if every pattern matches a table."""
    unsent: Sequence[UnsentPartition] = ()
    """Partitions whose rows PostgreSQL does not send."""
    writers: Sequence[WriteTransaction] = ()
    """Open write transactions, the oldest first. A start does not ask for them."""
    requests: RequestsProblem | None = None
    """Why no request of this role would reach the daemon. A start does not ask; a missing publication has no table."""
    unreadable_later: Sequence[tuple[str, str]] = ()
    """Schema and owner of tables to come that would be published, and that the role could not read. As `requests`."""
    found: FoundPublication | None = None
    """The publication, with what cdcd may do about it; None if it does not exist."""
    here: Server | None = None
    """Who the server is, and where the slot stands. A start learns it from the connection that streams."""

    @property
    def tables(self) -> list[tuple[str, str]]:
        """Schema and name of each table."""
        return [(table.schema, table.name) for table in self.privileges]

    def follows(self, slot: str) -> bool:
        """Whether the daemon of `slot` alters the publication by itself."""
        return self.found is not None and self.found.is_followed_by(slot)

    def with_keys(self, keying: Callable[[str, str], object]) -> PostgresFacts:
        """The same facts, with the keys that the settings have. `keying`: what they say of a table, or None."""
        identities = [
            replace(each, has_chosen_key=keying(each.schema, each.name) is not None) for each in self.identities
        ]
        return replace(self, identities=identities)


def gather(session: Session, source: SourceSettings, *, is_start: bool = True) -> PostgresFacts:
    """Ask the server. Raises what `Session` raises: Locked if another session alters a table, under a lock timeout.

    `is_start`: a daemon that has a slot is about to stream from it, and the server itself is not judged.
    """
    publication, slot = Publication(session, source.publication), Slot(session, source.slot)
    found, state = publication.found(), slot.state()
    patterns = [TablePattern(text) for text in asked_tables(source, found, exists=found is not None)]
    candidates = publication.all_candidates() if patterns else []
    others = publication.other_relations() if _some_match_nothing(patterns, candidates) else []
    if found is None:
        oids = [table.oid for table in source.asked.select(candidates)]
    else:
        oids = published_oids(session, source.publication)
    return PostgresFacts(
        server=server_facts(session, is_whole=state is None or not is_start),
        slot=state,
        publication=None if found is None else found.contents.operations,
        found=found,
        may_create=found is None and may_create_publications(session),
        identities=table_identities(
            session, oids, as_partitions=found is None and not source.publish_via_partition_root
        ),
        privileges=table_privileges(session, source.publication, oids),
        candidates=candidates,
        other_relations=others,
        unsent=unsent_partitions(session, source.publication, oids),
    )


def gather_for_check(dsn: Dsn, source: SourceSettings) -> PostgresFacts:
    """As `gather`, with connections of its own, and with the open transactions.

    Raises PostgresUnavailable and RequestRejected, as `Session` and `ReplicationStream` do.
    """
    with Session(dsn, "cdcd check") as session:
        with ReplicationStream(dsn, "cdcd check") as stream:
            # `cdcd run` does the same: this tests pg_hba.conf, REPLICATION and a free walsender.
            here = identified(stream)
        facts = gather(session, source, is_start=False)
        slot = facts.slot
        if slot is None:
            here = replace(here, database_oid=Slot(session, source.slot).database_oid())
        else:
            here = replace(
                here,
                wal_lsn=slot.wal_lsn,
                confirmed_lsn=slot.confirmed_flush_lsn or 0,
                database_oid=slot.database_oid,
            )
        requests = None if facts.publication is None else requests_problem(session, source.publication)
        later = [] if facts.publication is None else unreadable_later(session, source.publication)
        writers = write_transactions(session)
        return replace(facts, writers=writers, requests=requests, unreadable_later=later, here=here)


def identified(stream: ReplicationStream) -> Server:
    """The server, as it is where there is no slot; without the database. Raises as `ReplicationStream` does."""
    identity = stream.identify()
    history = stream.timeline_history(identity.timeline)
    return Server(identity.system_id, identity.timeline, history, identity.wal_lsn, 0, stream.standby)


def asked_tables(source: SourceSettings, found: FoundPublication | None, *, exists: bool) -> Sequence[str]:
    """The patterns that the publication is to fulfil. `exists`: it is there already.

    The default of source.tables says nothing about a publication that somebody else has made.
    """
    is_given = found is not None and found.is_given_to(source.slot)
    return source.tables if not exists or is_given or "tables" in source.model_fields_set else ()


def _some_match_nothing(patterns: Sequence[TablePattern], candidates: Sequence[CandidateTable]) -> bool:
    return not all(any(pattern.matches(table.schema, table.name) for table in candidates) for pattern in patterns)
