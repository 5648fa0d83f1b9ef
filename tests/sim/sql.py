"""What sessions do, as they would in SQL, and the ledger of what they committed: the truth that topics are held to.

Before: `world` says when who does something. After: `fake_postgres` has the WAL of it; `checker` has the ledger.

The ledger is kept by the sessions themselves, by what SQL means: savepoints are levels, a rollback drops one, a commit
makes the rest permanent. It knows nothing of WAL records, blocks or resending.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from sim.fake_postgres import Change, Record, Server, Table
from sim.publication import GivenPublication

from cdcd.pgoutput.messages import KEY, NO_OLD, OLD
from cdcd.pgoutput.tuples import UNCHANGED, Binary, ColumnValue
from cdcd.progress.daemon_requests import PAUSE, REPAIR, RESUME, SNAPSHOT, STOP, UNPARK
from cdcd.progress.repair_records import RepairKeys

INT4, TEXT, BYTEA = 23, 25, 17

TABLES = [
    Table(16_001, "public", "orders", "d", ("id",), (("id", INT4), ("note", TEXT))),
    Table(16_002, "public", "lines", "f", ("id",), (("id", INT4), ("note", TEXT), ("more", TEXT))),
    Table(16_003, "audit", "log", "f", (), (("id", INT4), ("note", TEXT))),
]

KEYS = [("id",), ("note",), ("id", "note")]
"""The primary keys that a table with the replica identity DEFAULT may get."""
POISON = Table(16_007, "stranger", "poison", "d", ("id",), (("id", INT4), ("note", TEXT)))
"""A stranger's table, whose topic Kafka refuses."""

_REQUEST = tuple((name, TEXT) for name in ("slot", "action", "table_schema", "table_name", "requested_by", "keys"))
REQUESTS = Table(16_008, "cdcd", "requests", "d", ("id",), (("id", INT4), *_REQUEST))
"""The table of requests. It is published, but its rows are no events."""
FORGED_REQUESTS = Table(16_009, "cdcd", "requests", "d", ("id",), (("id", INT4), *_REQUEST))
"""The table of that name that a stranger has made, in worlds where nobody may ask."""

_EVENT = tuple((name, TEXT) for name in ("aggregatetype", "aggregateid", "type", "payload"))
OUTBOX = Table(16_010, "public", "outbox", "d", ("id",), (("id", INT4), *_EVENT))
"""The outbox, in worlds that have one. It is published, but no topic has its rows."""
OUTBOX_TOPICS = "outbox."
"""What the names of the topics of aggregates begin with, behind the prefix."""

Row = dict[str, Any]

_ASKS = "?"
"""The op of an event that is a request: it goes to no topic."""
_REKEYS = "k"
"""The op of an event that is an ALTER TABLE with another key: it goes to no topic either."""


@dataclass
class AskedPause:
    """A committed request to pause all snapshots, or to resume them."""

    end_lsn: int
    is_paused: bool


@dataclass
class Asked:
    """A committed request for a fresh snapshot of a table, or for its end, which the daemon must serve."""

    end_lsn: int
    table: tuple[str, str]


@dataclass
class AskedRepair:
    """A committed request to repair some rows of a table, which the daemon must serve once."""

    end_lsn: int
    table: tuple[str, str]
    keys: str


@dataclass
class Event:
    """One event that must be in Kafka: `fields` of the envelope but the positions, which the transaction gives."""

    table: tuple[str, str]
    op: str
    lsn: int
    key: Row | None
    before: Row | None
    after: Row | None
    identity: str = "none"
    unchanged: list[str] = field(default_factory=list)
    oid: int = 0
    """The table's."""
    columns_of_key: tuple[str, ...] | None = None
    """The key of the table then; None for what is of no table."""

    @property
    def is_told(self) -> bool:
        """It is an event of the outbox: `after` has its key, its value and its headers."""
        return self.table[1].startswith(OUTBOX_TOPICS)


@dataclass
class Rekeyed:
    """A table that got another key. Rows that would have had one key in common were deleted before, by nobody."""

    commit_lsn: int
    at: int
    """How many events of its transaction come before it."""
    oid: int
    key: tuple[str, ...]


