"""Open write transactions, in any database. A new slot waits for them, and the server keeps WAL for them.

Before: a session, or a connection inside a snapshot, runs the query.
After: the error SlotWaits and `cdcd check` name the transactions.
Source: PostgreSQL, "pg_locks", which every role may read; "pg_stat_activity", "pg_prepared_xacts".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdcd.errors import PostgresUnavailable
from cdcd.source.identifiers import literal
from cdcd.source.query_runner import QueryRunner

_WRITERS: Final = """
    SELECT l.pid, NULL::text, extract(epoch FROM pg_catalog.clock_timestamp() - a.xact_start)::float8,
           'session ' || l.pid || coalesce(' (' || nullif(a.application_name, '') || ')', '')
           || coalesce(' of ' || a.usename, '')
           || coalesce(', for ' || pg_catalog.date_trunc('second', pg_catalog.clock_timestamp() - a.xact_start), '')
           || coalesce(', ' || nullif(a.state, 'active'), '')
           || coalesce(': ' || pg_catalog.substr(pg_catalog.regexp_replace(
                  nullif(nullif(a.query, ''), '<insufficient privilege>'), '''[^'']*''', '''...''', 'g'), 1, 100), '')
    FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a USING (pid)
    WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid IS NOT NULL
    UNION ALL SELECT NULL, gid, extract(epoch FROM pg_catalog.clock_timestamp() - prepared)::float8,
                     'prepared transaction ' || gid || ', for '
                     || pg_catalog.date_trunc('second', pg_catalog.clock_timestamp() - prepared)
    FROM pg_catalog.pg_prepared_xacts
    ORDER BY 3 DESC NULLS LAST, 4
"""


@dataclass(frozen=True)
class WriteTransaction:
    """An open write transaction: of a session (`pid`), or prepared (`gid`)."""

    pid: int | None
    gid: str | None
    age_s: float | None
    """None if the role may not see it."""
    description: str
    """Session, age, state and query, as far as the role may see them. String literals in the query are hidden."""

    @property
    def name(self) -> str:
        """Like `of PostgreSQL's process 123` or `prepared 'gid'`."""
        return f"of PostgreSQL's process {self.pid}" if self.gid is None else f"prepared {literal(self.gid)}"

    @property
    def ending_statement(self) -> str:
        """The SQL that ends the transaction."""
        if self.gid is None:
            return f"SELECT pg_terminate_backend({self.pid})"
        return f"ROLLBACK PREPARED {literal(self.gid)}"


def write_transactions(runner: QueryRunner) -> list[WriteTransaction]:
    """All open write transactions, the oldest first."""
    return [WriteTransaction(*row) for row in runner.rows(_WRITERS)]


def described_writers(runner: QueryRunner) -> tuple[str, ...]:
    """Descriptions of all open write transactions; empty if the server does not answer."""
    try:
        return tuple(each.description for each in write_transactions(runner))
    except PostgresUnavailable:
        return ()
