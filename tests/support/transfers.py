"""Money that moves between two tables: a reader that shows both as of one moment always shows the same sum.

After: `spark/test_mirror.py`, and `spark/chaos.py`, which kills processes while the money moves.
"""

from __future__ import annotations

import random

import psycopg

from support.background_thread import BackgroundThread

TABLES = ("here", "there")
ACCOUNTS = 20
TOTAL = 4_000
"""The sum of all balances of both tables, at any moment."""

CREATE = tuple(f"CREATE TABLE {table} (id int PRIMARY KEY, balance bigint NOT NULL)" for table in TABLES)
FILL = " ".join(
    ["BEGIN;", *(f"INSERT INTO {t} SELECT g, 100 FROM generate_series(1, {ACCOUNTS}) g;" for t in TABLES), "COMMIT"]
)


class Transfers(BackgroundThread):
    """Moves money between the tables while a `with` lasts."""

    def __init__(self, dsn: str, pause_s: float = 0.01) -> None:
        super().__init__()
        self._dsn = dsn
        self._pause_s = pause_s
        self.count = 0

    def run(self) -> None:
        chance = random.Random(1)
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._done.wait(self._pause_s):
                one, other = chance.sample(TABLES, 2)
                amount, source, target = chance.randrange(9), *(chance.randrange(1, ACCOUNTS + 1) for _ in range(2))
                with connection.transaction():
                    connection.execute(f"UPDATE {one} SET balance = balance - {amount} WHERE id = {source}".encode())
                    connection.execute(f"UPDATE {other} SET balance = balance + {amount} WHERE id = {target}".encode())
                self.count += 1
