"""`cdcd unpark`: asks the daemon to replay the parked events of tables onto their own topics, and waits until it has.

Before: `cli.main` has loaded the settings. After: the daemon that has the slot finds the request in its stream.

Once the slot's progress is beyond the request's place, its record says whether the replay is under way, done (the table
is not in it any more), or was refused again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Final, TextIO

from cdcd.cli.commands.daemon_request import ask
from cdcd.config.settings import Settings
from cdcd.daemon.kafka_takeover import KafkaTakeover, reading
from cdcd.errors import RequestRejected
from cdcd.lsn import format_lsn
from cdcd.progress.daemon_requests import DISCARD, UNPARK
from cdcd.progress.records import ParkedTable
from cdcd.source.session import Session
from cdcd.source.table_selection import select_tables
from cdcd.wakeup import WakeupPipe

POLL_S: Final = 0.3

log = logging.getLogger(__name__)


def unpark(
    settings: Settings, tables: Sequence[str], *, discard: bool = False, wait: bool, as_json: bool, out: TextIO
) -> None:
    """Ask for each of `tables` and wait until it is done; without tables, list what is parked.

    `tables` are written as `schema.table`; `*` stands for any characters. With `discard` the parked events are given
    up, and the tables copied afresh.

    Raises RequestRejected if a table is not parked, if the daemon cannot be asked, or if the replay was refused again.
    """
    with reading(settings) as progress:
        parked = progress.parked()
        if not tables:
            shown = _as_json if as_json else _as_text
            if not parked:
                log.info("no table is parked")
            out.writelines(f"{shown(name, table)}\n" for name, table in sorted(parked.items()))
            return
        wanted = select_tables(
            tables, parked, lambda word: f"the table {word} is not parked", "cdcd unpark without a table"
        )
        with Session(settings.source.dsn, settings.source.application_name) as session:
            for name in wanted:
                table = parked[name]
                lsn = ask(settings, session, DISCARD if discard else UNPARK, table.schema, table.table)
                if wait:
                    _wait(progress, name, lsn)
                said = "asked" if not wait else "discarded" if discard else "unparked"
                out.write(f"{json.dumps({'table': name, 'state': said}) if as_json else f'{said} {name}'}\n")
                out.flush()


def _wait(progress: KafkaTakeover, name: str, lsn: int) -> None:
    wake, told = WakeupPipe(), False
    while True:
        last = progress.last_record()
        if last is not None and last.lsn >= lsn:
            table = {f"{each.schema}.{each.table}": each for each in last.parked}.get(name)
            if table is None:
                return
            if not table.unparking:
                raise RequestRejected(
                    f"{name} stays parked: {table.reason}",
                    "Mend that first, the order holds. If it cannot be mended: `cdcd unpark --discard` gives the "
                    "parked events up, and has the table copied afresh",
                )
        elif not told:
            log.info("asked; waiting for the daemon", extra={"table": name, "lsn": format_lsn(lsn)})
            told = True
        wake.wait(POLL_S)


def _as_text(name: str, table: ParkedTable) -> str:
    state = "being replayed" if table.unparking else "parked"
    return f"{name} {state}, its topic ends at {format_lsn(table.lsn)}: {table.reason}"


def _as_json(name: str, table: ParkedTable) -> str:
    return json.dumps({"table": name, **table.document()}, ensure_ascii=False)
