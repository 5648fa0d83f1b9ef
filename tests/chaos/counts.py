"""Rows that count how often they were changed: for the outbox and for snapshots, which no ledger can foretell.

Before: `draws` has the settings; a `CountWriter` changes rows, a `Person` pauses and stops snapshots. After: `Counts`
says what is wrong; `topic_check` hands it the records of these topics, `run` compares with the tables at the end.

Each change adds 1 to `v` of its row. So the changes of a row must be 1, 2, 3 to the value of the table: what is lost,
doubled or out of order shows without a ledger, in every format. `told` has an event in the outbox for each change, in
the same transaction: its aggregate's events must count likewise, and at every cut both have come as far. `copied` and
`stopped` hold rows before there is a slot: a row of a snapshot must show what the changes before its LSN came to.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
from chaos.events import Format, Position, position_of, table_place
from chaos.masks import Masks
from chaos.reading import Place, Record
from support.daemon import command, environment

ROWS = 2_000
"""In each of the tables that are copied."""
AGGREGATES = 12
PAUSE_S = 0.05

SCHEMA = f"""
CREATE SCHEMA counted;
CREATE TABLE counted.told (id int PRIMARY KEY, v int NOT NULL, secret text);
CREATE TABLE counted.copied (LIKE counted.told INCLUDING ALL);
CREATE TABLE counted.stopped (LIKE counted.told INCLUDING ALL);
INSERT INTO counted.told SELECT i, 0, 'secret of 0' FROM generate_series(1, {AGGREGATES}) i;
INSERT INTO counted.copied SELECT i, 0, 'secret of 0' FROM generate_series(1, {ROWS}) i;
INSERT INTO counted.stopped SELECT * FROM counted.copied;
CREATE TABLE counted.outbox (
    id text PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload jsonb);
