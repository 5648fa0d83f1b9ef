"""`cdcd unpark`: asks the daemon to publish the parked events of tables on their own topics, and waits for the end.

Before: `cli.main` has parsed the options. After: the daemon that uses the slot finds the request in its stream.

When the slot's progress is past the LSN of the request, the slot record shows the state of the replay: in progress,
done (the record does not name the table any more), or refused again.
"""

from __future__ import annotations

import json
import logging
from argparse import Namespace
from collections.abc import Sequence
from typing import Final, TextIO

from cdcd.cli.commands import Load
from cdcd.cli.commands.daemon_request import requests_session, send_request
from cdcd.cli.commands.daemon_wait import DaemonWait
from cdcd.config.settings import Settings
from cdcd.errors import RequestRejected, SettingsError
from cdcd.lsn import format_lsn
from cdcd.progress.daemon_requests import DISCARD, UNPARK
from cdcd.progress.records import ParkedTable
from cdcd.reading.slot_progress import open_progress
from cdcd.sink.kafka.progress_store import ProgressStore
from cdcd.source.table_selection import qualified_name, select_tables, shell_word
from cdcd.verify.progress_wait import unfinished_snapshots

POLL_S: Final = 0.3

log = logging.getLogger(__name__)


def execute(args: Namespace, load: Load, out: TextIO) -> bool:
    """Unpark the tables that the options name, or list what is parked."""
    settings = load().settings
    if args.discard and not args.tables:
        raise SettingsError(
            "cdcd unpark --discard needs a table",
            "cdcd unpark, without a table, lists what is parked",
            code="arguments-invalid",
        )
    unpark(settings, args.tables, discard=args.discard, wait=not args.no_wait, as_json=args.json, out=out)
    return True


def unpark(
    settings: Settings, tables: Sequence[str], *, discard: bool = False, wait: bool, as_json: bool, out: TextIO
) -> None:
    """Request a replay of each of `tables`. With `wait`, wait until it is done. Without tables, list parked tables.

    `tables` are written as `schema.table`; `*` is any characters. With `discard`, the daemon discards the parked events
    and takes a new snapshot of the tables.

    Raises RequestRejected if a table is not parked, if no daemon uses the slot, if the daemon cannot receive requests,
    or if Kafka refuses the events again.
    """
    with open_progress(settings) as progress:
        last, parked = progress.last_record(), progress.parked()
        if not tables:
            show = _as_json if as_json else _as_text
            if not parked and not as_json:
                out.write("no table is parked\n")
            out.writelines(f"{show(name, table)}\n" for name, table in sorted(parked.items()))
            return
        known = {(table.schema, table.table): name for name, table in parked.items()}
        wanted = select_tables(tables, known, lambda word: f"the table {word} is not parked", "cdcd unpark")
        with requests_session(settings) as session, DaemonWait(settings) as daemon:
            if wait:
                daemon.until_there()
            for name in map(known.__getitem__, wanted):
                table = parked[name]
                action = DISCARD if discard else UNPARK
                sent = send_request(settings, session, action, table.schema, table.table, last)
                if wait:
                    _wait(progress, daemon, name, sent.received_lsn)
                state = "requested" if not wait else "discarded" if discard else "unparked"
                follows = wait and _snapshot_follows(progress, table)
                waiting = f"cdcd verify --wait 600 {shell_word(name)}"
                more = f"; a new snapshot of it follows by itself. To wait for it: {waiting}" if follows else ""
                document = {"table": name, "state": state} | ({"snapshot_follows": True} if follows else {})
                out.write(f"{json.dumps(document) if as_json else f'{state} {name}{more}'}\n")
                out.flush()


def _wait(progress: ProgressStore, daemon: DaemonWait, name: str, lsn: int) -> None:
    is_logged = False
    while True:
        last = progress.last_record()
        if last is not None and last.lsn >= lsn:
            table = {qualified_name(each.schema, each.table): each for each in last.parked}.get(name)
            if table is None:
                return
            if not table.is_replaying:
                raise RequestRejected(
                    f"{name} stays parked: {table.reason}",
                    "Correct the cause, and run the command again: its events keep their sequence. If you cannot, "
                    f"run: cdcd unpark --discard {shell_word(name)}. It discards the parked events, and takes a new "
                    "snapshot",
                    code="table-parked",
                )
        elif not is_logged:
            log.info("requested; waiting for the daemon", extra={"table": name, "lsn": format_lsn(lsn)})
            is_logged = True
        daemon.turn(POLL_S, last, lsn)


def _snapshot_follows(progress: ProgressStore, table: ParkedTable) -> bool:
    """Whether the table's topic is still not complete: changes were missing while it was parked, for example."""
    progress.settle()
    return bool(unfinished_snapshots(progress, [(table.schema, table.table)]))


def _as_text(name: str, table: ParkedTable) -> str:
    state = "being replayed" if table.is_replaying else "parked"
    return f"{name} {state}, its topic ends at {format_lsn(table.lsn)}; the reason then: {table.reason}"


def _as_json(name: str, table: ParkedTable) -> str:
    return json.dumps({"table": name, **table.document()}, ensure_ascii=False)
