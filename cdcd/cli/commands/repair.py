"""Asks the daemon to repair the rows that differ, for `cdcd verify --repair`, and waits until Kafka has them.

Before: `verify` has compared the tables. After: the daemon finds the requests in its stream, reads the rows once more,
and publishes them.

The request names only keys. So a row that a writer changes meanwhile is published as it is then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from cdcd.cli.commands.daemon_request import SentRequest, requests_session, send_repair
from cdcd.cli.commands.daemon_wait import DaemonWait
from cdcd.config.settings import Settings
from cdcd.errors import RequestRejected
from cdcd.progress.repair_records import PendingRepair, TableRepairs, pending_repair
from cdcd.reading.slot_progress import open_progress
from cdcd.source.session import Session, StatementRejected
from cdcd.source.table_selection import qualified_name, shell_word
from cdcd.verify.comparison import Difference, TableResult
from cdcd.verify.repair_keys import check_repairable, repair_keys

POLL_S: Final = 0.3

# Only PostgreSQL's own types: others could run functions of whoever made them.
_KEY_TYPE: Final = """
    WITH RECURSIVE base AS (
        SELECT t.* FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
        JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = %s AND c.relname = %s AND a.attname = %s
        UNION ALL SELECT t.* FROM base JOIN pg_catalog.pg_type t ON t.oid = base.typbasetype
    )
    SELECT pg_catalog.format_type(oid, NULL) FROM base
    WHERE typbasetype = 0 AND typnamespace = 'pg_catalog'::pg_catalog.regnamespace
"""
_IN_RANGE: Final = """
    SELECT key FROM pg_catalog.unnest(%s::text[]) key
    WHERE (%s::text IS NULL OR key::{type} >= %s::{type}) AND (%s::text IS NULL OR key::{type} < %s::{type})
"""


@dataclass(frozen=True)
class RepairLimits:
    """Which of the rows that differ to repair."""

    rows_max: int
    """No row of a table in which more rows differ."""
    key_from: str | None = None
    key_to: str | None = None
    """Only rows whose key begins with a value from `key_from` on, and before `key_to`."""


@dataclass(frozen=True)
class Repaired:
    """The rows and deletes that were published of one table."""

    table: str
    rows: int
    deletes: int
    lsn: int
    """The rows are as they were at this LSN."""


@dataclass
class _Asked:
    name: tuple[str, str]
    topic: str
    before: TableRepairs | None
    records: set[bytes] = field(default_factory=set)
    """The keys of the records that stand for the requests until they are done."""
    sent: SentRequest | None = None


def to_repair(settings: Settings, result: TableResult, limits: RepairLimits) -> list[Difference]:
    """The rows of a table to repair. Raises RequestRejected, with what to do instead, if they cannot be repaired."""
    check_repairable(result)
    found = list(result.differences)
    if limits.key_from is not None or limits.key_to is not None:
        with Session(settings.source.login, settings.source.application_name) as session:
            found = list(_in_range(session, result, limits))
    if len(found) > limits.rows_max:
        raise RequestRejected(
            f"{result.table}: {len(found):,} rows differ, more than --max-rows {limits.rows_max}",
            f"Raise --max-rows, or replace all rows. Run: cdcd snapshot {shell_word(result.table)}",
            code="repair-impossible",
        )
    return found


def repair(settings: Settings, wanted: Iterable[tuple[TableResult, Collection[Difference]]]) -> Iterator[Repaired]:
    """Request the repair of these rows, and wait until Kafka has them; yield each table when it is done.

    Raises RequestRejected if no daemon uses the slot, if the daemon cannot receive the requests, or passes over one.
    """
    source = settings.source
    with ExitStack() as stack:
        progress = stack.enter_context(open_progress(settings))
        session = stack.enter_context(requests_session(settings))
        daemon = stack.enter_context(DaemonWait(settings))
        last = progress.last_record()
        progress.settle()
        done = {each.topic: each for each in progress.snapshots_topic().repairs if isinstance(each, TableRepairs)}
        waiting: list[_Asked] = []
        for result, differences in wanted:
            if not waiting:
                daemon.until_there()
            asked = _Asked((result.schema, result.name), result.topic, done.get(result.topic))
            for part in repair_keys(result, differences):
                sent = send_repair(settings, session, *asked.name, part, last)
                asked.sent = SentRequest(asked.sent.lsn if asked.sent else sent.lsn, sent.received_lsn)
                asked.records.add(pending_repair(source.slot, asked.topic, *asked.name, part).key())
            waiting.append(asked)
        while waiting:
            last = progress.last_record()
            progress.settle()
            found = progress.snapshots_topic().repairs
            pending = {each.key() for each in found if isinstance(each, PendingRepair)}
            done = {each.topic: each for each in found if isinstance(each, TableRepairs)}
            for asked in waiting.copy():
                assert asked.sent is not None
                if last is not None and last.lsn >= asked.sent.received_lsn and not asked.records & pending:
                    yield _repaired(asked, done.get(asked.topic))
                    waiting.remove(asked)
            parked = progress.parked()
            for asked in waiting:
                if (name := qualified_name(*asked.name)) in parked:
                    hint = f"Run: cdcd unpark {shell_word(name)}. The repair then follows by itself"
                    raise RequestRejected(
                        f"{name} is parked, so the daemon does not repair it", hint, code="table-parked"
                    )
            if waiting:
                lsns = (asked.sent.received_lsn for asked in waiting if asked.sent is not None)
                daemon.turn(POLL_S, last, max(lsns, default=0))


def _repaired(asked: _Asked, done: TableRepairs | None) -> Repaired:
    name, before = qualified_name(*asked.name), asked.before
    if done is None or asked.sent is None or done.lsn <= asked.sent.lsn:
        raise RequestRejected(
            f"the daemon passed over the repair of {name}", "Its log says why", code="request-passed-over"
        )
    rows, deletes = (0, 0) if before is None else (before.rows, before.deletes)
    return Repaired(name, done.rows - rows, done.deletes - deletes, done.lsn)


def _in_range(session: Session, result: TableResult, limits: RepairLimits) -> Iterator[Difference]:
    column = result.key[0]
    types = session.rows(_KEY_TYPE, [result.schema, result.name, column])
    if not types:
        raise RequestRejected(
            f"the type of {column} is not PostgreSQL's own, so {result.table} has no range of keys",
            code="arguments-invalid",
        )
    [(name,)] = types
    values = [each.key[column] for each in result.differences]
    low, high = limits.key_from, limits.key_to
    try:
        rows = session.rows(_IN_RANGE.format(type=name), [values, low, low, high, high])
    except StatementRejected as error:
        raise RequestRejected(
            f"the range of keys is not one of {name}: {error.message}", code="arguments-invalid"
        ) from error
    inside = {key for (key,) in rows}
    yield from (each for each in result.differences if each.key[column] in inside)
