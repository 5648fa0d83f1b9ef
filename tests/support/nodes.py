"""A publisher with two readers, a subscriber and cdcd. PostgreSQL's own logical replication is the oracle.

Before: `servers` (one server has both databases), `stream` (the daemons). After: `test_subscription.py`.

Every publication has its own daemon; the one subscription subscribes to all publications. Tables are empty when they
are published, and no snapshot is taken. So the rows in the topics and at the subscriber all come from the stream.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import psycopg
import servers
from psycopg import sql

from support import topics
from support.daemon import Daemon
from support.fix_postgres import Database
from support.stream import StreamFixture, eventually

_numbers = itertools.count(1)


class Nodes:
    """Two databases, a subscription between them, and a running daemon for each publication."""

    def __init__(
        self,
        server: servers.PostgreSQL,
        broker: str,
        folder: Path,
        *publications: str,
        encoding: str = "UTF8",
        subscription: str = "",
    ) -> None:
        """Make the databases, the subscription and the daemons.

        `publications`: the words after CREATE PUBLICATION, one a publication. `subscription`: further options of it.
        """
        number = next(_numbers)
        self.name = f"nodes_{os.getpid()}_{number}"
        self.server = server
        self._stack = ExitStack()
        self._publisher = self._database(f"{self.name}_pub", encoding)
        self._subscriber = self._database(f"{self.name}_sub", "UTF8")
        names = [publication.split()[0] for publication in publications]
        self.publisher(*(f"CREATE PUBLICATION {publication}" for publication in publications))
        self.publisher(f"SELECT pg_create_logical_replication_slot('{self.name}', 'pgoutput')")
        more = f", {subscription}" if subscription else ""
        quoted = self._publisher.dsn.replace("'", "''")
        self.subscriber(
            f"CREATE SUBSCRIPTION {self.name} CONNECTION '{quoted}' PUBLICATION {', '.join(names)} "
            f"WITH (slot_name = '{self.name}', create_slot = false, copy_data = false{more})"
        )
        self._stack.callback(self._drop_subscription)
        self.streams: dict[str, StreamFixture] = {}
        self.daemons: dict[str, Daemon] = {}
        for name in names:
            prefix = f"{self.name}-{name}".replace("_", "-")
            (folder / prefix).mkdir()
            stream = StreamFixture(self._publisher.dsn, broker, prefix, folder / prefix)
            self.streams[name] = self._stack.enter_context(stream)
            self.start(name)
        for daemon in self.daemons.values():
            daemon.wait_for_log("going on")

    def start(self, publication: str, **source: Any) -> None:
        """Start a daemon for the publication, whose last daemon has ended."""
        stream = self.streams[publication]
        name = f"{self.name}_{publication}"
        settings = {"publication": publication, "application_name": name, **source}
        self.daemons[publication] = stream.daemon(source=settings).start()

    def publisher(self, *statements: str, schema: str = "public") -> None:
        """Run statements on the publisher, each in a transaction of its own."""
        self._run(self._publisher, statements, schema)

    def subscriber(self, *statements: str, schema: str = "public") -> None:
        """Run statements on the subscriber."""
        self._run(self._subscriber, statements, schema)

    def caught_up(self) -> None:
        """Wait until the daemons and the subscription have all that was committed."""
        [(lsn,)] = self._publisher.execute("SELECT pg_logical_emit_message(true, 'test', 'so far')")
        for daemon in self.daemons.values():
            daemon.wait_until_confirmed(lsn)
        applied = f"SELECT 1 FROM pg_stat_replication WHERE application_name = '{self.name}' AND replay_lsn >= '{lsn}'"
        eventually(lambda: self._publisher.execute(applied), f"subscription that has applied {lsn}")

    def synchronized(self) -> None:
        """Wait until the subscription has finished its initial table synchronization."""
        busy = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'"
        eventually(lambda: self._subscriber.execute(busy) == [(0,)], "end of the initial synchronization")

    def scene(self, name: str) -> Scene:
        """Make a schema of this name in both databases, for one scenario."""
        self.publisher(f'CREATE SCHEMA "{name}"')
        self.subscriber(f'CREATE SCHEMA "{name}"')
        return Scene(self, name)

    def rows(self, of: str, schema: str, table: str, columns: list[str]) -> Counter[topics.Row]:
        """The rows of a table at the "publisher" or the "subscriber": these columns, in PostgreSQL's own text."""
        texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(column)) for column in columns)
        query = sql.SQL("SELECT {} FROM {}").format(texts, sql.Identifier(schema, table))
        with (self._publisher if of == "publisher" else self._subscriber).connect() as connection:
            return Counter(connection.execute(query).fetchall())

    def _database(self, name: str, encoding: str) -> Database:
        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            made = f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
            connection.execute(made.encode())
        database = Database(name, self.server)
        self._stack.callback(database.drop)
        return database

    def _run(self, database: Database, statements: tuple[str, ...], schema: str) -> None:
        with psycopg.connect(database.dsn, autocommit=True, client_encoding="UTF8") as connection:
            connection.execute(sql.SQL("SET search_path = {}, public").format(sql.Identifier(schema)))
            for statement in statements:
                connection.execute(statement.encode())

    def _drop_subscription(self) -> None:
        self.subscriber(
            f"ALTER SUBSCRIPTION {self.name} DISABLE",
            f"ALTER SUBSCRIPTION {self.name} SET (slot_name = NONE)",
            f"DROP SUBSCRIPTION {self.name}",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class Scene:
    """One scenario, in its own schema."""

    def __init__(self, nodes: Nodes, schema: str) -> None:
        self.nodes = nodes
        self.schema = schema

    def publisher(self, *statements: str) -> None:
        """Run statements on the publisher."""
        self.nodes.publisher(*statements, schema=self.schema)

    def subscriber(self, *statements: str) -> None:
        """Run statements on the subscriber."""
        self.nodes.subscriber(*statements, schema=self.schema)

    def both(self, *statements: str) -> None:
        """Run statements on the publisher, then on the subscriber."""
        self.publisher(*statements)
        self.subscriber(*statements)

    def subscribe(self, *, copy: bool = False) -> None:
        """Let the subscription include tables that were published since its last refresh."""
        refresh = f"ALTER SUBSCRIPTION {self.nodes.name} REFRESH PUBLICATION WITH (copy_data = {str(copy).lower()})"
        self.nodes.subscriber(refresh)

    def same(self, *tables: str, of: str = "subscriber") -> None:
        """Check that the topics, folded, hold the rows of the tables at the subscriber, in the published columns."""
        self.nodes.caught_up()
        of_each = self._events(*tables)
        for table in tables:
            events = of_each[table]
            topics.check_exactly_once(events)
            columns = columns_of(events)
            assert columns, f"{self.schema}.{table} has no events"
            folded, wanted = topics.fold(events), self.nodes.rows(of, self.schema, table, columns)
            assert folded == wanted, f"{table}: folded {_some(folded)}, the {of} has {_some(wanted)}"

    def events(self, table: str) -> list[topics.Event]:
        """The table's events, from the daemons of all publications."""
        return self._events(table)[table]

    def _events(self, *tables: str) -> dict[str, list[topics.Event]]:
        found: dict[str, list[topics.Event]] = {table: [] for table in tables}
        for stream in self.nodes.streams.values():
            by_table = stream.topics.by_table()
            theirs = {by_table[self.schema, t]: t for t in tables if (self.schema, t) in by_table}
            for event in stream.topics.events(*theirs):
                found[theirs[event.topic]].append(event)
        return found


def columns_of(events: list[topics.Event]) -> list[str]:
    """The names of the newest event's columns."""
    newest = max((event for event in events if event.value is not None), key=lambda event: event.position, default=None)
    return [] if newest is None else [f.get("pg_name", f["name"]) for f in newest.fields]


def _some(rows: Counter[topics.Row]) -> str:
    return f"{sum(rows.values())} rows, such as {list(rows.items())[:5]}"