"""

TOLD, COPIED, STOPPED = TABLES = ("told", "copied", "stopped")
AGGREGATE = "Told one"
OUTBOX: dict[str, Any] = {"table": "counted.outbox", "message_prefix": "outbox"}
SNAPSHOT: dict[str, Any] = {"mode": "initial", "chunk_bytes": 8192, "rows_per_second": 60}
ENTRIES: list[dict[str, Any]] = [
    {"match": "public.*", "snapshot": "never"},
    {"match": '"odd one".*', "snapshot": "never"},
    {"match": "counted.told", "snapshot": "never"},
    {"match": "counted.copied", "where": "id % 3 <> 0", "order": -1},
]


def _is_wanted(table: str, row: int) -> bool:
    """Whether the settings let a snapshot publish the row."""
    return table == STOPPED or (table == COPIED and row % 3 != 0)


class CountWriter(threading.Thread):
    """Changes rows until told to stop."""

    def __init__(self, dsn: str, seed: int) -> None:
        super().__init__(daemon=True, name="count writer")
        self._dsn = dsn
        self._random = random.Random(f"counts {seed}")
        self.done = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        """Write until `done`, with a new session whenever one is lost: the rows say what was committed."""
        try:
            while not self.done.is_set():
                try:
                    with psycopg.connect(self._dsn, connect_timeout=5) as sql:
                        while not self.done.wait(self._random.uniform(0, 2 * PAUSE_S)):
                            self._transaction(sql)
                except psycopg.OperationalError:
                    self.done.wait(0.2)
        except BaseException as error:  # noqa: BLE001  # the run's own thread reports it
            self.error = error

    def _transaction(self, sql: psycopg.Connection[Any]) -> None:
        choose = self._random
        for row in sorted(choose.sample(range(1, AGGREGATES + 1), choose.choice([1, 1, 3]))):
            self._tell(sql, row, self._count(sql, TOLD, row))
        for table in (COPIED, STOPPED):
            if choose.random() < 0.5:
                self._count(sql, table, choose.randint(1, ROWS))
        if choose.random() < 0.1:
            sql.rollback()
        else:
            sql.commit()

    def _count(self, sql: psycopg.Connection[Any], table: str, row: int) -> int:
        update = f"UPDATE counted.{table} SET v = v + 1, secret = 'secret of ' || (v + 1) WHERE id = %s RETURNING v"
        [(v,)] = sql.execute(update.encode(), (row,)).fetchall()
        return int(v)

    def _tell(self, sql: psycopg.Connection[Any], row: int, v: int) -> None:
        """Write an event, as a row that is deleted at once, as one that stays, or as a logical message."""
        event = {"id": f"{row}-{v}", "aggregatetype": AGGREGATE, "aggregateid": str(row), "type": "Counted"}
        how = self._random.choice(["deleted", "stays", "message"])
        if how == "message":
            text = json.dumps(event | {"payload": {"v": v}})
            sql.execute("SELECT pg_logical_emit_message(true, 'outbox', %s)", (text,))
            return
        sql.execute("INSERT INTO counted.outbox VALUES (%s, %s, %s, %s, %s)", (*event.values(), json.dumps({"v": v})))
        if how == "deleted":
            sql.execute("DELETE FROM counted.outbox")


class Person(threading.Thread):
    """Pauses the snapshots and resumes them while one is read, and stops the other one. Tries until it is so."""

    def __init__(self, config: str, counts: Counts) -> None:
        super().__init__(daemon=True, name="person")
        self._config = config
        self._counts = counts
        self.error: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        """Do it."""
        try:
            self._wait_for(COPIED)
            self._say("--pause")
            self.done.wait(3)
            self._say("--resume")
            self._wait_for(STOPPED)
            self._say("--stop", "counted.stopped", until=lambda: self._counts.states[STOPPED] in ("stopped", "done"))
        except BaseException as error:  # noqa: BLE001  # the run's own thread reports it
            self.error = error

    def _wait_for(self, table: str) -> None:
        """Wait until some rows of a table are copied, and not all."""
        while self._counts.states[table] == "" and not self.done.wait(0.1):
            pass

    def _say(self, *words: str, until: Callable[[], bool] = lambda: False) -> None:
        code = 1
        while code != 0 and not until() and not self.done.is_set():
            line = [*command(), "snapshot", *words, "--config", self._config]
            try:
                code = subprocess.run(line, capture_output=True, timeout=60, check=False, env=environment()).returncode
            except subprocess.TimeoutExpired:
                pass
            self.done.wait(0.5)


@dataclass
class _Row:
    """What was read of one row."""

    changed_at: list[tuple[Position, int]] = field(default_factory=list)
    """Of each change: its position and its LSN."""
    read_at: dict[Position, tuple[int, int]] = field(default_factory=dict)
    """Of each row of a snapshot, by its position: the LSN, and `v`."""


class Counts:
    """Judges the records of these tables and of the outbox. `problems` says what is wrong."""

    def __init__(self, prefix: str, form: Format, masks: Masks) -> None:
        own = {f"{prefix}.counted.{name}": name for name in TABLES}
        shared = {table_place(f"{prefix}.counts", f"counted.{name}"): name for name in TABLES}
        self._tables = own | shared
        """The names of the tables by the place of their events: each has a topic, or all have one."""
        self._topics = {place.partition("#")[0] for place in self._tables}
        self._outbox = f"{prefix}.outbox."
        self._snapshots = f"{prefix}.snapshots"
        self._form = form
        self._masks = masks
        self._before_cut: list[Record] = []
        self._rows: dict[tuple[str, int], _Row] = {}
        self._told: Counter[int] = Counter()
        """By aggregate: how many events the outbox has had."""
        self._ids: set[bytes] = set()
        self._homes: dict[int, Place] = {}
        self.states: dict[str, str] = dict.fromkeys(TABLES, "")
        """How far the snapshot of each table is, in the words of the topic of snapshots; empty: no row was read."""
        self.count: Counter[str] = Counter()
        self.problems: list[str] = []
        self._wanted: dict[tuple[str, int], int] = {}

    def has(self, topic: str) -> bool:
        """Whether it judges the records of this topic."""
        return topic in self._topics or self.has_events(topic)

    def has_events(self, topic: str) -> bool:
        """Whether it is a topic of the outbox."""
        return topic.startswith(self._outbox)

    def take(self, record: Record) -> None:
        """Take a record; it counts from its cut on."""
        self._before_cut.append(record)

    def note_snapshot(self, value: bytes) -> None:
        """Take a record of the topic of snapshots."""
        said = json.loads(value)
        table = self._tables.get(said.get("topic", ""))
        if table is not None and (said["rows"] or said["state"] in ("done", "stopped")):
            self.states[table] = said["state"]

    def close(self, ends: dict[Place, int]) -> None:
        """A cut ends at these offsets."""
        inside = [each for each in self._before_cut if each.offset < ends.get(each.place, 0)]
        if not inside:
            return
        self._before_cut = [each for each in self._before_cut if each.offset >= ends.get(each.place, 0)]
        touched: set[int] = set()
        for record in inside:
            if self.has_events(record.place[0]):
                touched.add(self._take_told(record))
            else:
                table, row = self._take_row(record)
                touched |= {row} if table == TOLD else set()
        for row in touched:
            changes = len(self._row(TOLD, row).changed_at)
            if changes != self._told[row]:
                self._problem(f"torn: aggregate {row} has {self._told[row]} events, its row {changes} changes")

    def _row(self, table: str, row: int) -> _Row:
        return self._rows.setdefault((table, row), _Row())

    def _take_told(self, record: Record) -> int:
        assert record.key is not None
        assert record.value is not None
        row, v, headers = int(record.key), json.loads(record.value)["v"], record.headers
        home = self._homes.setdefault(row, record.place)
        self._demand(home == record.place, f"order: aggregate {row} is in {home} and {record.place}")
        self._demand(v == self._told[row] + 1, f"outbox: event {v} of aggregate {row} after {self._told[row]}")
        self._demand(
            (headers["id"], headers["type"]) == (b"%d-%d" % (row, v), b"Counted"), f"outbox: headers {headers}"
        )
        if "ce_id" in headers:
            self._take_id(headers)
        self._told[row] = max(v, self._told[row])
        self.count["events of the outbox"] += 1
        return row

    def _take_row(self, record: Record) -> tuple[str, int]:
        event = self._form.event(record)
        assert event.key is not None
        assert event.after is not None
        table, row, v = self._tables[event.table_place], int(event.key["id"]), int(event.after["v"] or "")
        what = f"{table} {row}, v {v} at {event.position}"
        if "ce_id" in record.headers:
            self._take_id(record.headers)
        wanted = self._masks.secret(f"secret of {v}")
        self._demand(event.after["secret"] == wanted, f"content: {what} has the secret {event.after['secret']}")
        known = self._row(table, row)
        if event.op == "r":
            self._demand(event.position not in known.read_at, f"doubled: {what} is read twice")
            self._demand(_is_wanted(table, row), f"snapshot: {what} was not asked for")
            known.read_at[event.position] = event.lsn, v
            self.count["rows of snapshots"] += 1
        else:
            self._demand(event.op == "u", f"content: {what} has the op {event.op}")
            self._demand(v == len(known.changed_at) + 1, f"order: {what} after {len(known.changed_at)} changes")
            known.changed_at.append((event.position, event.lsn))
            self.count["changes"] += 1
        return table, row

    def _take_id(self, headers: dict[str, bytes]) -> None:
        name = headers["ce_id"]
        self._demand(name not in self._ids, f"doubled: two records have the id {name!r}")
        self._ids.add(name)
        position_of(headers)

    # The end

    def expect(self, dsn: str) -> None:
        """Nobody writes any more: the tables say what must have come."""
        with psycopg.connect(dsn) as sql:
            for table in TABLES:
                for row, v in sql.execute(f"SELECT id, v FROM counted.{table}".encode()):
                    self._wanted[table, row] = v

    def drained(self) -> bool:
        """Whether all that is expected has come, and no snapshot is being read."""
        has_ended = all(self.states[table] in ("done", "stopped") for table in (COPIED, STOPPED))
        return not self._wanted or (has_ended and not self._before_cut and self._late() is None)

    def _late(self) -> tuple[str, int] | None:
        """A row that lacks changes."""
        return next((at for at, v in self._wanted.items() if v and len(self._row(*at).changed_at) < v), None)

    def state(self) -> str:
        """What it waits for."""
        late = self._late()
        return f"counts: snapshots {self.states}, {len(self._before_cut)} records before their cut, late: {late}"

    def finish(self) -> None:
        """Judge the whole."""
        for (table, row), v in self._wanted.items():
            known = self._row(table, row)
            self._demand(len(known.changed_at) == v, f"lost: {table} {row} has {len(known.changed_at)} changes of {v}")
            is_copied = table == COPIED and _is_wanted(table, row)
            self._demand(not is_copied or bool(known.read_at), f"lost: no snapshot has {table} {row}")
            for position, (lsn, shown) in known.read_at.items():
                self._judge_read(f"{table} {row} of the snapshot at {position}", known, position, lsn, shown)
        for row in range(1, AGGREGATES + 1):
            told, wanted = self._told[row], self._wanted[TOLD, row]
            self._demand(told == wanted, f"lost: aggregate {row} has {told} events of {wanted}")

    def _judge_read(self, what: str, known: _Row, position: Position, lsn: int, shown: int) -> None:
        """The changes before a snapshot are those that it shows.

        A change says when it was made, not when it was committed: without its commit's LSN, the next one may lie before
        the snapshot, too.
        """
        self._demand(shown <= len(known.changed_at), f"snapshot: {what} shows {shown}, which nobody has written")
        if 0 < shown <= len(known.changed_at):
            self._demand(known.changed_at[shown - 1][1] < lsn, f"snapshot: {what} shows {shown}, which came later")
        if self._form.has_commit_lsn and shown < len(known.changed_at):
            following, _ = known.changed_at[shown]
            self._demand(following[0] > position[0], f"snapshot: {what} shows {shown}, and lacks what was before it")

    def _demand(self, holds: bool, what: str) -> None:
        if not holds:
            self._problem(what)

    def _problem(self, what: str) -> None:
        if len(self.problems) < 30:
            self.problems.append(what)
