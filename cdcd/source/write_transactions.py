"""Transactions that are writing now, in any database: a new slot waits for them, and an old one holds back WAL.

Before: a session, or another connection, answers.
After: `SlotWaits` and `cdcd check` name them.
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
    """A transaction of a session (`pid`), or a prepared one (`gid`)."""

    pid: int | None
    gid: str | None
    age_s: float | None
    """None where the role may not see it."""
    description: str
    """With age, state and query, as far as the role may see them. Strings in quotes are left out of the query."""

    @property
    def name(self) -> str:
        """Like `pid 123` or `prepared 'gid'`."""
        return f"pid {self.pid}" if self.gid is None else f"prepared {literal(self.gid)}"

    @property
    def ending_statement(self) -> str:
        """The SQL that ends it."""
        if self.gid is None:
            return f"SELECT pg_terminate_backend({self.pid})"
        return f"ROLLBACK PREPARED {literal(self.gid)}"


def write_transactions(asks: QueryRunner) -> list[WriteTransaction]:
    """All of them, the oldest first."""
    return [WriteTransaction(*row) for row in asks.rows(_WRITERS)]


def described_writers(asks: QueryRunner) -> tuple[str, ...]:
    """Their descriptions; none if the server cannot be asked."""
    try:
        return tuple(each.description for each in write_transactions(asks))
    except PostgresUnavailable:
        return ()
