"""A primary and its physical standby, as two servers of one test.

Before: `servers`. After: the tests of failover, and of a standby as the source.

The standby begins with the primary's files, which are copied while the primary is down: this needs no pg_basebackup.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import Any, Self

import psycopg
import servers
from psycopg.conninfo import make_conninfo

from support.stream import eventually

PRIMARY = {"hot_standby_feedback": "on", "wal_keep_size": "256MB", "wal_sender_timeout": "5s"}
STANDBY = {"primary_slot_name": "standby", "hot_standby_feedback": "on", "wal_retrieve_retry_interval": "100ms"}


class Pair:
    """A primary with the database `shop`, and its physical standby. From version 17 on the standby syncs slots."""

    def __init__(self, version: int, *, standby: dict[str, str] | None = None, **primary: str) -> None:
        """`primary` and `standby`: further settings of each server."""
        syncs = version >= 17
        self.primary = servers.PostgreSQL(
            version, settings={**PRIMARY, **({"synchronized_standby_slots": "standby"} if syncs else {}), **primary}
        )
        settings = {**STANDBY, **({"sync_replication_slots": "on"} if syncs else {}), **(standby or {})}
        self.standby = servers.PostgreSQL(version, settings=settings)
        self.primary.start()
        self._on(self.primary, "SELECT pg_create_physical_replication_slot('standby', true)", "CREATE DATABASE shop")
        self.primary.stop()
        subprocess.run(["cp", "-a", self.primary.data, self.standby.data], check=True)
        shutil.rmtree(self.standby.data / "pg_replslot" / "standby")
        (self.standby.data / "standby.signal").touch()
        self.standby.settings["primary_conninfo"] = self.primary.dsn(application_name="standby")
        self.primary.start()
        self.standby.start()

    @property
    def dsn(self) -> str:
        """A DSN with both hosts; libpq connects to the one that is the primary."""
        ports = f"{self.primary.port},{self.standby.port}"
        return make_conninfo(
            self.primary.dsn("shop"), host="127.0.0.1,127.0.0.1", port=ports, target_session_attrs="read-write"
        )

    def on_standby(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in the standby's database `postgres`, and return the rows of the last one."""
        return self._on(self.standby, *statements)

    def on_primary(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in the primary's database `shop`, and return the rows of the last one."""
        return self._on(self.primary, *statements, database="shop")

    def replayed(self) -> None:
        """Wait until the standby shows what the primary has committed."""
        [(lsn,)] = self.on_primary("SELECT pg_current_wal_flush_lsn()")
        shown = f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'"
        eventually(lambda: self.on_standby(shown) == [(True,)], "the standby")

    def synced(self, slot: str) -> bool:
        """Whether the standby has the slot, in a state that survives a promotion."""
        ask = f"SELECT synced AND NOT temporary FROM pg_replication_slots WHERE slot_name = '{slot}'"
        return self.on_standby(ask) == [(True,)]

    def fail_over(self) -> None:
        """Kill the primary, and promote the standby."""
        self.primary.kill()
        self.on_standby("SELECT pg_promote()")

    def close(self) -> None:
        """End both servers."""
        self.standby.close()
        self.primary.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _on(server: servers.PostgreSQL, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        with psycopg.connect(server.dsn(database), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows
