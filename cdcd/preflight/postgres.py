"""What `cdcd check` looks at in PostgreSQL: `gather` asks, `judge` says what the answers mean and what mends them.

Before: `preflight` has the settings. After: `preflight.kafka` looks at the topics of the tables found here.

`gather` only reads catalogs and opens one replication connection for IDENTIFY_SYSTEM: nothing is changed. `judge` is
pure. Source: PostgreSQL, "Logical Replication: Configuration Settings" and "Security"; `pg_replication_slots`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from psycopg import sql

from cdcd.errors import RequestRejected
from cdcd.preflight.findings import Finding, Level, error, ok, warning
from cdcd.source.replication_stream import ReplicationStream, status_interval_s
from cdcd.source.session import Session
from cdcd.terminal.text_format import duration, plural, size

VERSION_MIN: Final = 140000

LONG_TRANSACTION_S: Final = 5.0
"""A write transaction that has been open for so long is worth a word: making a slot waits for it."""

OLD_TRANSACTION_S: Final = 600.0
"""And one for so long, where there is a slot: the server keeps all WAL since it began."""

KEEP_SIZE_MB_MIN: Final = 1024
"""A smaller max_slot_wal_keep_size is soon used up while Kafka is away."""

RETAINED_BYTES_SHOWN: Final = 1 << 30
"""WAL that the slot may keep before it is worth a warning."""

TABLES_SHOWN: Final = 20
"""Tables without a usable replica identity that are listed one by one."""


@dataclass(frozen=True)
class PreflightTable:
    """A table that is published, or would be."""

    schema: str
    name: str
    identity: str
    """`relreplident`: d default, f full, i index, n nothing."""
    has_index: bool
    """There is the index that `identity` means, the primary key or the chosen one; beside `full`, a primary key."""
    owned: bool
    """The role is its owner, or a member of its owner."""
    readable: bool = True
    """The role may SELECT from it, as its copy does."""
    all_rows: bool = True
    """No row security hides rows from the role."""
    closed_partitions: Sequence[Sequence[str]] = ()
    """Schemas and names of its partitions that the role may not SELECT from: a copy reads them, and not their root."""
    lesser_partitions: Sequence[Sequence[str]] = ()
    """Schemas and names of its partitions whose replica identity lacks columns of the table's."""

    @property
    def quoted(self) -> str:
        """The name as SQL has it."""
        return sql.Identifier(self.schema, self.name).as_string()

    @property
    def closed(self) -> list[tuple[str, str]]:
        """Schema and name of whatever a copy of it cannot read."""
        own = [] if self.readable else [(self.schema, self.name)]
        return own + [(schema, name) for schema, name in self.closed_partitions]


@dataclass(frozen=True)
class PublicationFacts:
    """Which operations an existing publication publishes."""

    updates: bool
    deletes: bool
    inserts: bool = True
    truncates: bool = True


@dataclass(frozen=True)
class PostgresFacts:
    """What the server said."""

    version: int
    database: str
    role: str
    parameters: Mapping[str, str]
    """Of pg_settings: name to setting, in the parameter's base unit."""
    slots: int
    """Replication slots that exist."""
    senders: int
    """Walsenders that run."""
    slot: Mapping[str, Any] | None
    """The row of pg_replication_slots, with `retained_bytes` and `unconfirmed_bytes`, null where it keeps no WAL."""
    publication: PublicationFacts | None
    tables: Sequence[PreflightTable]
    may_create: bool
    """The role may make publications in this database."""
    writers: Sequence[tuple[str, float | None]]
    """Open write transactions: "pid 123" or "prepared 'gid'", and their age in seconds where the role may see it."""


