"""`cdcd snapshot`: asks the daemon for a fresh copy of tables, and waits until Kafka has it.

Before: `cli.main` has loaded the settings. After: the daemon that has the slot finds the request in its stream.

The copy has begun when the table's record names a consistent point beyond the request's place.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Sequence
from typing import Final, TextIO

from cdcd.cli.commands.daemon_request import ask
from cdcd.config.settings import Settings
from cdcd.daemon.kafka_takeover import reading
from cdcd.errors import RequestRejected
from cdcd.lsn import format_lsn
from cdcd.progress.daemon_requests import SNAPSHOT
from cdcd.progress.snapshot_records import DONE
from cdcd.source.publication import Publication
from cdcd.source.session import Session
from cdcd.source.table_selection import select_published
from cdcd.terminal.progress_bar import ProgressBar

POLL_S: Final = 0.5

log = logging.getLogger(__name__)


def snapshot(settings: Settings, tables: Sequence[str], *, wait: bool, as_json: bool, out: TextIO) -> None:
    """Ask for each of `tables` (`schema.table`, `*` stands for any characters), and wait until all are copied.

    Raises RequestRejected if one is not published or is parked, or the daemon cannot be asked.
    """
    source = settings.source
    with reading(settings) as progress:
        with Session(source.dsn, source.application_name) as session:
            published = {
                f"{table.schema}.{table.name}": (table.schema, table.name)
                for table in Publication(session, source.publication).tables()
            }
            asked = {}
            for name in select_published(tables, published, source.publication):
                lsn = ask(settings, session, SNAPSHOT, *published[name])
                asked[progress.names.topic(*published[name])] = (name, lsn)
        bar = ProgressBar(sys.stderr)
        if wait:
            log.info("asked; waiting for the daemon", extra={"tables": len(asked)})
        while wait and asked:
            copies = progress.copies()
            for topic, (name, lsn) in list(asked.items()):
                copy = copies.get(topic)
                if copy is not None and copy.lsn > lsn:
                    bar.show(f"{name}: {copy.rows:,} rows")
                    if copy.state == DONE:
                        bar.clear()
                        _say(name, "done", copy.rows, as_json, out)
                        del asked[topic]
            if parked := {name for name, _ in asked.values()} & progress.parked().keys():
                name = min(parked)  # it is not copied before it is unparked: nobody is to wait for that
                hint = f"`cdcd unpark {name}`: the copy follows by itself"
                raise RequestRejected(f"{name} is parked, and so not copied", hint)
            time.sleep(POLL_S)
        for name, _ in asked.values():
            _say(name, "asked", None, as_json, out)


def summary(settings: Settings, out: TextIO) -> bool:
    """Write what Kafka has of each table, after a run that only copied them; whether that is all of it."""
    with reading(settings) as progress:
        progress.settle()
        copies = sorted(progress.copies().values(), key=lambda copy: (copy.schema, copy.table))
    width = max((len(f"{copy.schema}.{copy.table}") for copy in copies), default=0)
    for copy in copies:
        name = f"{copy.schema}.{copy.table}"
        as_of = f" as of {format_lsn(copy.lsn)}" if copy.lsn else ""
        out.write(f"{name:{width}}  {copy.rows:>15,} rows{as_of}{'' if copy.state == DONE else ', not whole'}\n")
    whole = all(copy.state == DONE for copy in copies)
    rest = "" if whole else "; run it again to go on with what is left"
    out.write(f"{sum(copy.rows for copy in copies):,} rows of {len(copies):,} tables{rest}\n")
    return whole


def _say(name: str, state: str, rows: int | None, as_json: bool, out: TextIO) -> None:
    line = json.dumps({"table": name, "state": state, "rows": rows}) if as_json else f"{state} {name}"
    out.write(line + ("\n" if as_json or rows is None else f" ({rows:,} rows)\n"))
    out.flush()
