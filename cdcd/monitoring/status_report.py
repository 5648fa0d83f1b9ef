"""The status of the daemon as one document: the JSON at /status.json, which the page and `cdcd top` show.

Before: `status` has the facts. After: `status_page` and `status_text` show the document, by `status_sections`.

Numbers have their unit in their name. LSNs are PostgreSQL's text, or None where none is known. Names and messages come
from outside, and may hold any character.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from cdcd.lsn import INVALID, format_lsn
from cdcd.monitoring.status import State, Status, TableCounts
from cdcd.snapshot.chunks import BLOCK_BYTES
from cdcd.source.server_errors import STANDBY_AWAY_HINT
from cdcd.source.table_selection import shell_word
from cdcd.terminal.text_format import duration
from cdcd.terminal.visible_text import visible

FORMAT: Final = 1
"""Changes when a reader of an earlier document would misread a later one."""

TABLES_MAX: Final = 50
"""The busiest tables. One more line sums up the others."""

Document: TypeAlias = "dict[str, Any]"

_STALL_HINTS: Final = {
    "loop": "If it stays so, restart the daemon, and report this as a bug with the log",
    "server": "Look whether PostgreSQL answers, and what its log says",
    "sink": "Look whether the brokers run and take records: cdcd check",
    "stream": "Correct what the last error says",
}


def report(status: Status, now_s: float, now_us: int) -> Document:
    """The document. `now_s` is monotonic, `now_us` counts from 1970 UTC."""
    who, servers = status.identity, status.servers
    return {
        "format": FORMAT,
        "time": datetime.fromtimestamp(now_us / 1e6, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "daemon": {
            "version": who.version,
            "build": who.build,
            "machine": who.machine,
            "running_s": round(now_s - status.started_s, 1),
            "restarts": status.errors.restarts,
        },
        "source": {
            "database": who.database,
            "server": servers.postgresql,
            "slot": who.slot,
            "publication": who.publication,
        },
        "sink": {"brokers": who.brokers, "cluster": servers.kafka, "prefix": who.prefix, "registry": who.registry},
        "state": _state(status, now_s),
        "next": list(_next(status, now_s)),
        "flow": _flow(status, now_s, now_us),
        "slot": _slot(status),
        "inside": _inside(status),
        "snapshot": _snapshot(status, now_s),
        **_tables(status, now_s, now_us),
        "parked": [{"table": table, "reason": reason} for table, reason in status.parked.items()],
        "errors": [
            {"ago_s": round(now_s - seen.at_s, 1), "message": seen.message, "hint": seen.hint, "code": seen.code}
            for seen in reversed(status.errors.last())
        ],
        "history": [
            [round(now_s - sample.at_s, 1), round(sample.lag_s, 3), sample.lag_bytes, round(sample.rows_per_s, 1)]
            for sample in status.history.samples()
        ],
    }


def as_json(document: Document) -> str:
    """One line of JSON. Characters that a reader would not see are escapes."""
    return visible(json.dumps(document, ensure_ascii=False))


def _state(status: Status, now_s: float) -> Document:
    stage, stalled_s = status.longest_stall(now_s)
    is_alive = stalled_s < status.stages.stalled_after_s
    lost = [loss.name for loss in status.reachability.losses().values()]
    text = status.state.value if is_alive else f"stalled: nothing moves at the {stage}"
    if lost:
        gone = " and ".join([", ".join(lost[:-1]), lost[-1]] if lost[1:] else lost)
        text = f"{text}; {gone} lost" if not is_alive or status.state is not State.STREAMING else f"{gone} lost"
    return {
        "name": status.state.name.lower(),
        "text": text,
        "is_alive": is_alive,
        "is_ready": status.is_ready(),
        "is_available": status.is_available(),
        "lost": lost,
    }


def _next(status: Status, now_s: float) -> Iterator[dict[str, str]]:
    """What is wrong now, each with what to do about it, the most urgent first."""
    losses = status.reachability.losses().values()
    for loss in losses:
        since = duration(now_s - loss.since_s)
        yield _to_do(f"{loss.name} lost for {since}: {loss.error.message}", loss.error.hint, loss.error.code)
    seen = status.errors.last()
    if status.state in (State.RESTARTING, State.FAILED) and seen and not losses:
        yield _to_do(seen[-1].message, seen[-1].hint, seen[-1].code)
    stage, stalled_s = status.longest_stall(now_s)
    if stalled_s >= status.stages.stalled_after_s:
        yield _to_do(f"nothing has moved at the {stage} for {duration(stalled_s)}", _STALL_HINTS[stage])
    slot = status.slot_state
    if slot is not None and slot.lost:
        yield _to_do(
            f"PostgreSQL has invalidated the slot: {slot.invalidation or slot.wal_status}",
            "The log says what to do; source.on_slot_lost says what a start does",
            "slot-lost",
        )
    elif slot is not None and slot.wal_status == "unreserved":
        yield _to_do(
            "the next checkpoint of PostgreSQL may remove WAL that the slot needs",
            "Raise max_slot_wal_keep_size, and look why the daemon lags",
        )
    if slot is not None and slot.waits_for_standby:
        yield _to_do("PostgreSQL sends nothing, because it waits for a standby", STANDBY_AWAY_HINT, "standby-away")
    if status.depths().snapshots_paused:
        yield _to_do(
            "the snapshots are paused, so no table is copied",
            "To let them go on, run: cdcd snapshot --resume",
            "snapshots-paused",
        )
    for table in status.depths().snapshots_stopped:
        yield _to_do(
            f"the topic of {table} lacks rows: its snapshot was stopped, or [[table]] forbids a new one",
            f"To copy the table, run: cdcd snapshot {shell_word(table)}",
            "snapshot-stopped",
        )
    for table, reason in status.parked.items():
        yield _to_do(
            f"the table {table} is parked; the reason when it was: {reason}",
            f"Correct the cause, then run: cdcd unpark {shell_word(table)}",
            "table-parked",
        )


def _to_do(problem: str, hint: str, code: str = "") -> dict[str, str]:
    return {"problem": problem, "hint": hint, "code": code}


def _flow(status: Status, now_s: float, now_us: int) -> Document:
    positions, published = status.positions, status.published
    is_known = positions.durable_lsn != INVALID  # before the first stream nobody has said what Kafka holds
    return {
        "lag_s": round(positions.lag_s(now_us), 3) if is_known else None,
        "lag_bytes": positions.lag_bytes if is_known and status.sees_server else None,
        "rows_per_s": round(published.rows_rate.per_second(now_s), 1),
        "rows": published.rows,
        "transactions": published.transactions,
        "copied_rows": published.copied_rows,
        "server_lsn": _lsn(positions.server_lsn),
        # A position without rows is handed on without being received: nothing before it was missing.
        "received_lsn": _lsn(max(positions.received_lsn, positions.durable_lsn)),
        "durable_lsn": _lsn(positions.durable_lsn),
        "acked_lsn": _lsn(positions.acked_lsn),
        "lsn_base": _lsn(positions.lsn_base) if positions.lsn_base else None,
        "synchronous": status.synchronous,
    }


def _slot(status: Status) -> Document | None:
    slot = status.slot_state
    if slot is None or not status.sees_server:
        return None
    return {
        "active": slot.active,
        "wal_status": slot.wal_status,
        "lost": slot.lost,
        "invalidation": slot.invalidation,
        "waits_for_standby": slot.waits_for_standby,
        "retained_bytes": slot.retained_bytes,
        "safe_wal_bytes": slot.safe_wal_bytes,
    }


def _inside(status: Status) -> Document:
    depths = status.depths()
    return {
        "queue_bytes": depths.queue_bytes,
        "queue_batches": depths.queue_batches,
        "spool_transactions": depths.spool_transactions,
        "spool_memory_bytes": depths.spool_memory_bytes,
        "spool_disk_bytes": depths.spool_disk_bytes,
    }


def _snapshot(status: Status, now_s: float) -> Document | None:
    found = status.snapshot(now_s)
    if found is None:
        return None
    blocks = sum(table.blocks for table in found.tables)
    left = sum(table.blocks_left for table in found.tables if not table.is_done)
    unfinished = [each for each in found.tables if not each.is_done]
    unfinished.sort(key=lambda each: -_share(each.blocks, each.blocks_left))  # tables are read one after the other
    return {
        "is_read": found.is_read,
        "is_paused": status.depths().snapshots_paused,
        "is_out_of_hours": status.depths().snapshots_out_of_hours,
        "waiting": found.waiting,
        "lsn": _lsn(found.lsn),
        "tables": len(found.tables),
        "tables_left": len(unfinished),
        "rows": sum(table.rows for table in found.tables),
        "bytes": blocks * BLOCK_BYTES,
        "bytes_left": left * BLOCK_BYTES,
        "share": _share(blocks, left),
        "seconds_left": found.seconds_left,
        "unfinished": [
            {
                "name": f"{each.schema}.{each.table}",
                "rows": each.rows,
                "bytes": each.blocks * BLOCK_BYTES,
                "bytes_left": each.blocks_left * BLOCK_BYTES,
                "share": _share(each.blocks, each.blocks_left),
                "rows_per_s": round(_rate(status, f"{each.schema}.{each.table}", now_s), 1),
            }
            for each in unfinished[:TABLES_MAX]
        ],
    }


def _share(blocks: int, left: int) -> float:
    """How much was read, from 0 to 1. Rounded down: 1 is everything."""
    return int(1000 * (blocks - left) / blocks) / 1000 if blocks else 0.0


def _rate(status: Status, name: str, now_s: float) -> float:
    table = status.published.tables.get(name)
    return 0.0 if table is None else table.rate.per_second(now_s)


def _tables(status: Status, now_s: float, now_us: int) -> Document:
    """The busiest tables, and the sum of the others."""
    tables = status.published.tables.copy()
    busiest = sorted(tables.items(), key=lambda item: (-item[1].rows - item[1].copied_rows, item[0]))
    rest = [table for _, table in busiest[TABLES_MAX:]]
    return {
        "tables": [_table(name, table, now_s, now_us) for name, table in busiest[:TABLES_MAX]],
        "more_tables": {
            "tables": len(rest),
            "rows": sum(table.rows for table in rest),
            "copied_rows": sum(table.copied_rows for table in rest),
            "rows_per_s": round(sum(table.rate.per_second(now_s) for table in rest), 1),
        },
    }


def _table(name: str, table: TableCounts, now_s: float, now_us: int) -> Document:
    ago_s = round(max(0.0, (now_us - table.last_commit_us) / 1e6), 1)
    return {
        "name": name,
        "rows": table.rows,
        "copied_rows": table.copied_rows,
        "rows_per_s": round(table.rate.per_second(now_s), 1),
        "delay_s": round(table.delay_s, 3) if table.last_commit_us else None,
        "last_commit_ago_s": ago_s if table.last_commit_us else None,
    }


def _lsn(lsn: int) -> str | None:
    return format_lsn(lsn) if lsn != INVALID else None
