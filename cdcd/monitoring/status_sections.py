"""The words of the status: what the page and `cdcd top` show of the document, in the same order. Pure.

Before: `status_report` made the document, here or in another process.
After: `status_page` makes HTML of the sections, `status_text` lines of a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from cdcd.monitoring.status_report import Document
from cdcd.terminal.text_format import duration, plural, size

Facts: TypeAlias = "list[tuple[str, str]]"

_NAMES: Final = {".messages": "logical messages", ".transaction": "transaction metadata"}
"""Shown instead of a name that is not a table's, because it has no schema."""


@dataclass(frozen=True)
class Grid:
    """A table of text. The first column has names, the others numbers."""

    head: tuple[str, ...]
    rows: list[tuple[str, ...]]


def title(document: Document) -> str:
    """The daemon in one line: `cdcd 0.1.0 (compiled)`."""
    daemon = document["daemon"]
    build = f" ({daemon['build']})" if daemon["build"] else ""
    return f"cdcd {daemon['version']}{build}"


def place(document: Document) -> str:
    """Where the daemon stands, in one line: `shop@db:5432 to kafka:9092, prefix shop`."""
    return f"{document['source']['database']} to {document['sink']['brokers']}, prefix {document['sink']['prefix']}"


def to_do(document: Document) -> list[tuple[str, str]]:
    """What is wrong now, and what to do about it."""
    return [(each["problem"].rstrip("."), _with_code(each)) for each in document["next"]]


def nothing_to_do(document: Document) -> str:
    """The sentence for a daemon that has nothing wrong."""
    by_state = {
        "streaming": "Nothing: changes flow",
        "waiting": "Nothing: another daemon streams, and this one stands by",
        "starting": "Wait: the daemon starts",
        "stopping": "Wait: the daemon stops",
    }
    return by_state.get(document["state"]["name"], "See the log")


def errors(document: Document) -> list[tuple[str, str, str]]:
    """The last errors, newest first: when, what, and the hint."""
    return [
        (f"{duration(each['ago_s'])} ago", each["message"].rstrip("."), _with_code(each)) for each in document["errors"]
    ]


def flow(document: Document) -> Facts:
    """How far the stream is."""
    found = document["flow"]
    facts = [
        ("Lag", _lag(document)),
        ("Rows a second", f"{found['rows_per_s']:,.0f}"),
        ("Since the start", _since_the_start(document)),
        ("End of the server's WAL", found["server_lsn"] or "-"),
        ("Received up to", found["received_lsn"] or "-"),
        ("Kafka holds up to", found["durable_lsn"] or "-"),
        ("Acknowledged up to", found["acked_lsn"] or "-"),
    ]
    if found["lsn_base"]:
        facts.append(("Added to the server's own LSNs", found["lsn_base"]))
    if found["synchronous"]:
        facts.append(("COMMITs", "wait for this daemon, as a synchronous standby"))
    return facts


def slot(document: Document) -> Facts:
    """The slot, as PostgreSQL describes it."""
    found = document["slot"]
    facts = [("Slot", document["source"]["slot"]), ("Publication", document["source"]["publication"])]
    if found is None:
        return [*facts, ("State", "not known")]
    state = f"invalid: {found['invalidation'] or found['wal_status']}" if found["lost"] else found["wal_status"]
    waits = ", waits for a standby of synchronized_standby_slots" if found["waits_for_standby"] else ""
    facts.append(("State", f"{'in use' if found['active'] else 'not in use'}, {state or 'no WAL held'}{waits}"))
    if not found["lost"]:
        facts.append(("WAL that the server keeps for it", size(found["retained_bytes"])))
    if found["safe_wal_bytes"] is not None:
        facts.append(("WAL until the slot is in danger", size(found["safe_wal_bytes"])))
    return facts


def inside(document: Document) -> Facts:
    """What waits in the daemon."""
    found, daemon = document["inside"], document["daemon"]
    spooled = f"{size(found['spool_memory_bytes'])} in memory, {size(found['spool_disk_bytes'])} on disk"
    return [
        ("Waiting for Kafka", f"{size(found['queue_bytes'])} in {_count(found['queue_batches'], 'batch', 'batches')}"),
        ("Spooled until they commit", f"{_count(found['spool_transactions'], 'transaction')}, {spooled}"),
        ("Running for", duration(daemon["running_s"])),
        ("Restarts of the stream", f"{daemon['restarts']:,}"),
    ]


def where(document: Document) -> Facts:
    """The daemon and its servers."""
    source, sink, daemon = document["source"], document["sink"], document["daemon"]
    facts = [
        ("Database", _with(source["database"], source["server"])),
        ("Kafka", _with(sink["brokers"], sink["cluster"])),
        ("Prefix of the topics", sink["prefix"]),
        ("Schema registry", sink["registry"]),
        ("Machine of the daemon", daemon["machine"]),
        ("Version", title(document).removeprefix("cdcd ")),
    ]
    return [(name, value) for name, value in facts if value]