@dataclass
class Committed:
    """A transaction in the ledger; a message outside of transactions is one, too (`xid` 0)."""

    commit_lsn: int
    end_lsn: int
    xid: int
    commit_us: int
    """Since 1970 UTC; 0: not known."""
    origin: str | None
    events: list[Event]

    def numbered(self) -> Iterator[tuple[int, Event]]:
        """Each event with its number. Those of the outbox have numbers of their own, behind the others'."""
        told = [event for event in self.events if event.is_told]
        yield from enumerate(event for event in self.events if not event.is_told)
        yield from enumerate(told, 1 << 20)


@dataclass
class _Level:
    """The transaction, or a savepoint in it."""

    xid: int = 0
    children: list[int] = field(default_factory=list)
    """Released savepoints that wrote."""
    events: list[Event] = field(default_factory=list)
    tables: dict[int, Table] = field(default_factory=dict)
    """Altered here."""


@dataclass
class Prepared:
    """What PREPARE TRANSACTION leaves."""

    gid: str
    top: int
    events: list[Event]
    tables: dict[int, Table]
    used: set[int]
    exclusive: set[int]
    origin: str
    lsn: int


class Database:
    """All sessions of one server."""

    def __init__(self, server: Server, rng: Random) -> None:
        self.server = server
        self.rng = rng
        self.sessions: list[Session] = []
        self.prepared: list[Prepared] = []
        self.resolved: list[tuple[Prepared, Committed | None]] = []
        """Every prepared transaction that has ended, and what it became."""
        self.ledger: list[Committed] = []
        """In the order of commits, without what changed nothing."""
        self.ends: set[int] = set()
        """End LSNs of commits of whatever kind."""
        self.prepare_share = 0.15
        """Of the transactions that do not roll back."""
        self.resolve_share = 0.3
        """Of the prepared ones: ended at once."""
        self.truncate_weight = 3
        """Of a hundred writes."""
        self.rewrite_share = 0.0
        """Of the WAL that is nobody's: VACUUM FULL."""
        self.rewrites: list[tuple[int, int]] = []
        """Where the rows of which table were put into another file."""
        self.unsent_share = 0.2
        """Of the updates: they leave a large value alone."""
        self.blocks_share = 0.0
        """Of what is done in a transaction: a loop over a PL/pgSQL block with EXCEPTION, a subtransaction each time."""
        self.blocks_max = 1
        self.request_share = 0.0
        """Of the messages outside of transactions: they ask for a fresh copy of a table."""
        self.repair_share = 0.0
        """Of these requests: they ask for the repair of some rows instead."""
        self.repair_rng = Random(0)
        self.repairs: list[AskedRepair] = []
        self.pauses: list[AskedPause] = []
        """In the order of commits."""
        self.stops: list[Asked] = []
        """Requests to stop the snapshot of a table, in the order of commits."""
        self.outbox_share = 0.0
        """Of the writes: they are events in the outbox."""
        self.outbox_rng = Random(0)
        self.key_share = 0.0
        """Of the ALTER TABLEs: they give a table another primary key, too."""
        self.identity_share = 0.0
        """Of the ALTER TABLEs: they give a table another replica identity, too."""
        self.key_rng = Random(0)
        """Apart from `rng`, so that worlds without such changes stay as they are."""
        """How often somebody asks for a fresh copy of a table instead of emitting a message outside of transactions."""
        self.versions: list[tuple[int, dict[int, Table]]] = []
        """Tables as transactions have left them, by OID, each with the commit LSN."""
        self.asked: list[Asked] = []
        """In the order of commits."""
        self.rekeyed: list[Rekeyed] = []
        """In the order of commits."""
        self.number = 0
        self.unpublished: set[int] = set()
        """Tables that are not in the publication. Nobody writes to them meanwhile."""
        self.publication: GivenPublication | None = None
        """None: it is FOR ALL TABLES, and the daemon does not alter it."""
        self.locked: Callable[[], set[int]] = set
        """Tables that others read, so that nobody alters or truncates them."""
        self._exclusive: dict[int, set[int]] = {}
        """By transaction that has committed: what nobody may read before its session knows."""

    def act(self) -> str:
        """Let somebody do something; returns what, in short."""
        rng = self.rng
        choice = rng.random()
        if choice < 0.04:
            if rng.random() < self.rewrite_share:
                return self.rewrite()
            self.server.log("other")
            return "other WAL"
        if choice < 0.06:
            return self.message()
        if choice < 0.075:
            self.server.log("running")
            return "running xacts"
        if choice < 0.09:
            self.server.checkpoint()
            return "checkpoint"
        if self.prepared and choice < 0.17:
            return self.resolve(rng.choice(self.prepared))
        if not self.sessions or (len(self.sessions) < 4 and rng.random() < 0.25):
            session = Session(self)
            self.sessions.append(session)
            if rng.random() < 0.1:
                return f"begin, {session.finish()}"
            return "begin"
        return rng.choice(self.sessions).act()

    def end_all(self) -> None:
        """Everybody comes to an end."""
        for session in list(self.sessions):
            session.finish()
        for prepared in list(self.prepared):
            self.resolve(prepared)

    def crash(self) -> None:
        """The server lost all that was in progress."""
        self.sessions.clear()
        self.server.crash({prepared.top for prepared in self.prepared})

    def committed(self, record: Record, origin: str, events: list[Event], exclusive: set[int]) -> Committed:
        for row in (event.after or {} for event in events if event.op == _ASKS):
            table = (row["table_schema"], row["table_name"])
            if row["action"] in (PAUSE, RESUME):
                self.pauses.append(AskedPause(record.end, row["action"] == PAUSE))
            elif row["action"] == STOP:
                self.stops.append(Asked(record.end, table))
            elif row["action"] == REPAIR:
                self.repairs.append(AskedRepair(record.end, table, row["keys"]))
            else:
                self.asked.append(Asked(record.end, table))
        events = [event for event in events if event.op != _ASKS]
        for event in [event for event in events if event.op == _REKEYS]:
            key = event.columns_of_key or ()
            rekeyed = Rekeyed(record.lsn, events.index(event), event.oid, key)
            # Of keys that follow one another without a row between them, the last counts: PostgreSQL would refuse one
            # under which two rows are the same.
            self.rekeyed = [each for each in self.rekeyed if replace(each, key=key) != rekeyed]
            self.rekeyed.append(rekeyed)
            events.remove(event)
        entry = Committed(
            record.lsn, record.end, record.top, record.time_us + 946_684_800_000_000, origin or None, events
        )
        self.ends.add(record.end)
        self._exclusive[record.top] = exclusive
        if events:
            self.ledger.append(entry)
        return entry

    def published(self) -> list[Table]:
        """The tables of the publication, as they are now."""
        return [table for oid, table in self.server.tables.items() if oid not in self.unpublished]

    def in_use(self, oid: int, besides: Session | None = None) -> bool:
        """Whether somebody holds a lock on the table that keeps ALTER TABLE waiting."""
        return any(oid in session.used for session in self.sessions if session is not besides) or any(
            oid in prepared.used for prepared in self.prepared
        )

    def altered(self, oid: int, besides: Session | None = None) -> bool:
        """Whether somebody has altered the table and not committed."""
        return any(oid in session.overlay() for session in self.sessions if session is not besides) or any(
            oid in prepared.tables for prepared in self.prepared
        )

    def exclusive(self) -> set[int]:
        """Tables that are altered or truncated by transactions that have not ended, for others."""
        waiting = self.server.waiting()
        self._exclusive = {top: oids for top, oids in self._exclusive.items() if top in waiting}
        sessions: list[Session | Prepared] = [*self.sessions, *self.prepared]
        held = [each.exclusive for each in sessions]
        return set().union(*held, *self._exclusive.values())

    def rewrite(self, wanted: int | None = None) -> str:
        """VACUUM FULL of the table with this OID, or of any."""
        free = [
            table
            for oid, table in self.server.tables.items()
            if wanted in (None, oid) and not self.in_use(oid) and oid not in self.locked() | self.exclusive()
        ]
        if not free:
            return "no table to rewrite"
        table = self.rng.choice(free)
        self.rewrites.append((self.server.log("other").end, table.oid))
        return f"vacuum full {table.name}"

    def message(self) -> str:
        """A message outside of transactions; or a request, or what looks like one."""
        self.number += 1
        prefix, content = "lone", b"lone %d" % self.number
        if self.rng.random() < self.request_share:
            return self.request()
        if self.number % 3 == 0:
            return self.forge()
        if self.number % 3 == 1:
            prefix, content = "cdcd", b'{"snapshot": {"schema": "public", "table": "orders"}, "slot": "s"}'
        record = self.server.log("message", change=Change("M", prefix=prefix, content=content))
        row = {"transactional": False, "prefix": prefix, "content": content}
        event = Event(("", "messages"), "m", record.end, None, None, row)
        self.ends.add(record.end)
        self.ledger.append(Committed(record.end - 1, record.end, 0, 0, None, [event]))
        return "message"

    def request(self, wanted: int | None = None) -> str:
        """Ask for a fresh copy of the table with this OID, or of any: in a transaction alone, or with other things."""
        table = self.rng.choice([table for table in self.published() if wanted in (None, table.oid)])
        session = self.rng.choice(self.sessions) if self.sessions and self.rng.random() < 0.5 else Session(self)
        if wanted is None and table.key == ("id",) and self.repair_rng.random() < self.repair_share:
            some = self.repair_rng.sample(range(1, 45), self.repair_rng.choice([1, 3, 20]))
            keys = RepairKeys(table.key, tuple((str(number),) for number in some))
            session.ask(REQUESTS, table.schema, table.name, action=REPAIR, keys=keys.text())
            return f"request for a repair, {'in a transaction' if session in self.sessions else session.commit()}"
        session.ask(REQUESTS, table.schema, table.name)
        return f"request, {'in a transaction' if session in self.sessions else session.commit()}"

    def forge(self) -> str:
        """Ask for what a daemon must not do: the right is missing, or the request makes no sense."""
        session = Session(self)
        table = next(iter(self.server.tables.values()))
        real = table.schema, table.name
        if not self.request_share:  # there are no two tables of one name at a time
            session.ask(FORGED_REQUESTS, *real, counts=False)
            return f"request without the right, {session.commit()}"
        kinds: list[tuple[str, tuple[str, str], dict[str, str]]] = [
            ("for a table that is not published", ("nobody", "nothing"), {}),
            ("of another slot", real, {"slot": "other"}),
            ("of an unknown kind", real, {"action": "drop"}),
            ("for no table", ("", ""), {}),
            ("for what is not parked", real, {"action": UNPARK}),
        ]
        name, asked, more = self.rng.choice(kinds)
        session.ask(REQUESTS, *asked, counts=False, **more)
        return f"request {name}, {session.commit()}"

    def resolve(self, prepared: Prepared, *, commit: bool | None = None) -> str:
        """COMMIT PREPARED, or ROLLBACK PREPARED; None: either."""
        self.prepared.remove(prepared)
        commit = self.rng.random() < 0.6 if commit is None else commit
        kind = "commit prepared" if commit else "rollback prepared"
        record = self.server.log(kind, top=prepared.top, xid=prepared.top, gid=prepared.gid, origin=prepared.origin)
        entry = None
        if kind == "commit prepared":
            self.server.tables.update(prepared.tables)
            self.versions.append((record.lsn, prepared.tables))
            entry = self.committed(record, prepared.origin, prepared.events, prepared.exclusive)
        self.resolved.append((prepared, entry))
        return f"{kind} {prepared.top}"


