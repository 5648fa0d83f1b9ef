"""Random transactions of many sessions, received in every way the protocol has: the same events as protocol 1 gives.

Each schedule is a few sessions whose statements alternate as the seed says: nested savepoints, rollbacks, prepares,
messages, truncates, DDL, rows of every size. A statement that would wait for another session fails instead, which
rolls something back: that is part of the schedule. `logical_decoding_work_mem` is so small that most of them stream.

Two slots see the same WAL. One daemon streams from the first while it is written, or later; another one drains the
second with protocol 1. Set CDCD_TEST_SCHEDULES to run more of them, CDCD_TEST_SEED to run others.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from support import topics
from support.fix_postgres import Database
from support.stream import StreamFixture

SCHEDULES = int(os.environ.get("CDCD_TEST_SCHEDULES", "25"))
SEED = os.environ.get("CDCD_TEST_SEED", "4711")

SCHEMA = """
CREATE TABLE small (id bigint PRIMARY KEY, v int, note text);
CREATE TABLE wide (id bigint PRIMARY KEY, v int, pad text, body text);
ALTER TABLE wide ALTER body SET STORAGE EXTERNAL;
CREATE TABLE whole (id bigint PRIMARY KEY, v int, body text);
ALTER TABLE whole ALTER body SET STORAGE EXTERNAL;
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE bag (id bigint, v int, note text);
ALTER TABLE bag REPLICA IDENTITY FULL;
CREATE TABLE parts (id bigint, v int, note text, PRIMARY KEY (id, v)) PARTITION BY LIST (v);
CREATE TABLE parts_even PARTITION OF parts FOR VALUES IN (0, 2, 4, 6, 8);
CREATE TABLE parts_odd PARTITION OF parts DEFAULT;
"""
SHARED = ("small", "wide", "whole", "bag", "parts")
FOLDED = ("small", "wide", "whole", "bag", "parts_even", "parts_odd")
PREPARED_MAX = 3
ADDED = """
SELECT attname FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attname LIKE 'c_%%'
"""


class World:
    """What the sessions of all schedules share: the numbers that are used up, the tables, the prepared transactions."""

    def __init__(self, database: Database, two_phase: bool) -> None:
        self.database = database
        self.two_phase = two_phase
        self.sessions = [Session(self, number) for number in range(5)]
        self.prepared: list[tuple[str, bool]] = []
        self.made: list[str] = []
        self.counts: Counter[str] = Counter()
        self._number = 0

    def number(self, count: int = 1) -> int:
        """The first of `count` numbers that nobody else gets."""
        self._number += count
        return self._number - count + 1

    def run(self, random: Random) -> None:
        """One schedule."""
        for _ in range(random.randint(20, 60)):
            random.choice(self.sessions).step(random)
        for session in self.sessions:
            session.end(random)

    def resolve(self, random: Random) -> None:
        """Commit or roll back one of the prepared transactions."""
        gid, decodable = self.prepared.pop(random.randrange(len(self.prepared)))
        how = random.choice(["COMMIT", "COMMIT", "ROLLBACK" if decodable else "COMMIT"])
        self.database.execute(f"{how} PREPARED '{gid}'")
        self.counts[f"{how.lower()} prepared"] += 1


class Session:
    """One connection and where it stands: its own table, its open savepoints."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.own = f"own_{number}"
        self.columns: list[str] = []
        self.savepoints: list[str] = []
        self.open = False
        self.altered_below = False
        """A savepoint of this transaction changed tables as such. Prepared and rolled back, no server could decode it
        (`test_refusals.py` has that)."""
        self.connection = world.database.connect()
        self.connection.execute("SET lock_timeout = '4ms'; SET client_min_messages = 'error'")
        self.connection.execute(
            sql.SQL("CREATE TABLE {} (id bigint PRIMARY KEY, v int, note text)").format(sql.Identifier(self.own))
        )

    def step(self, random: Random) -> None:
        """Do one thing; what fails rolls back to a savepoint, or all."""
        try:
            if not self.open:
                self.begin(random)
            act = random.choices(
                [self.insert, self.update, self.delete, self.savepoint, self.release, self.roll_back, self.message,
                 self.truncate, self.alter, self.make, self.end],
                [30, 14, 8, 12, 5, 8, 6, 2, 4, 2, 6],
            )[0]  # fmt: skip
            self.altered_below |= bool(self.savepoints) and act in (self.truncate, self.alter, self.make)
            act(random)
        except psycopg.Error as error:
            self.world.counts[f"failed: {type(error).__name__}"] += 1
            self.recover(random)

    def begin(self, random: Random) -> None:
        if self.world.prepared and random.random() < 0.3:
            self.world.resolve(random)
        self.run("BEGIN")
        self.open = True
        self.altered_below = False

    def insert(self, random: Random) -> None:
        rows = random.choice([1, 1, 3, 20, 150, 500])
        first = self.world.number(rows)
        table = self.table(random)
        note = f"repeat('n', {random.randint(0, 200)})"
        toast = "repeat(md5(n::text), 100)" if rows <= 20 and random.random() < 0.5 else "'x'"
        columns, values = {
            "wide": ("pad, body", f"repeat('p', 300), {toast}"),
            "whole": ("body", toast),
        }.get(table, ("note", note))
        series = f"generate_series({first}, {first + rows - 1}) n"
        self.run(f"INSERT INTO {table} (id, v, {columns}) SELECT n, n % 10, {values} FROM {series}")

    def update(self, random: Random) -> None:
        change = random.choice(["v = v + 1", "v = v + 1", "v = -v", "id = id + 1000000000"])
        self.run(f"UPDATE {self.table(random)} SET {change} WHERE {self.some(random)}")

    def delete(self, random: Random) -> None:
        self.run(f"DELETE FROM {self.table(random)} WHERE {self.some(random)}")

    def savepoint(self, _: Random) -> None:
        name = f"s{self.world.number()}"
        self.run(f"SAVEPOINT {name}")
        self.savepoints.append(name)

    def release(self, random: Random) -> None:
        if self.savepoints:
            place = random.randrange(len(self.savepoints))
            self.run(f"RELEASE {self.savepoints[place]}")
            del self.savepoints[place:]

    def roll_back(self, random: Random) -> None:
        if self.savepoints:
            place = random.randrange(len(self.savepoints))
            self.run(f"ROLLBACK TO {self.savepoints[place]}")
            del self.savepoints[place + 1 :]

    def message(self, random: Random) -> None:
        """A message, with rows around it if it is transactional: else nobody knows which savepoint a streamed one has.

        (`test_doubtful_messages.py` has those of which nobody knows.)
        """
        emit = f"'test', repeat('m{self.world.number()} ', {random.choice([1, 10, 2000])})"
        if random.random() < 0.4:
            self.run(f"SELECT pg_logical_emit_message(false, {emit})")
        else:
            around = f"INSERT INTO {self.own} (id) VALUES "
            self.run(f"{around} ({self.world.number()})")
            self.run(f"SELECT pg_logical_emit_message(true, {emit})")
            self.run(f"{around} ({self.world.number()})")

    def truncate(self, random: Random) -> None:
        shared, how = random.random() < 0.3, random.choice(["", " RESTART IDENTITY", " CASCADE"])
        self.run(f"TRUNCATE {random.choice(['small, bag', 'parts', 'wide']) if shared else self.own}{how}")

    def alter(self, random: Random) -> None:
        """Change the own table: as wanted, unless it is rolled back."""
        name = f"c{self.world.number()}"
        added = [name for (name,) in self.connection.execute(ADDED, [self.own])]
        changes = [f"ADD COLUMN {name} int", f"ADD COLUMN {name} text[]", "ALTER COLUMN v TYPE bigint"]
        changes += ["REPLICA IDENTITY FULL", "REPLICA IDENTITY DEFAULT"]
        changes += [f"DROP COLUMN {column}" for column in added[:1]]
        self.run(f"ALTER TABLE {self.own} {random.choice(changes)}")
        if added:
            self.run(f"UPDATE {self.own} SET {added[-1]} = NULL WHERE {self.some(random)}")

    def make(self, random: Random) -> None:
        """A table and a type that nobody sees before the commit."""
        number = self.world.number()
        name = f"made_{number}"
        self.run(f"CREATE TYPE mood_{number} AS ENUM ('a', 'b')")
        self.run(f"CREATE TABLE {name} (id int, v mood_{number}, note text, PRIMARY KEY (id))")
        if random.random() < 0.5:
            self.run(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
        self.run(
            f"INSERT INTO {name} SELECT n, 'b', repeat('q', 300) FROM generate_series(1, {random.choice([1, 400])}) n"
        )
        self.world.made.append(name)

    def end(self, random: Random) -> None:
        """Commit, roll back or prepare."""
        if not self.open:
            return
        world = self.world
        how = random.choices(["COMMIT", "ROLLBACK", "PREPARE"], [6, 2, 3 if world.two_phase else 0])[0]
        if how == "PREPARE" and len(world.prepared) < PREPARED_MAX:
            gid = f"g{world.number()}"
            try:
                self.run(f"PREPARE TRANSACTION '{gid}'")
            except psycopg.Error:
                how = "failed prepare"
            else:
                world.prepared.append((gid, not self.altered_below))
        else:
            how = "COMMIT" if how == "PREPARE" else how
            self.run(how)
        world.counts[how.lower()] += 1
        self.open = False
        self.savepoints.clear()

    def recover(self, random: Random) -> None:
        if self.savepoints:
            self.roll_back(random)
        else:
            self.run("ROLLBACK")
            self.open = False

    def table(self, random: Random) -> str:
        return random.choice([*SHARED, self.own])

    def some(self, random: Random) -> str:
        modulus = random.choice([3, 17, 400])
        return f"id % {modulus} = {random.randrange(modulus)} AND id % 5 = {random.randrange(5)}"

    def run(self, statement: str) -> None:
        self.connection.execute(statement.encode())


@pytest.mark.in_turns(3)
@pytest.mark.postgres_versions("oldest", "newest")
@pytest.mark.parametrize("when", ["buffered", "immediate", "behind"])
def test_events_are_those_of_protocol_1_and_fold_into_the_tables(
    database: Database, broker: str, prefix: str, tmp_path: Path, when: str
) -> None:
    version = database.server.version
    if when == "immediate" and version < 16:
        pytest.skip("debug_logical_replication_streaming is of PostgreSQL 16")
    options = "-c logical_decoding_work_mem=64kB" + (
        " -c debug_logical_replication_streaming=immediate" if when == "immediate" else ""
    )
    two_phase = version >= 15
    database.execute(*SCHEMA.strip().removesuffix(";").split(";\n"), "CREATE PUBLICATION cdcd FOR ALL TABLES")
    (tmp_path / "one").mkdir()
    with (
        StreamFixture(make_conninfo(database.dsn, options=options), broker, prefix, tmp_path) as streamed,
        StreamFixture(database.dsn, broker, f"{prefix}-one", tmp_path / "one") as plain,
    ):
        spool = {"directory": str(tmp_path / "spool"), "memory_bytes": 1 << 20}
        daemon = streamed.daemon(source={"two_phase": two_phase}, spool=spool).start()
        daemon.wait_for_log("going on")
        if when == "behind":
            assert daemon.stop() == 0
        database.execute(f"SELECT pg_create_logical_replication_slot('{plain.slot}', 'pgoutput')")
        world = World(database, two_phase)
        for schedule in range(SCHEDULES // 4 if when == "immediate" else SCHEDULES):
            print(f"seed {SEED}/{schedule}", end="\r")
            world.run(Random(f"{SEED}/{schedule}"))
        while world.prepared:
            world.resolve(Random(SEED))
        # A table's newest columns are known by its newest event.
        database.execute(*(f"INSERT INTO {session.own} (id) VALUES (0)" for session in world.sessions))
        if when == "behind":
            daemon.start()
        daemon.wait_until_confirmed(timeout_s=300)
        assert daemon.stop() == 0
        log = daemon.log.read_text()
        assert "is full" not in log
        assert "does not tell" not in log, "every stream was taken as it came"
        drained = plain.daemon(source={"streaming": "off"}).start()
        drained.wait_until_confirmed(timeout_s=300)
        assert drained.stop() == 0

        own = [(table,) for table in (*FOLDED, *(session.own for session in world.sessions))]
        made = database.execute("SELECT relname FROM pg_class WHERE relname LIKE 'made%' AND relkind = 'r'")
        events = streamed.check(*(("public", name) for (name,) in own + made))
        differing = first_difference(sequence(streamed, events), sequence(plain, plain.events()))
        assert differing is None, f"seed {SEED}: {differing}"
        (blocks,) = database.execute(
            f"SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = '{streamed.slot}'"
        )[0]
    print(f"\nseed {SEED}: {len(events)} events, {blocks} transactions streamed, {dict(sorted(world.counts.items()))}")
    assert blocks > (0 if when == "behind" else 5)  # behind, the server may fail at one, and is asked for no more
    assert world.counts["commit"] > SCHEDULES / 4


def sequence(stream: StreamFixture, events: list[topics.Event]) -> list[tuple[Any, ...]]:
    """All events in commit order with everything that they say, but for the names of their topics."""
    found = []
    for event in events + stream.topics.events(f"{stream.prefix}.messages"):
        if event.value is None:
            continue
        if event.value["source"]["xid"] == 0:  # a message outside of transactions has the time of its sending
            event.value["source"]["commit_ts"] = None
        topic = event.topic.removeprefix(stream.prefix)
        found.append((event.position, event.partition, topic, event.key, event.value, event.fields))
    return sorted(found, key=lambda each: each[:3])


def first_difference(streamed: list[tuple[Any, ...]], plain: list[tuple[Any, ...]]) -> str | None:
    for number, (one, other) in enumerate(zip(streamed, plain, strict=False)):
        if one != other:
            return f"event {number} differs:\nstreamed {str(one)[:1500]}\nprotocol 1 {str(other)[:1500]}"
    if len(streamed) != len(plain):
        return f"{len(streamed)} events streamed, {len(plain)} by protocol 1"
    return None