def snapshot(document: Document) -> tuple[str, Grid] | None:
    """The snapshot that is under way: a sentence, and the tables that are not complete. None: there is none."""
    found = document["snapshot"]
    if found is None:
        return None
    head = ("Table", "Done", "Left", "Rows", "Rows a second")
    grid = Grid(
        head,
        [
            (
                each["name"],
                f"{int(each['share'] * 100)} %",
                f"{size(each['bytes_left'])} of {size(each['bytes'])}",
                f"{each['rows']:,}",
                f"{each['rows_per_s']:,.0f}",
            )
            for each in found["unfinished"]
        ],
    )
    if (more := found["tables_left"] - len(found["unfinished"])) > 0:
        grid.rows.append((plural(more, "more table"), "", "", "", ""))
    if waiting := found.get("waiting"):
        return f"{plural(waiting, 'table')} not copied yet: snapshots wait for their hours", grid
    if not found["lsn"]:
        return "PostgreSQL prepares it, and waits for the end of transactions that write", grid
    if not found["is_read"]:
        return f"Taken at {found['lsn']}: the stream comes to this LSN first", grid
    left = "" if found["seconds_left"] is None else f", about {duration(found['seconds_left'])} left"
    tables = f"{found['tables_left']:,} of {plural(found['tables'], 'table')} not complete"
    rows = _count(found["rows"], "row")
    paused = "Waits for its hours, " if found.get("is_out_of_hours") else ""
    paused = "Paused, " if found["is_paused"] else paused
    return f"{paused}{share_of(document)} % read{left}: {tables}, {rows}, as of {found['lsn']}", grid


def share_of(document: Document) -> int:
    """How much of the snapshot was read, in percent."""
    return int(document["snapshot"]["share"] * 100)


def tables(document: Document) -> Grid:
    """The busiest tables since the start."""
    head = ("Table", "State", "Changes", "Copied", "Rows a second", "Delay", "Last change")
    copying = {each["name"]: each for each in (document["snapshot"] or {"unfinished": []})["unfinished"]}
    parked = {each["table"] for each in document["parked"]}
    rows: list[tuple[str, ...]] = []
    for each in document["tables"]:
        name = each["name"]
        state = "copying" if name in copying else "parked" if name in parked else ""
        delay = "-" if each["delay_s"] is None else _delay(each["delay_s"])
        ago = "-" if each["last_commit_ago_s"] is None else f"{duration(each['last_commit_ago_s'])} ago"
        counts = f"{each['rows']:,}", f"{each['copied_rows']:,}", f"{each['rows_per_s']:,.0f}"
        rows.append((_NAMES.get(name, name), state, *counts, delay, ago))
    more = document["more_tables"]
    if more["tables"]:
        counts = f"{more['rows']:,}", f"{more['copied_rows']:,}", f"{more['rows_per_s']:,.0f}"
        rows.append((plural(more["tables"], "more table"), "", *counts, "", ""))
    return Grid(head, rows)


TABLES_CAPTION: Final = (
    "Delay: from PostgreSQL's commit of the last changes to Kafka's. The lag holds for all tables. The changes of a "
    "table that is being copied follow its copy."
)


@dataclass(frozen=True)
class Plot:
    """The last quarter of an hour of one number."""

    title: str
    points: list[tuple[float, float]]
    """How many seconds ago, and the number; the newest last."""
    top: float
    """The upper end of the scale, a round number; the lower end is 0."""
    top_text: str
    middle_text: str
    now_text: str
    most_text: str

    @property
    def label(self) -> str:
        """What the plot shows, in words."""
        return f"{self.title}: now {self.now_text}, at most {self.most_text} in the last quarter of an hour"


PLOTS_S: Final = 900
"""All plots have the same scale of time: the last quarter of an hour."""

_SECONDS: Final = (1, 2, 4, 10, 20, 60, 120, 240, 600, 1200, 3600, 7200, 14_400, 43_200, 86_400)
_BYTES: Final = tuple(1 << exponent for exponent in range(20, 50, 2))
_NUMBERS: Final = tuple(factor * 10**exponent for exponent in range(1, 8) for factor in (1, 2, 4))


def plots(document: Document) -> list[Plot]:
    """The plots; none before there is something to show."""
    samples = document["history"]
    if len(samples) < 2:
        return []
    lag, wal, rate = ([(each[0], each[number]) for each in samples] for number in (1, 2, 3))
    return [
        _plot("Lag", lag, _SECONDS, duration),
        _plot("WAL that Kafka does not hold", wal, _BYTES, lambda number: size(int(number))),
        _plot("Rows a second", rate, _NUMBERS, lambda number: f"{number:,.0f}"),
    ]


def _plot(name: str, points: list[tuple[float, float]], scales: Sequence[int], text: Callable[[float], str]) -> Plot:
    most = max(number for _, number in points)
    top = next((scale for scale in scales if scale >= most), most)
    return Plot(name, points, top, text(top), text(top / 2), text(points[-1][1]), text(most))


def _lag(document: Document) -> str:
    found = document["flow"]
    if found["lag_s"] is None:
        return "-" if document["state"]["name"] == "waiting" else "not known before the first stream"
    if found["lag_bytes"] is None:
        return f"at least {duration(found['lag_s'])}, WAL not known"
    return f"{duration(found['lag_s'])}, {size(found['lag_bytes'])} of WAL"


def _since_the_start(document: Document) -> str:
    found = document["flow"]
    copied = f", and {_count(found['copied_rows'], 'copied row')}" if found["copied_rows"] else ""
    return f"{_count(found['rows'], 'change')} in {_count(found['transactions'], 'transaction')}{copied}"


def _count(count: int, noun: str, nouns: str = "") -> str:
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def _with_code(error: Document) -> str:
    """The hint, and the code, which `cdcd explain` explains."""
    return f"{error['hint']} [{error['code']}]".strip() if error["code"] else str(error["hint"])


def _delay(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else duration(seconds)


def _with(name: str, more: str) -> str:
    return f"{name} ({more})" if more else name
