"""Writers that keep a ledger: every change of each committed transaction, as the topics must show it.

Before: a PostgreSQL that may be killed at any time. After: `topic_check` takes from the ledger what it must find.

Every row carries the number of its transaction and its own number in the transaction. Rows of rolled back savepoints
are numbered too, so a row that should not be in a topic says where it comes from. If the answer to a COMMIT is lost,
the writer asks the server whether the transaction is committed (`_status`).
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg

SCHEMA = """
CREATE TABLE items (id bigint PRIMARY KEY, txn bigint, n int, pad text, body text);
ALTER TABLE items ALTER body SET STORAGE EXTERNAL;
CREATE TABLE bulk (id bigint PRIMARY KEY, txn bigint, n int, pad text);
CREATE TABLE notes (txn bigint, n int, amount numeric(12,2), at timestamptz, memo text);
ALTER TABLE notes REPLICA IDENTITY FULL;
CREATE TABLE scratch (id bigint PRIMARY KEY, txn bigint, n int);
CREATE SCHEMA hidden;
CREATE TABLE hidden.done (txn bigint PRIMARY KEY);
CREATE SCHEMA "odd one";
CREATE TABLE "odd one"."Ünï %" ("A" int, b text, txn bigint, n int, paid boolean, day date, PRIMARY KEY (b, "A"));
"""

KEYLESS = 'ALTER TABLE "odd one"."Ünï %" DROP CONSTRAINT "Ünï %_pkey", ADD UNIQUE (b, "A"), REPLICA IDENTITY FULL'
"""A table loses its primary key. The settings then have the key of its events."""

TABLES = (("public", "items"), ("public", "bulk"), ("public", "notes"), ("public", "scratch"), ("odd one", "Ünï %"))
ITEMS, BULK, NOTES, SCRATCH, ODD = (f"{schema}.{table}" for schema, table in TABLES)


class Change(NamedTuple):
    """One event that the topics must hold."""

    table: str
    op: str
    identity: tuple[Any, ...]
    """The key's values. In a table without a key: the old row's (txn, n), and nothing for an insert."""
    n: int | None
    """The number of the new row."""


@dataclass
class Transaction:
    """A transaction's changes, by statement. The server may change a statement's rows in any order."""

    number: int
    writer: int
    prepared: bool = False
    statements: list[list[Change]] = field(default_factory=list)

    @property
    def gid(self) -> str:
        """Its name, if it is prepared."""
        return f"g{self.number}"


class Step(NamedTuple):
    """A transaction has added an entry to one of a writer's lists of rows, or removed it."""

    where: list[Any]
    each: Any
    added: bool


class Prepared(NamedTuple):
    """A prepared transaction that has not ended. `due` is when to end it, on the monotonic clock."""

    xid: int
    made: Transaction
    due: float
    steps: list[Step]


class Ledger:
    """Committed transactions by xid, until `topic_check` takes them. Safe for several threads."""

    def __init__(self, shown: Callable[[Change], Change | None] = lambda change: change) -> None:
        """`shown`: what the events say of a change; None: nothing."""
        self._shown = shown
        self._lock = threading.Lock()
        self._open: dict[int, Transaction] = {}
        self.committed = self.rows = self.rolled_back = self.unsure = 0
        self.kinds: Counter[str] = Counter()

    def commit(self, xid: int, transaction: Transaction, kind: str) -> None:
        """Note a transaction that the server has committed."""
        transaction.statements = [
            [shown for change in each if (shown := self._shown(change)) is not None] for each in transaction.statements
        ]
        rows = sum(map(len, transaction.statements))
        with self._lock:
            self.committed += 1
            self.rows += rows
            self.kinds[kind] += 1
            if rows:
                assert xid & 0xFFFFFFFF not in self._open
                self._open[xid & 0xFFFFFFFF] = transaction

    def take(self, xid: int) -> Transaction | None:
        """Remove the transaction with this xid, and return it; None if it is not known (yet)."""
        with self._lock:
            return self._open.pop(xid, None)

    def left(self) -> dict[int, Transaction]:
        """The transactions that were not taken."""
        with self._lock:
            return dict(self._open)


