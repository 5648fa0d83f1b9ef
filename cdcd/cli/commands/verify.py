"""`cdcd verify`: prints whether the topics have the same rows as the tables, and every key that differs.

Before: `cli.main` has parsed the options. After: a person reads the lines, or a script the JSON. With `--repair`,
`repair` asks the daemon to publish what differs.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import TextIO

from cdcd.cli.commands import Load
from cdcd.cli.commands.repair import Repaired, RepairLimits, repair, to_repair
from cdcd.config.format_choice import refuse_unread
from cdcd.errors import SettingsError
from cdcd.lsn import format_lsn
from cdcd.source.table_selection import shell_word
from cdcd.terminal.progress_bar import ProgressBar
from cdcd.terminal.visible_text import word
from cdcd.verify.comparison import CHANGED, EXTRA, MISSING, Comparison, Difference, TableResult


def execute(args: Namespace, load: Load, out: TextIO) -> bool:
    """Compare the tables that the options name, or all; return True if no key differs, or all were repaired."""
    limits = _limits(args)
    settings = load().settings
    refuse_unread(settings, "cdcd verify")
    comparison = Comparison(settings, ProgressBar(sys.stderr))
    is_equal, wanted = True, list[tuple[TableResult, list[Difference]]]()
    for result in comparison.run(args.tables, args.wait):
        out.writelines(f"{line}\n" for line in (as_json(result) if args.json else as_text(result)))
        found = to_repair(settings, result, limits) if limits is not None and not result.is_equal else []
        is_equal = is_equal and len(found) == len(result.differences)
        if found:
            wanted.append((result, found))
        if found and args.dry_run:
            out.write(_would_repair(result, len(found), as_json=args.json))
        out.flush()
    if args.dry_run:
        return is_equal and not wanted
    for repaired in repair(settings, wanted) if wanted else ():
        out.write(_repaired(repaired, as_json=args.json))
        out.flush()
    return is_equal


def _limits(args: Namespace) -> RepairLimits | None:
    """Which rows to repair; None: nothing was asked to be repaired."""
    if not args.repair:
        if args.dry_run or args.key_from is not None or args.key_to is not None:
            raise SettingsError(
                "--dry-run, --key-from and --key-to are options of a repair", "Add --repair", code="arguments-invalid"
            )
        return None
    return RepairLimits(args.max_rows, args.key_from, args.key_to)


def _would_repair(result: TableResult, rows: int, *, as_json: bool) -> str:
    if as_json:
        return json.dumps({"table": result.table, "would_repair": rows}) + "\n"
    return f"{result.table}: {rows:,} rows would be repaired\n"


def _repaired(done: Repaired, *, as_json: bool) -> str:
    lsn = format_lsn(done.lsn)
    if as_json:
        found = {"table": done.table, "published": done.rows, "deleted": done.deletes, "lsn": lsn}
        return json.dumps(found) + "\n"
    return f"{done.table}: repaired at {lsn}, {done.rows:,} rows published, {done.deletes:,} deleted\n"


def as_json(result: TableResult) -> list[str]:
    """One line for each difference, then one for the table."""
    summary = {
        "table": result.table,
        "topic": result.topic,
        "rows": result.rows,
        "rows_in_kafka": result.rows_in_kafka,
        "events": result.events,
        "oldest_events_gone": result.oldest_events_gone,
        "other_keys": result.other_keys,
        **{kind: result.count(kind) for kind in (CHANGED, MISSING, EXTRA)},
        "equal": result.is_equal,
        "lsn": format_lsn(result.lsn),
    }
    lines = [*(each.__dict__ for each in result.differences), summary]
    return [json.dumps(line, ensure_ascii=False) for line in lines]


def as_text(result: TableResult) -> list[str]:
    """One line for the table, then one for each difference."""
    hint = "; retention has removed the topic's oldest events, so rows are missing" if result.oldest_events_gone else ""
    summary = f"{result.rows:,} rows, equal" if result.is_equal else _counts(result)
    if result.other_keys:
        keys = " and ".join(
            f"under the key ({', '.join(key)})" if key else "without a key" for key in result.other_keys
        )
        command = f"cdcd snapshot {shell_word(result.table)}"
        hint += f"; the key has changed, and the topic still has events {keys}: run {command}"
    return [f"{result.table}: {summary}{hint}", *map(_difference, result.differences)]


def _counts(result: TableResult) -> str:
    words = {CHANGED: "changed", MISSING: "missing in Kafka", EXTRA: "extra in Kafka"}
    counts = [f"{result.count(kind):,} {word}" for kind, word in words.items() if result.count(kind)]
    return f"{', '.join(counts)} (PostgreSQL has {result.rows:,} rows, Kafka {result.rows_in_kafka:,})"


def _difference(difference: Difference) -> str:
    key = " ".join(f"{word(name)}={'null' if value is None else word(value)}" for name, value in difference.key.items())
    return f"    {difference.difference:8} {key}"