def gather(dsn: str, slot: str, publication: str, patterns: Sequence[str]) -> PostgresFacts:
    """Ask the server. Raises PostgresUnavailable or RequestRejected as `Session` and `ReplicationStream` do."""
    with Session(dsn, "cdcd check") as session:
        with ReplicationStream(dsn, "cdcd check") as walsender:
            walsender.identify()  # pg_hba.conf, REPLICATION and max_wal_senders in one: what `run` does first
        [(database, role, may_create)] = session.rows(
            "SELECT current_database(), current_user, has_database_privilege(current_database(), 'CREATE')"
        )
        [(slots, senders)] = session.rows(
            "SELECT (SELECT count(*) FROM pg_replication_slots), (SELECT count(*) FROM pg_stat_replication)"
        )
        published = session.rows(
            "SELECT pubupdate, pubdelete, pubinsert, pubtruncate FROM pg_publication WHERE pubname = %s", [publication]
        )
        found = session.rows(
            "SELECT to_jsonb(s) || jsonb_build_object('retained_bytes', pg_wal_lsn_diff(now_at, restart_lsn),"
            "    'unconfirmed_bytes', pg_wal_lsn_diff(now_at, confirmed_flush_lsn))"
            " FROM pg_replication_slots s, (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()"
            "    ELSE pg_current_wal_lsn() END AS now_at) AS position WHERE slot_name = %s",
            [slot],
        )
        return PostgresFacts(
            version=session.server_version,
            database=database,
            role=role,
            parameters=dict(session.rows("SELECT name, setting FROM pg_settings WHERE context <> 'internal'")),
            slots=slots,
            senders=senders,
            slot=found[0][0] if found else None,
            publication=PublicationFacts(*published[0]) if published else None,
            tables=_published(session, publication) if published else _matching(session, patterns),
            may_create=may_create,
            writers=session.rows(
                "SELECT 'pid ' || l.pid, extract(epoch FROM now() - a.xact_start)::float8"
                " FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'transactionid'"
                " AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()"
                " UNION ALL SELECT 'prepared ' || quote_literal(gid), extract(epoch FROM now() - prepared)::float8"
                " FROM pg_prepared_xacts ORDER BY 2 DESC NULLS LAST LIMIT 20"
            ),
        )


def judge(
    facts: PostgresFacts,
    slot: str,
    publication: str,
    *,
    create: bool,
    origin: str,
    interval_s: float,
    two_phase: bool = False,
    failover: bool = False,
    copies: bool = True,
) -> Iterator[Finding]:
    """What the facts mean for these settings; one finding for each thing that was looked at.

    `copies`: the rows that a table has are published, too (snapshot.mode).
    """
    yield from _server(facts, origin, interval_s)
    for setting, wanted, major in (("two_phase", two_phase, 15), ("failover", failover, 17)):
        if wanted and facts.version < major * 10000:
            yield error(setting, f"source.{setting} needs PostgreSQL {major}", f"Set source.{setting} to false")
    yield from _retention(facts)
    yield from _slot(facts, slot, create=create)
    if failover and facts.slot is not None and facts.slot.get("failover") is False:
        hint = f'Stop the daemon, and in a replication connection: ALTER_REPLICATION_SLOT "{slot}" (FAILOVER true)'
        yield warning("failover", f"The slot {slot} was made without source.failover: no standby has it", hint)
    yield from _publication(facts, publication, create=create)
    yield from _identities(facts)
    if copies:
        # Where there is a slot, the copies may have been made already.
        yield from _rights(facts.role, facts.tables, error if facts.slot is None else warning)


def _server(facts: PostgresFacts, origin: str, interval_s: float) -> Iterator[Finding]:
    version = f"{facts.version // 10000}.{facts.version % 10000}"
    if facts.version < VERSION_MIN:
        yield error("server", f"PostgreSQL is {version}; cdcd needs 14 or later", "Upgrade the server")
    else:
        yield ok("server", f"PostgreSQL {version}, database {facts.database}, role {facts.role} may replicate")
    if origin == "none" and facts.version < 160000:
        yield error("origin", 'source.origin "none" needs PostgreSQL 16', 'Set source.origin to "any"')
    level = facts.parameters["wal_level"]
    if level == "logical":
        yield ok("wal_level", "wal_level is logical")
    else:
        hint = "Run: ALTER SYSTEM SET wal_level = 'logical'; then restart the server"
        yield error("wal_level", f"wal_level is {level}, and must be logical", hint)
    yield _room(facts.slots, facts, "max_replication_slots", "replication slots", needed=facts.slot is None)
    yield _room(facts.senders, facts, "max_wal_senders", "walsenders", needed=not (facts.slot and facts.slot["active"]))
    timeout_s = int(facts.parameters["wal_sender_timeout"]) / 1000
    if not timeout_s:
        yield ok("wal_sender_timeout", "wal_sender_timeout is off")
    else:
        every_s = status_interval_s(interval_s, timeout_s)
        yield ok("wal_sender_timeout", f"wal_sender_timeout is {timeout_s:g} s, status comes every {every_s:g} s")