class Writer(threading.Thread):
    """Writes transactions until told to stop, with a new session whenever one is lost."""

    def __init__(self, number: int, dsn: str, ledger: Ledger, seed: int, pause_s: float, two_phase: bool) -> None:
        super().__init__(daemon=True, name=f"writer {number}")
        self._number = number
        self._dsn = dsn
        self._ledger = ledger
        self._random = random.Random(f"{seed} {number}")
        self._pause_s = pause_s
        self._two_phase = two_phase
        self._turn = 0
        self._next_id = number << 40
        self._items: list[int] = []
        self._blocks: list[tuple[int, int]] = []
        self._notes: list[tuple[int, int]] = []
        self._odd: list[tuple[str, int]] = []
        self._steps: list[Step] = []
        self._prepared: list[Prepared] = []
        self._sql: psycopg.Connection[Any] | None = None
        self.done = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        """Write until `done`, then end the prepared transactions."""
        try:
            while not self.done.wait(self._random.uniform(0, 2 * self._pause_s)):
                self._settle_prepared(time.monotonic())
                self._transaction()
            self._settle_prepared(float("inf"))
        except BaseException as error:  # noqa: BLE001  # the run's own thread reports it
            self.error = error
        finally:
            if self._sql is not None:
                self._sql.close()

    # One transaction

    def _transaction(self) -> None:
        choose = self._random
        self._turn += 1
        made = Transaction((self._number << 32) + self._turn, self._number)
        self._steps = []
        kind = choose.choices(
            ["single", "medium", "large", "clean up", "truncate", "empty"], [80, 14, 0.8, 2.5, 0.5, 2]
        )[0]
        end = choose.choices(["COMMIT", "ROLLBACK", "PREPARE"], [88, 6, 6])[0]
        if kind == "truncate" or (end == "PREPARE" and not self._two_phase):
            end = "COMMIT"
        xid = 0
        try:
            sql = self._connected()
            sql.execute("BEGIN")
            [(xid,)] = sql.execute("SELECT pg_current_xact_id()::text::bigint").fetchall()
            self._fill(sql, made, kind)
            sql.execute("INSERT INTO hidden.done VALUES (%s)", (made.number,))
            if end == "PREPARE":
                made.prepared = True
                sql.execute(f"PREPARE TRANSACTION '{made.gid}'".encode())
                self._hold(Prepared(xid, made, time.monotonic() + choose.uniform(0, 6), self._steps))
                return
            sql.execute(end.encode())
            committed = end == "COMMIT"
        except psycopg.OperationalError:  # the connection is lost: only the server knows whether this was committed
            self._lose()
            if not xid:
                return
            self._ledger.unsure += 1
            status = self._status(made)
            if status == "prepared":
                self._hold(Prepared(xid, made, time.monotonic() + 1, self._steps))
                return
            committed = status == "committed"
        if committed:
            self._ledger.commit(xid, made, kind if end == "COMMIT" else "prepared")
        else:
            self._ledger.rolled_back += 1
            _take_back(self._steps)

    def _fill(self, sql: psycopg.Connection[Any], made: Transaction, kind: str) -> None:
        choose = self._random
        if kind == "single":
            self._one(sql, made)
        elif kind == "medium":
            for _ in range(choose.randint(2, 12)):
                self._maybe_undone(sql, made, self._one if choose.random() < 0.8 else self._several)
        elif kind == "large":
            for _ in range(choose.randint(1, 3)):
                self._maybe_undone(sql, made, self._block)
                self._one(sql, made)
        elif kind == "clean up":
            self._clean_up(sql, made)
        elif kind == "truncate":
            self._scratch(sql, made)

    def _maybe_undone(self, sql: psycopg.Connection[Any], made: Transaction, do: Any) -> None:
        """Do it, sometimes in a savepoint; some of the savepoints are rolled back."""
        if self._random.random() < 0.6:
            return do(sql, made)
        sql.execute("SAVEPOINT s")
        statements, steps = len(made.statements), len(self._steps)
        do(sql, made)
        if self._random.random() < 0.5:
            sql.execute("ROLLBACK TO SAVEPOINT s")
            _take_back(self._steps[steps:])
            del self._steps[steps:], made.statements[statements:]
        return None

    # Statements. `n` counts over the whole transaction, and rolled back rows count too.

    def _n(self, rows: int = 1) -> int:
        first, self._counted = self._counted, self._counted + rows
        return first

    _counted = 0

    def _id(self, rows: int = 1) -> int:
        first, self._next_id = self._next_id, self._next_id + rows
        return first

    def _one(self, sql: psycopg.Connection[Any], made: Transaction) -> None:
        choose = self._random
        what = choose.random()
        n = self._n()
        if what < 0.45 or len(self._items) < 50:
            key = self._id()
            body = choose.choice([None, None, "short", "b" * choose.choice([3_000, 9_000])])
            sql.execute(
                "INSERT INTO items VALUES (%s, %s, %s, repeat(md5(%s::text), 3), %s)", (key, made.number, n, n, body)
            )
            self._did(made, Change(ITEMS, "c", (key,), n))
            self._add(self._items, [key])
        elif what < 0.65:
            key = self._take(self._items)
            sql.execute("UPDATE items SET txn = %s, n = %s, pad = md5(n::text) WHERE id = %s", (made.number, n, key))
            self._did(made, Change(ITEMS, "u", (key,), n))
            self._add(self._items, [key])
        elif what < 0.75:
            key = self._take(self._items)
            sql.execute("DELETE FROM items WHERE id = %s", (key,))
            self._did(made, Change(ITEMS, "d", (key,), None))
        elif what < 0.80:  # a changed key: the TOASTed body goes along unchanged
            key, new = self._take(self._items), self._id()
            sql.execute("UPDATE items SET id = %s, txn = %s, n = %s WHERE id = %s", (new, made.number, n, key))
            made.statements += [[Change(ITEMS, "d", (key,), None)], [Change(ITEMS, "c", (new,), n)]]
            self._add(self._items, [new])
        elif what < 0.92:
            self._note(sql, made, n)
        else:
            self._odd_one(sql, made, n)

    def _note(self, sql: psycopg.Connection[Any], made: Transaction, n: int) -> None:
        what = self._random.random()
        if what < 0.6 or len(self._notes) < 20:
            amount = self._random.choice(["NaN", "0", "-12.30", "9999999999.99"])
            sql.execute("INSERT INTO notes VALUES (%s, %s, %s, clock_timestamp(), 'memo ñ')", (made.number, n, amount))
            self._did(made, Change(NOTES, "c", (), n))
            self._add(self._notes, [(made.number, n)])
            return
        old = self._take(self._notes)
        if what < 0.8:
            sql.execute(
                "UPDATE notes SET txn = %s, n = %s, at = 'infinity' WHERE txn = %s AND n = %s", (made.number, n, *old)
            )
            self._did(made, Change(NOTES, "u", old, n))
            self._add(self._notes, [(made.number, n)])
        else:
            sql.execute("DELETE FROM notes WHERE txn = %s AND n = %s", old)
            self._did(made, Change(NOTES, "d", old, None))

    def _odd_one(self, sql: psycopg.Connection[Any], made: Transaction, n: int) -> None:
        if self._random.random() < 0.6 or len(self._odd) < 10:
            key = (f"clé {self._number}", self._id() & 0x3FFFFFFF)
            sql.execute(
                """INSERT INTO "odd one"."Ünï %%" VALUES (%s, %s, %s, %s, true, '0044-03-15 BC')""",
                (key[1], key[0], made.number, n),
            )
            self._did(made, Change(ODD, "c", key, n))
            self._add(self._odd, [key])
        else:
            key = self._take(self._odd)
            sql.execute("""DELETE FROM "odd one"."Ünï %%" WHERE "A" = %s AND b = %s""", (key[1], key[0]))
            self._did(made, Change(ODD, "d", key, None))

    def _several(self, sql: psycopg.Connection[Any], made: Transaction) -> None:
        rows = self._random.choice([5, 20, 100])
        first, n = self._id(rows), self._n(rows)
        sql.execute(
            "INSERT INTO items SELECT %s + i, %s, %s + i, 'several', NULL FROM generate_series(0, %s) i",
            (first, made.number, n, rows - 1),
        )
        self._did(made, *(Change(ITEMS, "c", (first + i,), n + i) for i in range(rows)))
        self._add(self._items, list(range(first, first + rows)))

    def _block(self, sql: psycopg.Connection[Any], made: Transaction) -> None:
        rows = self._random.choice([300, 1_000, 2_000])
        first, n = self._id(rows), self._n(rows)
        sql.execute(
            "INSERT INTO bulk SELECT %s::bigint + i, %s, %s + i, repeat(md5(i::text), 6) FROM generate_series(0, %s) i",
            (first, made.number, n, rows - 1),
        )
        self._did(made, *(Change(BULK, "c", (first + i,), n + i) for i in range(rows)))
        part, n = rows // 3, self._n(rows)
        sql.execute(
            "UPDATE bulk SET txn = %s, n = %s + (id - %s) WHERE id >= %s AND id < %s",
            (made.number, n, first, first, first + part),
        )
        self._did(made, *(Change(BULK, "u", (first + i,), n + i) for i in range(part)))
        self._add(self._blocks, [(first, rows)])

    def _clean_up(self, sql: psycopg.Connection[Any], made: Transaction) -> None:
        """Delete many rows, so that the tables stay small for an hour."""
        while len(self._blocks) > 2:
            first, rows = self._take(self._blocks)
            sql.execute("DELETE FROM bulk WHERE id >= %s AND id < %s", (first, first + rows))
            self._did(made, *(Change(BULK, "d", (first + i,), None) for i in range(rows)))
        while len(self._items) > 2_000:
            gone = [self._take(self._items) for _ in range(500)]
            sql.execute("DELETE FROM items WHERE id = ANY(%s)", (gone,))
            self._did(made, *(Change(ITEMS, "d", (key,), None) for key in gone))
        while len(self._notes) > 200:
            old = self._take(self._notes)
            sql.execute("DELETE FROM notes WHERE txn = %s AND n = %s", old)
            self._did(made, Change(NOTES, "d", old, None))

    def _scratch(self, sql: psycopg.Connection[Any], made: Transaction) -> None:
        """Truncate a table. Only the first writer does: several would wait for each other."""
        if self._number != 1:
            return self._one(sql, made)
        sql.execute("TRUNCATE scratch")
        self._did(made, Change(SCRATCH, "t", (), None))
        for _ in range(3):
            key, n = self._id(), self._n()
            sql.execute("INSERT INTO scratch VALUES (%s, %s, %s)", (key, made.number, n))
            self._did(made, Change(SCRATCH, "c", (key,), n))
        return None

    # The rows that this writer believes to be in the tables, and how to undo a transaction's steps

    def _did(self, made: Transaction, *changes: Change) -> None:
        made.statements.append(list(changes))

    def _add(self, where: list[Any], added: list[Any]) -> None:
        where.extend(added)
        self._steps.extend(Step(where, each, True) for each in added)

    def _take(self, where: list[Any]) -> Any:
        at = self._random.randrange(len(where))
        where[at], where[-1] = where[-1], where[at]
        each = where.pop()
        self._steps.append(Step(where, each, False))
        return each

    def _hold(self, prepared: Prepared) -> None:
        """Leave the rows of a prepared transaction alone: they are locked until it has ended."""
        _put(prepared.steps, lambda *_: False)
        self._prepared.append(prepared)

    # The server

    def _connected(self) -> psycopg.Connection[Any]:
        while self._sql is None:
            try:
                self._sql = psycopg.connect(self._dsn, autocommit=True, connect_timeout=5)
            except psycopg.OperationalError:
                time.sleep(0.1)
        return self._sql

    def _lose(self) -> None:
        if self._sql is not None:
            self._sql.close()
        self._sql = None

    def _status(self, made: Transaction) -> str:
        """The state of a transaction whose end was not answered: committed, aborted or prepared.

        `pg_xact_status` cannot say it: after a crash, the server may assign an xid again that had not reached its disk.
        """
        prepared = "SELECT FROM pg_prepared_xacts WHERE gid = %s"
        done = "SELECT FROM hidden.done WHERE txn = %s"
        while True:
            try:
                sql = self._connected()
                if sql.execute(prepared, (made.gid,)).fetchone() is not None:
                    return "prepared"
                return "aborted" if sql.execute(done, (made.number,)).fetchone() is None else "committed"
            except psycopg.OperationalError:
                self._lose()

    def _settle_prepared(self, now: float) -> None:
        for each in [each for each in self._prepared if each.due <= now]:
            self._prepared.remove(each)
            wanted = self._random.choice(["COMMIT", "COMMIT", "ROLLBACK"])
            status = "prepared"
            while status == "prepared":
                try:
                    self._connected().execute(f"{wanted} PREPARED '{each.made.gid}'".encode())
                    status = "committed" if wanted == "COMMIT" else "aborted"
                except psycopg.OperationalError:
                    self._lose()
                    status = self._status(each.made)
            if status == "committed":
                _put(each.steps, lambda _, after: after)
                self._ledger.commit(each.xid, each.made, "prepared")
            else:
                _put(each.steps, lambda before, _: before)
                self._ledger.rolled_back += 1


def _take_back(steps: list[Step]) -> None:
    """Undo these steps: make the lists what they were before."""
    _put(steps, lambda before, _: before)


def _put(steps: list[Step], wanted: Callable[[bool, bool], bool]) -> None:
    """Keep or drop each entry that these steps moved, as `wanted(was in the list before, is in it after)` says."""
    moved: dict[tuple[int, Any], tuple[list[Any], bool, bool]] = {}
    for step in steps:
        place = id(step.where), step.each
        moved[place] = (step.where, moved[place][1] if place in moved else not step.added, step.added)
    for where in {id(where): where for where, _, _ in moved.values()}.values():
        keep = [each for each in where if (id(where), each) not in moved]
        keep += [each for (at, each), (_, before, after) in moved.items() if at == id(where) and wanted(before, after)]
        where[:] = keep