class Session:
    """One session, inside a transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._server = database.server
        self._rng = database.rng
        self._levels = [_Level()]
        self._origin = "elsewhere" if self._rng.random() < 0.1 else ""
        self.used: set[int] = set()
        self.exclusive: set[int] = set()
        """What it has altered or truncated."""
        self._rows_at_once = self._rng.choice([1, 1, 2, 5, 20])

    def overlay(self) -> dict[int, Table]:
        found: dict[int, Table] = {}
        for level in self._levels:
            found.update(level.tables)
        return found

    def act(self) -> str:
        if self._db.blocks_share and self._rng.random() < self._db.blocks_share:
            return self.blocks(self._rng.randint(1, self._db.blocks_max))
        choice = self._rng.random()
        if choice < 0.62:
            for _ in range(self._rng.randint(1, self._rows_at_once)):
                self.write()
            return f"write {self._levels[0].xid}"
        if choice < 0.69:
            self._levels.append(_Level())
            return "savepoint"
        if choice < 0.74 and len(self._levels) > 1:
            return self._rollback_to()
        if choice < 0.78 and len(self._levels) > 1:
            self._release()
            return "release"
        if choice < 0.83:
            return self.alter()
        return self.finish()

    def finish(self) -> str:
        """Commit, abort or prepare."""
        self._db.sessions.remove(self)
        if self._rng.random() < 0.15:
            return self._abort()
        if self._rng.random() < self._db.prepare_share:
            return self.prepare()
        return self.commit()

    # Writing

    def _xid(self) -> int:
        for level in self._levels:
            level.xid = level.xid or self._server.next_xid()
        self._server.running.add(self._levels[0].xid)
        return self._levels[-1].xid

    def _log(self, change: Change) -> int:
        xid = self._xid()
        record = self._server.log("change", top=self._levels[0].xid, xid=xid, change=change, origin=self._origin)
        return record.lsn

    def write(self) -> None:
        """Change a row, truncate a table, or emit a message."""
        rng = self._rng
        if self._db.outbox_share and self._db.outbox_rng.random() < self._db.outbox_share:
            self._tell()
            return
        if rng.random() < 0.06:
            self._message()
            return
        free = [oid for oid in self._server.tables if not self._db.altered(oid, self)]
        if not free:
            return
        oid = rng.choice(free)
        self.used.add(oid)
        table = self.overlay().get(oid, self._server.tables[oid])
        kind = rng.choices("IUDT", [60, 22, 15, self._db.truncate_weight])[0]
        if kind == "T":
            if oid not in self._db.locked():
                self._truncate(table)
        elif kind == "I":
            new = self._row(table)
            lsn = self._log(Change("I", (table,), new=_tuple(table, new)))
            self._event(table, "c", lsn, None, new, key=_key(table, new))
        elif kind == "D":
            old = self._row(table)
            shown, old_kind, identity = _old(table, old)
            lsn = self._log(Change("D", (table,), old_kind, _tuple(table, shown)))
            self._event(table, "d", lsn, shown, None, identity, key=_key(table, old))
        else:
            self._update(table)

    def update(self, oid: int) -> None:
        """Update a row of a table, unless somebody has altered it."""
        if not self._db.altered(oid, self):
            self.used.add(oid)
            self._update(self.overlay().get(oid, self._server.tables[oid]))

    def blocks(self, times: int) -> str:
        """Write in many subtransactions, some inside others; some fail, and take those inside with them."""
        depth = len(self._levels)
        for _ in range(times):
            self._levels.append(_Level())
            self.write()
            if len(self._levels) - depth < 3 and self._rng.random() < 0.3:
                continue
            while len(self._levels) > depth and self._rng.random() < 0.9:
                if self._rng.random() < 0.1:
                    self._rollback_to()
                else:
                    self._release()
        while len(self._levels) > depth:
            self._release()
        return f"{times} blocks in {self._levels[0].xid}"

    def _update(self, table: Table) -> None:
        rng = self._rng
        old, new = self._row(table), self._row(table)
        moves = bool(table.key) and rng.random() < 0.3
        if not moves:
            new |= {name: old[name] for name in table.key or ("id",)}
        can_leave_out = "note" in new and "note" not in table.key
        unsent = "note" if can_leave_out and rng.random() < self._db.unsent_share else ""
        if unsent:
            new[unsent] = old[unsent]
        sent = _tuple(table, new, unsent)
        shown, old_kind, identity = _old(table, old)
        if table.identity == "d" and not moves:
            lsn = self._log(Change("U", (table,), NO_OLD, None, sent))
            after = {**new, unsent: None} if unsent else new
            self._event(table, "u", lsn, None, after, unchanged=[unsent] if unsent else [], key=_key(table, new))
            return
        lsn = self._log(Change("U", (table,), old_kind, _tuple(table, shown), sent))
        lost = bool(unsent) and table.identity == "d"
        after = {**new, unsent: None} if lost else new
        unchanged = [unsent] if lost else []
        if _key(table, old) != _key(table, new):
            self._event(table, "d", lsn, shown, None, identity, key=_key(table, old))
            self._event(table, "c", lsn, None, after, unchanged=unchanged, key=_key(table, new))
        else:
            self._event(table, "u", lsn, shown, after, identity, unchanged, key=_key(table, new))

    def _truncate(self, table: Table) -> None:
        tables = [table]
        others = [
            oid
            for oid in self._server.tables
            if oid != table.oid and not self._db.altered(oid, self) and oid not in self._db.locked()
        ]
        if others and self._rng.random() < 0.5:
            oid = self._rng.choice(others)
            self.used.add(oid)
            tables.append(self.overlay().get(oid, self._server.tables[oid]))
        self.exclusive |= {each.oid for each in tables}
        lsn = self._log(Change("T", tuple(tables)))
        for each in tables:
            self._event(each, "t", lsn, None, None)

    def ask(
        self,
        to: Table,
        schema: str,
        table: str,
        *,
        slot: str = "s",
        action: str = SNAPSHOT,
        keys: str | None = None,
        counts: bool = True,
    ) -> None:
        """Insert a row into a table of requests; `counts`: the daemon must do it."""
        self._db.number += 1
        row = {"id": self._db.number, "slot": slot, "action": action, "table_schema": schema, "table_name": table}
        if keys is not None:
            row["keys"] = keys
        lsn = self._log(Change("I", (to,), new=_tuple(to, row)))
        if counts:
            self._levels[-1].events.append(Event((to.schema, to.name), _ASKS, lsn, None, None, row))

    def _message(self) -> None:
        self._db.number += 1
        content = b"message %d" % self._db.number
        lsn = self._log(Change("M", prefix="p", content=content))
        row = {"transactional": True, "prefix": "p", "content": content}
        self._levels[-1].events.append(Event(("", "messages"), "m", lsn, None, None, row))

    def _tell(self) -> None:
        """Write an event: as a row, which may go again at once, or as a message. Or remove a row, which is no event."""
        rng = self._db.outbox_rng
        if rng.random() < 0.2:
            self._forget({"id": rng.randint(1, 1_000), **{name: None for name, _ in OUTBOX.columns[1:]}})
            return
        self._db.number += 1
        row: Row = {"id": self._db.number, "aggregatetype": rng.choice(["Order", "Line item"])}
        row |= {"aggregateid": str(rng.randint(1, 4)), "type": "Told", "payload": f"payload {self._db.number}"}
        if rng.random() < 0.1:
            row["payload"] = None
        if rng.random() < 0.4:
            lsn = self._log(Change("M", prefix="outbox", content=json.dumps(row).encode()))
        else:
            lsn = self._log(Change("I", (OUTBOX,), new=_tuple(OUTBOX, row)))
            if rng.random() < 0.5:
                self._forget(row)
        topic = OUTBOX_TOPICS + row["aggregatetype"].replace(" ", "-20")
        payload = None if row["payload"] is None else row["payload"].encode()
        after = {"key": row["aggregateid"].encode(), "value": payload}
        after["headers"] = {"id": str(row["id"]).encode(), "type": b"Told"}
        self._levels[-1].events.append(Event(("", topic), "m", lsn, None, None, after))

    def _forget(self, row: Row) -> None:
        """Delete a row of the outbox."""
        shown, old_kind, _ = _old(OUTBOX, row)
        self._log(Change("D", (OUTBOX,), old_kind, _tuple(OUTBOX, shown)))

    def _row(self, table: Table) -> Row:
        self._db.number += 1
        texts = {name: f"{name} {self._db.number}" for name, oid in table.columns if oid == TEXT}
        return {name: self._rng.randint(1, 40) if oid == INT4 else texts[name] for name, oid in table.columns}

    def _event(
        self,
        table: Table,
        op: str,
        lsn: int,
        before: Row | None,
        after: Row | None,
        identity: str = "none",
        unchanged: list[str] | None = None,
        key: Row | None = None,
    ) -> None:
        event = Event(
            (table.schema, table.name), op, lsn, key, before, after, identity, unchanged or [], table.oid,
            table.key_of_events,
        )  # fmt: skip
        self._levels[-1].events.append(event)

    def alter(self) -> str:
        """Alter a table that nobody else uses."""
        free = [
            oid
            for oid in self._server.tables
            if not self._db.in_use(oid, self) and not self._db.altered(oid, self) and oid not in self._db.locked()
        ]
        if not free:
            return "no table to alter"
        oid = self._rng.choice(free)
        self.used.add(oid)
        self.exclusive.add(oid)
        self._xid()
        table = self.overlay().get(oid, self._server.tables[oid])
        if len(table.columns) > 3 or (len(table.columns) > 2 and self._rng.random() < 0.5):
            columns = table.columns[:-1]
        else:
            self._db.number += 1
            columns = (*table.columns, (f"c{self._db.number}", TEXT))
        name = f"{table.name}x" if self._rng.random() < 0.1 and len(table.name) < 8 else table.name
        key = table.key if set(table.key) <= dict(columns).keys() else ("id",)
        if table.identity == "d" and not table.chosen and self._db.key_rng.random() < self._db.key_share:
            keys = [*KEYS, ("id", columns[-1][0])]  # often a column that is new
            key = self._db.key_rng.choice([other for other in keys if other != table.key])
        identity = table.identity
        if table.key and not table.chosen and self._db.key_rng.random() < self._db.identity_share:
            identity = {"d": "f", "f": "d"}[identity]
        if key != table.key:
            rekeys = Event((table.schema, table.name), _REKEYS, 0, None, None, None, oid=oid, columns_of_key=key)
            self._levels[-1].events.append(rekeys)
        self._levels[-1].tables[oid] = Table(oid, table.schema, name, identity, key, columns, table.chosen)
        return f"alter {table.name} in {self._levels[0].xid}"

    def swap(self) -> None:
        """Give two tables each other's names, if nobody else uses them: by a third name, as anybody must."""
        pair = [
            oid
            for oid, table in self._server.tables.items()
            if table.schema == "public"
            and not self._db.in_use(oid, self)
            and not self._db.altered(oid, self)
            and oid not in self._db.locked()
        ][:2]
        if len(pair) < 2:
            return
        self._xid()
        one, other = (self.overlay().get(oid, self._server.tables[oid]) for oid in pair)
        self.used.update(pair)
        self.exclusive.update(pair)
        self._levels[-1].tables[one.oid] = replace(one, name=other.name)
        self._levels[-1].tables[other.oid] = replace(other, name=one.name)

    # Ends

    def _release(self) -> None:
        level = self._levels.pop()
        above = self._levels[-1]
        above.events += level.events
        above.tables.update(level.tables)
        if level.xid:
            above.children += [level.xid, *level.children]

    def _rollback_to(self) -> str:
        level = self._levels.pop()
        if level.xid:
            self._server.log("subabort", top=self._levels[0].xid, xid=level.xid, subxids=tuple(sorted(level.children)))
        return f"rollback to, {level.xid}"

    def _abort(self) -> str:
        while len(self._levels) > 1:
            self._rollback_to()
        top = self._levels[0]
        if top.xid:
            self._server.log("abort", top=top.xid, xid=top.xid, subxids=tuple(sorted(top.children)))
        return f"abort {top.xid}"

    def commit(self) -> str:
        """COMMIT."""
        while len(self._levels) > 1:
            self._release()
        top = self._levels[0]
        if not top.xid and self._rng.random() < 0.5:
            return "commit of nothing"
        self._xid()
        record = self._server.log(
            "commit", top=top.xid, xid=top.xid, subxids=tuple(sorted(top.children)), origin=self._origin
        )
        self._server.tables.update(top.tables)
        self._db.versions.append((record.lsn, top.tables))
        self._db.committed(record, self._origin, top.events, self.exclusive)
        return f"commit {top.xid} at {record.lsn:X}"

    def prepare(self) -> str:
        """PREPARE TRANSACTION; COMMIT, if no name is free."""
        while len(self._levels) > 1:
            self._release()
        top = self._levels[0]
        self._xid()
        free = [f"g{number}" for number in range(4) if f"g{number}" not in {p.gid for p in self._db.prepared}]
        if not free:
            return self.commit()
        gid = free[0]
        record = self._server.log(
            "prepare", top=top.xid, xid=top.xid, gid=gid, subxids=tuple(sorted(top.children)), origin=self._origin
        )
        prepared = Prepared(gid, top.xid, top.events, top.tables, self.used, self.exclusive, self._origin, record.lsn)
        self._db.prepared.append(prepared)
        if self._rng.random() < self._db.resolve_share:
            return f"prepare {top.xid}, {self._db.resolve(prepared)}"
        return f"prepare {top.xid}"


def _tuple(table: Table, row: Row, unsent: str = "") -> tuple[ColumnValue, ...]:
    return tuple(UNCHANGED if name == unsent else _sent(row.get(name)) for name, _ in table.columns)


def _sent(value: Any) -> ColumnValue:
    if value is None:
        return None
    return Binary(value.to_bytes(4, "big", signed=True) if isinstance(value, int) else value.encode())


def _key(table: Table, row: Row) -> Row | None:
    return {name: row[name] for name in table.key_of_events} or None


def _old(table: Table, row: Row) -> tuple[Row, int, str]:
    """What an Update or Delete shows of the old row, as which kind of tuple, and the event's word for it."""
    if table.identity == "f":
        return row, OLD, "full"
    return {name: row[name] if name in table.key else None for name, _ in table.columns}, KEY, "key"