def _retention(facts: PostgresFacts) -> Iterator[Finding]:
    """What the server does with a slot whose reader is away: it keeps WAL until the disk is full, or loses the slot."""
    keep_mb = int(facts.parameters.get("max_slot_wal_keep_size", -1))
    if keep_mb < 0:
        yield ok("retention", "max_slot_wal_keep_size is off: no slot is lost, but watch the disk while cdcd is away")
    elif keep_mb < KEEP_SIZE_MB_MIN:
        said = f"max_slot_wal_keep_size is {size(keep_mb << 20)}: a slot is lost once its reader is so far behind"
        hint = "Run: ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf()"
        yield warning("retention", said, hint)
    else:
        yield ok("retention", f"max_slot_wal_keep_size is {size(keep_mb << 20)}: a slot further behind is lost")
    if timeout_s := int(facts.parameters.get("idle_replication_slot_timeout", 0)):
        said = f"idle_replication_slot_timeout loses a slot that nobody has read for {duration(timeout_s)}"
        hint = "Run: ALTER SYSTEM SET idle_replication_slot_timeout = 0; or see that cdcd is never away for so long"
        yield warning("retention", said, hint)


def _room(used: int, facts: PostgresFacts, parameter: str, what: str, *, needed: bool) -> Finding:
    bound = int(facts.parameters[parameter])
    if used >= bound and needed:
        hint = f"Run: ALTER SYSTEM SET {parameter} = {bound + 5}; then restart the server. Or end one that is in use"
        return error(parameter, f"All {bound} {what} are in use", hint)
    return ok(parameter, f"{used} of {bound} {what} are in use")


def _slot(facts: PostgresFacts, slot: str, *, create: bool) -> Iterator[Finding]:
    name = sql.Literal(slot).as_string()
    row = facts.slot
    if row is None:
        if not create:
            hint = "Run cdcd slot create, which makes it as these settings want it; or set source.create to true"
            yield error("slot", f"There is no slot {slot}, and source.create is false", hint)
            return
        yield ok("slot", f"There is no slot {slot} yet: cdcd run makes it")
        for who, age_s in facts.writers:
            if age_s is None or age_s >= LONG_TRANSACTION_S:
                said = f"Making the slot waits for a transaction that writes{_since(age_s)}: {who}"
                yield warning("slot", said, f"Let it end before cdcd run, or end it: {_ending(who)}")
        return
    for who, age_s in facts.writers:
        if age_s is not None and age_s >= OLD_TRANSACTION_S:
            said = f"A transaction that writes{_since(age_s)} holds back all WAL since: {who}"
            yield warning("slot", said, f"Let it end, or end it: {_ending(who)}")
    drop = f"Run: SELECT pg_drop_replication_slot({name}); the daemon then starts anew, and a gap in the rows is likely"
    if row["plugin"] != "pgoutput":
        yield error("slot", f"The slot {slot} is of plugin {row['plugin']}, not pgoutput", "Choose another source.slot")
    elif row["database"] != facts.database:
        hint = "Choose another source.slot, or the slot's database in source.dsn"
        yield error("slot", f"The slot {slot} is of database {row['database']}, not {facts.database}", hint)
    elif row["wal_status"] == "lost" or row.get("invalidation_reason"):
        reason = row.get("invalidation_reason") or "the WAL that it needs is gone"
        yield error("slot", f"The slot {slot} is invalid: {reason}", drop)
    else:
        used = f"in use by pid {row['active_pid']}" if row["active"] else "not in use"
        retained, behind = int(row["retained_bytes"] or 0), int(row["unconfirmed_bytes"] or 0)
        said = f"The slot {slot} is {used}, confirmed up to {row['confirmed_flush_lsn']} ({size(behind)} behind)"
        if row["wal_status"] == "unreserved":
            hint = "Start cdcd run now, or raise max_slot_wal_keep_size"
            yield warning("slot", f"{said}; the WAL that it needs may go at the next checkpoint", hint)
        elif retained > RETAINED_BYTES_SHOWN:
            hint = "Start cdcd run, and see that it keeps up"
            yield warning("slot", f"{said}; the server keeps {size(retained)} of WAL for it", hint)
        else:
            yield ok("slot", f"{said}; the server keeps {size(retained)} of WAL for it")


def _since(age_s: float | None) -> str:
    return f" for {duration(age_s)}" if age_s is not None else ""


def _ending(who: str) -> str:
    kind, _, which = who.partition(" ")
    return f"SELECT pg_terminate_backend({which})" if kind == "pid" else f"ROLLBACK PREPARED {which}"


