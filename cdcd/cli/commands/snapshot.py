"""`cdcd snapshot`: asks the daemon for a new snapshot of tables, to stop it, or to pause all; waits until Kafka has it.

Before: `cli.main` has parsed the options. After: the daemon that uses the slot finds the request in its stream.

The snapshot records on `{prefix}.snapshots` show the progress. A record belongs to the new snapshot if its LSN is above
the LSN of the request. When the slot's progress is past the request, a record says that the snapshot is wanted; if none
does, the daemon has refused the request. The slot record says whether the snapshots are paused.
"""

from __future__ import annotations

import json
import logging
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Final, TextIO

from cdcd.cli.commands import Load
from cdcd.cli.commands.daemon_request import requests_session, send_request
from cdcd.cli.commands.daemon_wait import DaemonWait
from cdcd.clock import wall_us
from cdcd.config.settings import Settings
from cdcd.errors import RequestRejected, SettingsError
from cdcd.lsn import format_lsn
from cdcd.progress.daemon_requests import ALL_TABLES, PAUSE, RESUME, SNAPSHOT, STOP
from cdcd.progress.snapshot_records import DONE, STOPPED
from cdcd.reading.slot_progress import open_progress
from cdcd.source.published_tables import published_names
from cdcd.source.table_selection import qualified_name, select_published, shell_word
from cdcd.terminal.progress_bar import ProgressBar

POLL_S: Final = 0.5

log = logging.getLogger(__name__)


def execute(args: Namespace, load: Load, out: TextIO) -> bool:
    """Request a snapshot of the tables that the options name, or that none is taken; or a pause of all, or its end."""
    is_about_all = args.pause or args.resume
    if is_about_all and args.tables:
        raise SettingsError(
            "cdcd snapshot takes no table with --pause or --resume",
            "Leave the table out: all snapshots are paused and resumed together",
            code="arguments-invalid",
        )
    if not (is_about_all or args.tables):
        raise SettingsError(
            "cdcd snapshot needs a table",
            "Name tables, as in public.orders, or all of a schema: 'public.*'",
            code="arguments-invalid",
        )
    if is_about_all:
        pause(load().settings, is_paused=args.pause, wait=not args.no_wait, as_json=args.json, out=out)
        return True
    work = stop if args.stop else snapshot
    work(load().settings, args.tables, wait=not args.no_wait, as_json=args.json, out=out)
    return True


def snapshot(settings: Settings, tables: Sequence[str], *, wait: bool, as_json: bool, out: TextIO) -> None:
    """Request a snapshot of `tables` (`schema.table`; `*` is any characters). With `wait`, wait until Kafka has all.

    Raises RequestRejected if a table is not published or is parked, if no daemon uses the slot, or if the daemon cannot
    receive the request or refuses it.
    """
    source = settings.source
    with open_progress(settings) as progress, DaemonWait(settings) as daemon:
        with requests_session(settings) as session:
            published = published_names(session, source.publication)
            selected = select_published(tables, published, source.publication)
            if wait:
                daemon.until_there()
            requested, last = {}, progress.last_record()
            for table in selected:
                sent = send_request(settings, session, SNAPSHOT, *table, last)
                requested[progress.names.topic(*table)] = (qualified_name(*table), sent)
        bar = ProgressBar(sys.stderr)
        if wait:
            of_tables = (settings.snapshot_rules().hours(*table) for table in selected)
            hours = next((each for each in of_tables if not each.are_open(wall_us())), None)
            closed = {} if hours is None else {"hours": hours.text, "time_zone": hours.time_zone}
            log.info("requested; waiting for the daemon", extra={"tables": len(requested), **closed})
        while wait and requested:
            last = progress.last_record()
            progress.settle()
            snapshots = progress.snapshots()
            for topic, (name, sent) in list(requested.items()):
                found = snapshots.get(topic)
                if found is not None and found.lsn > sent.lsn:
                    bar.show(f"{name}: {found.rows:,} rows")
                    if found.state == STOPPED:
                        raise RequestRejected(
                            f"somebody has stopped the snapshot of {name}",
                            f"To begin it again, run: cdcd snapshot {shell_word(name)}",
                            code="snapshot-stopped",
                        )
                    if found.state == DONE:
                        bar.clear()
                        _report(name, "done", found.rows, as_json, out)
                        del requested[topic]
                elif last is not None and last.lsn >= sent.received_lsn and (found is None or found.has_ended):
                    raise _passed_over(f"a snapshot of {name}")
            if requested and last is not None and last.snapshots_paused:
                raise RequestRejected(
                    "the snapshots are paused, so the daemon takes none",
                    "Run: cdcd snapshot --resume. The requested snapshots then follow by themselves",
                    code="snapshots-paused",
                )
            if parked := {name for name, _ in requested.values()} & progress.parked().keys():
                name = min(parked)  # the daemon takes the snapshot only after `cdcd unpark`
                hint = f"Run: cdcd unpark {shell_word(name)}. The snapshot then follows by itself"
                raise RequestRejected(
                    f"{name} is parked, so the daemon takes no snapshot of it", hint, code="table-parked"
                )
            daemon.turn(POLL_S, last, max((sent.received_lsn for _, sent in requested.values()), default=0))
        for name, _ in requested.values():
            _report(name, "requested", None, as_json, out)


