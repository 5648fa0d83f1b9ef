"""The main promise on real servers: every committed row is published once and in order, though the daemon is killed."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import psycopg
import pytest
from support import topics, workload
from support.daemon import Daemon
from support.fix_postgres import Database

TRANSACTIONS = int(os.environ.get("CDCD_TEST_TRANSACTIONS", "5000"))
KILLS = 10
WRITERS = 2
SLICE = 100


def _write(database: Database, first: int, count: int, errors: list[BaseException]) -> None:
    try:
        with psycopg.connect(database.dsn, autocommit=True) as connection:
            done = attempts = 0
            while done < count:
                attempts += 1
                try:
                    workload.mix(connection, first + attempts * SLICE, SLICE)
                    done += SLICE
                except psycopg.errors.DeadlockDetected:  # with the other writer; the slices before it are committed
                    continue
    except BaseException as error:  # noqa: BLE001 - reported by the test's own thread
        errors.append(error)


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "text"])
def test_every_row_once_and_in_order_while_the_daemon_is_killed(
    database: Database, broker: str, prefix: str, tmp_path: Path, binary: bool
) -> None:
    transactions = TRANSACTIONS if binary else TRANSACTIONS // 10
    database.execute(workload.SCHEMA)
    random.seed(4711)
    with Daemon(tmp_path, database.dsn, broker, prefix, source={"binary": str(binary).lower()}) as daemon:
        daemon.start().wait_until_streaming()
        errors: list[BaseException] = []
        each = transactions // WRITERS
        writers = [
            threading.Thread(target=_write, args=(database, 1 + n * 10_000_000, each, errors)) for n in range(WRITERS)
        ]
        for writer in writers:
            writer.start()
        for _ in range(KILLS):
            time.sleep(random.uniform(0.2, 2.0))
            daemon.kill()
            daemon.start()
        for writer in writers:
            writer.join()
        assert not errors, errors
        daemon.wait_until_confirmed(timeout_s=120)
        assert daemon.stop() == 0
    reader = topics.Topics(broker, prefix)
    events = [event for topic in reader.names() for event in reader.events(topic)]
    topics.check_exactly_once(events)
    assert len(events) > transactions * 5
    by_table = reader.by_table()
    folded_rows = 0
    for schema, table in workload.TABLES:
        with database.connect() as connection:
            wanted = workload.content(connection, schema, table)
        folded = topics.fold([event for event in events if event.topic == by_table[schema, table]])
        assert folded - wanted == wanted - folded, f"{schema}.{table} differs"
        folded_rows += sum(folded.values())
    assert folded_rows > transactions / 5
    print(f"\n{transactions} transactions, {len(events)} events, {KILLS} kills, {folded_rows} rows equal")


def test_the_slot_never_passes_the_progress(database: Database, broker: str, prefix: str, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with Daemon(tmp_path, database.dsn, broker, prefix) as daemon:
        daemon.start().wait_until_streaming()
        with database.connect() as connection:
            for number in range(200):
                connection.execute("INSERT INTO t VALUES (%s)", (number,))
        daemon.wait_until_confirmed()
        daemon.kill()
    (confirmed,) = database.execute(
        f"SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = '{daemon.slot}'"
    )[0]
    slot_records = [value for key, value in topics.Topics(broker, prefix).progress() if key == daemon.slot]
    high, low = slot_records[-1]["lsn"].split("/")
    assert confirmed <= int(high, 16) << 32 | int(low, 16)