def _publication(facts: PostgresFacts, publication: str, *, create: bool) -> Iterator[Finding]:
    name = sql.Identifier(publication).as_string()
    if facts.publication is not None:
        if facts.tables:
            yield ok("publication", f"The publication {publication} has {plural(len(facts.tables), 'table')}")
        else:
            hint = f"Run: ALTER PUBLICATION {name} ADD TABLE ..."
            yield warning("publication", f"The publication {publication} has no tables", hint)
        chosen = facts.publication
        kinds = {
            "insert": chosen.inserts,
            "update": chosen.updates,
            "delete": chosen.deletes,
            "truncate": chosen.truncates,
        }
        if missing := [kind for kind, published in kinds.items() if not published]:
            said = f"The publication {publication} leaves out {' and '.join(missing)}: the topics will not follow these"
            hint = f"Run: ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')"
            yield warning("publication", said, hint)
        return
    statement = f"CREATE PUBLICATION {name} FOR TABLE {_listed([table.quoted for table in facts.tables]) or '...'}"
    foreign = [table for table in facts.tables if not table.owned]
    if not create:
        said = f"There is no publication {publication}, and source.create is false"
        yield error("publication", said, f"Run: {statement}")
    elif not facts.tables:
        yield error(
            "publication", "No table fits source.tables, so there is nothing to publish", "Correct source.tables"
        )
    elif not facts.may_create:
        grant = f"GRANT CREATE ON DATABASE {_quoted(facts.database)} TO {_quoted(facts.role)}"
        # Tables of other roles it could not publish with that right, either.
        hint = f"As a superuser, run: {statement}" + ("" if foreign else f". Or: {grant}")
        yield error("publication", f"The role {facts.role} may not make publications in {facts.database}", hint)
    elif foreign:
        hint = f"As the owner of the tables, run: {statement}"
        said = f"The role {facts.role} does not own {foreign[0].quoted}, which source.tables names"
        yield error("publication", said, hint)
    else:
        said = f"There is no publication {publication} yet: cdcd run makes it for {plural(len(facts.tables), 'table')}"
        yield ok("publication", said)


def _identities(facts: PostgresFacts) -> Iterator[Finding]:
    """Where PostgreSQL refuses an UPDATE or DELETE while it is published, or keeps too little of the old row."""
    publishes = facts.publication or PublicationFacts(updates=True, deletes=True)
    if not (publishes.updates or publishes.deletes):
        return
    bare = [table for table in facts.tables if table.identity != "f" and not table.has_index]
    yield from _for_each(bare, _bare)
    keyless = [table for table in facts.tables if table.identity == "f" and not table.has_index]
    yield from _for_each(keyless, _keyless, warning)
    # Before there is a publication, nobody knows whether it will publish the partitions by themselves.
    lesser = [table for table in facts.tables if facts.publication and table.lesser_partitions]
    yield from _for_each(lesser, _lesser)
    if facts.tables and not bare and not lesser:
        yield ok("replica identity", f"{plural(len(facts.tables), 'table')} with a replica identity, none without")


def _bare(table: PreflightTable) -> tuple[str, str]:
    hint = f"Run: ALTER TABLE {table.quoted} REPLICA IDENTITY FULL; or give it a primary key"
    return f"{table.quoted} has no replica identity: while it is published, no row can be updated or deleted", hint


def _keyless(table: PreflightTable) -> tuple[str, str]:
    return f"{table.quoted} has no primary key: its events are unkeyed, in one partition", "Give it one, or leave it so"


def _lesser(table: PreflightTable) -> tuple[str, str]:
    names = [sql.Identifier(*name).as_string() for name in table.lesser_partitions]
    said = (
        f"The partition {_first(names)} of {table.quoted}, which is published as its root, keeps less"
        " replica identity: what the WAL lacks of an UPDATE or DELETE there stops the daemon or is null in `before`"
    )
    run = "; ".join(f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in names[:TABLES_SHOWN])
    return said, f"Run: {run}" + ("; ..." if len(names) > TABLES_SHOWN else "")


def _for_each(
    tables: Sequence[PreflightTable],
    say: Callable[[PreflightTable], tuple[str, str]],
    finding: Callable[..., Finding] = error,
) -> Iterator[Finding]:
    """A finding for each table, with what `say` gives (message and hint); those beyond TABLES_SHOWN are counted."""
    for table in tables[:TABLES_SHOWN]:
        yield finding("replica identity", *say(table))
    if len(tables) > TABLES_SHOWN:
        yield finding("replica identity", f"The same holds for {len(tables) - TABLES_SHOWN} more tables", "As above")