def stop(settings: Settings, tables: Sequence[str], *, wait: bool, as_json: bool, out: TextIO) -> None:
    """Ask the daemon to stop the snapshots of `tables`, as `snapshot`. With `wait`, wait until its progress says so.

    Raises as `snapshot`; RequestRejected, too, if the snapshot of a table is complete.
    """
    source = settings.source
    with open_progress(settings) as progress, DaemonWait(settings) as daemon:
        last = progress.last_record()
        received_lsn = 0
        with requests_session(settings) as session:
            selected = select_published(tables, published_names(session, source.publication), source.publication)
            if wait:
                daemon.until_there()
            for table in selected:
                received_lsn = send_request(settings, session, STOP, *table, last).received_lsn
        while wait and (last is None or last.lsn < received_lsn):
            daemon.turn(POLL_S, last, received_lsn)
            last = progress.last_record()
        progress.settle()
        snapshots = progress.snapshots()
    for table in selected:
        name, found = qualified_name(*table), snapshots.get(progress.names.topic(*table))
        if wait and (found is None or found.state != STOPPED):
            raise _passed_over(f"an end of the snapshot of {name}")
        _report(name, "stopped" if wait else "requested", found.rows if wait and found else None, as_json, out)


def pause(settings: Settings, *, is_paused: bool, wait: bool, as_json: bool, out: TextIO) -> None:
    """Ask the daemon to pause all snapshots, or to resume them. With `wait`, wait until its progress says so.

    Raises RequestRejected if no daemon uses the slot, or if the daemon cannot receive the request or passes it over.
    """
    with open_progress(settings) as progress, DaemonWait(settings) as daemon:
        last = progress.last_record()
        with requests_session(settings) as session:
            if wait:
                daemon.until_there()
            sent = send_request(settings, session, PAUSE if is_paused else RESUME, *ALL_TABLES, last)
        while wait and (last is None or last.lsn < sent.received_lsn):
            daemon.turn(POLL_S, last, sent.received_lsn)
            last = progress.last_record()
    if wait and last is not None and last.snapshots_paused is not is_paused:
        raise RequestRejected(
            f"the snapshots are not {'paused' if is_paused else 'resumed'}, although the daemon has the request",
            "Its log says why it passed over the request, or who has asked for the contrary since",
            code="request-passed-over",
        )
    state = "requested" if not wait else "paused" if is_paused else "resumed"
    out.write(f"{json.dumps({'state': state})}\n" if as_json else f"{state}\n")


def summary(settings: Settings, out: TextIO) -> bool:
    """Write the state of each table's snapshot, after `cdcd run --snapshot-only`; return True if all are complete."""
    with open_progress(settings) as progress:
        progress.settle()
        snapshots = sorted(progress.snapshots().values(), key=lambda each: (each.schema, each.table))
    width = max((len(f"{each.schema}.{each.table}") for each in snapshots), default=0)
    for each in snapshots:
        name = f"{each.schema}.{each.table}"
        as_of = f" as of {format_lsn(each.lsn)}" if each.lsn else ""
        state = "" if each.state == DONE else ", stopped" if each.state == STOPPED else ", incomplete"
        out.write(f"{name:{width}}  {each.rows:>15,} rows{as_of}{state}\n")
    is_complete = all(each.state == DONE for each in snapshots)
    rest = "" if is_complete else "; run it again to continue with the rest"
    out.write(f"{sum(each.rows for each in snapshots):,} rows of {len(snapshots):,} tables{rest}\n")
    return is_complete


def _passed_over(what: str) -> RequestRejected:
    return RequestRejected(
        f"the daemon passed over the request for {what}", "Its log says why", code="request-passed-over"
    )


def _report(name: str, state: str, rows: int | None, as_json: bool, out: TextIO) -> None:
    line = json.dumps({"table": name, "state": state, "rows": rows}) if as_json else f"{state} {name}"
    out.write(line + ("\n" if as_json or rows is None else f" ({rows:,} rows)\n"))
    out.flush()