def refuse_unreadable(session: Session, publication: str) -> None:
    """Raise RequestRejected, as `judge` says it, if the role may not copy a table that is published."""
    [(user,)] = session.rows("SELECT current_user")
    for finding in _rights(user, _published(session, publication), error):
        if finding.level is Level.ERROR:
            raise RequestRejected(finding.message, finding.hint)


def _rights(
    user: str, tables: Sequence[PreflightTable], level: Callable[[str, str, str], Finding]
) -> Iterator[Finding]:
    """The stream needs no right on a table; its copy does."""
    role = _quoted(user)
    closed = [name for table in tables for name in table.closed]
    hidden = [table for table in tables if table.readable and not table.all_rows]
    if closed:
        names = [sql.Identifier(*name).as_string() for name in closed]
        schemas = ", ".join(sorted({_quoted(schema) for schema, _ in closed}))
        grants = f"GRANT USAGE ON SCHEMA {schemas} TO {role}; GRANT SELECT ON {_listed(names)} TO {role}"
        said = f"The role {user} may not read {_first(names)}: the snapshot cannot copy what is in there"
        yield level("rights", said, f'As the owner, run: {grants}. Or set snapshot.mode = "never"')
    if hidden:
        shown = _first([table.quoted for table in hidden])
        said = f"Row security hides rows of {shown} from the role {user}: the snapshot refuses that"
        hint = f'As a superuser, run: ALTER ROLE {role} BYPASSRLS. Or set snapshot.mode = "never"'
        yield level("rights", said, hint)
    if tables and not closed and not hidden:
        yield ok("rights", f"The role {user} may read {_every(len(tables))}, for the snapshot")


def _first(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:TABLES_SHOWN]) + (", ..." if len(names) > TABLES_SHOWN else "")


def _every(count: int) -> str:
    return "the table" if count == 1 else f"all {count} tables"


def _quoted(name: str) -> str:
    return sql.Identifier(name).as_string()


_TABLE: Final = (
    "SELECT n.nspname, c.relname, c.relreplident::text, EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid"
    "    AND i.indimmediate"
    "    AND CASE c.relreplident WHEN 'n' THEN false WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END),"
    # A privilege on the whole table is one on any of its columns.
    " pg_has_role(c.relowner, 'USAGE'), has_schema_privilege(n.oid, 'USAGE')"
    "    AND has_any_column_privilege(c.oid, 'SELECT'),"
    " NOT row_security_active(c.oid),"
    " ARRAY(SELECT ARRAY[m.nspname::text, l.relname] FROM pg_partition_tree(c.oid) t JOIN pg_class l ON l.oid = t.relid"
    "    JOIN pg_namespace m ON m.oid = l.relnamespace WHERE c.relkind = 'p' AND t.isleaf"
    "    AND NOT (has_schema_privilege(m.oid, 'USAGE') AND has_any_column_privilege(l.oid, 'SELECT')) ORDER BY 1),"
    " ARRAY(SELECT ARRAY[m.nspname::text, l.relname] FROM pg_partition_tree(c.oid) t JOIN pg_class l ON l.oid = t.relid"
    "    JOIN pg_namespace m ON m.oid = l.relnamespace WHERE c.relkind = 'p' AND t.isleaf AND l.relreplident <> 'f'"
    # A column of the root's index that is none of the leaf's.
    "    AND (c.relreplident = 'f' OR EXISTS (SELECT FROM pg_class r JOIN pg_index i ON i.indrelid = r.oid"
    "        JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])"
    "        WHERE r.oid IN (c.oid, l.oid) AND i.indimmediate"
    "        AND CASE r.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END"
    "        GROUP BY a.attname HAVING NOT bool_or(r.oid = l.oid))) ORDER BY 1)"
    " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
)


def _published(session: Session, publication: str) -> list[PreflightTable]:
    rows = session.rows(
        _TABLE + "JOIN pg_publication_tables p ON p.schemaname = n.nspname AND p.tablename = c.relname"
        " WHERE p.pubname = %s ORDER BY 1, 2",
        [publication],
    )
    return [PreflightTable(*row) for row in rows]


def _matching(session: Session, patterns: Sequence[str]) -> list[PreflightTable]:
    rows = session.rows(
        _TABLE + "WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition"
        " AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' ORDER BY 1, 2"
    )
    return [
        PreflightTable(*row) for row in rows if any(fnmatchcase(f"{row[0]}.{row[1]}", pattern) for pattern in patterns)
    ]
