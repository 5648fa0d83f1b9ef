"""A full spool: streaming ends, the server keeps the transactions in progress, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo
from support.stream import StreamFixture

MEBIBYTE = 1 << 20


def test_a_full_spool_turns_streaming_off_and_loses_nothing(stream: StreamFixture, tmp_path: Path) -> None:
    stream.sql("CREATE TABLE t (id bigint PRIMARY KEY, v int NOT NULL DEFAULT 0, pad text)")
    spool = tmp_path / "spool"
    daemon = stream.daemon(
        source={"dsn": make_conninfo(stream.dsn, options="-c logical_decoding_work_mem=64kB")},
        spool={"directory": str(spool), "memory_bytes": MEBIBYTE, "bytes_max": 2 * MEBIBYTE},
    )
    daemon.start().wait_for_log("going on")
    with psycopg.connect(stream.dsn) as large:
        large.execute("INSERT INTO t SELECT n, 0, repeat('p', 200) FROM generate_series(1, 30000) n")
        stream.sql("INSERT INTO t VALUES (-1, 0, 'small')")
        daemon.wait_for_log("is full")
        used = sum(path.stat().st_size for path in spool.rglob("*") if path.is_file())
        assert used <= 2 * MEBIBYTE
        daemon.until(lambda: daemon.log.read_text().count("going on") == 2, "a second stream", 30)
        [(system_id,)] = stream.sql("SELECT system_identifier FROM pg_control_system()")
        assert [path.name for path in spool.iterdir()] == [f"{stream.slot}-{system_id}"]
        stream.sql("INSERT INTO t VALUES (-2, 0, 'small')")
        daemon.until(lambda: len(stream.events()) == 2, "the small ones, before the large one ends", 30)
    daemon.wait_until_confirmed()
    log = daemon.log.read_text()
    assert "spool.bytes_max is 2,097,152" in log
    assert "Give it more room" in log, "the hint"
    assert log.count("is full") == 1, "the server keeps large transactions from now on"
    assert daemon.stop() == 0
    assert len(stream.check(("public", "t"))) == 30_002
    assert not any(spool.iterdir()), "a stopped daemon must leave no file"
    large_again = stream.daemon(
        source={"dsn": make_conninfo(stream.dsn, options="-c logical_decoding_work_mem=64kB")},
        spool={"directory": str(spool)},
    ).start()
    large_again.wait_for_log("going on")
    stream.sql("INSERT INTO t SELECT n, 0, repeat('p', 200) FROM generate_series(30001, 60000) n")
    large_again.wait_until_confirmed()
    assert large_again.stop() == 0
    stream.check(("public", "t"))
    [(streamed,)] = stream.sql(f"SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = '{stream.slot}'")
    assert streamed >= 2, "a new daemon streams again"


def test_a_prepared_transaction_that_does_not_fit_ends_the_daemon_with_what_to_set(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id bigint PRIMARY KEY, pad text)")
    daemon = stream.daemon(source={"two_phase": True}, spool={"memory_bytes": MEBIBYTE, "bytes_max": 2 * MEBIBYTE})
    daemon.start().wait_for_log("going on")
    rows = "INSERT INTO t SELECT n, repeat('p', 200) FROM generate_series(1, 30000) n"
    stream.sql(f"BEGIN; {rows}; PREPARE TRANSACTION '{stream.slot}'")
    assert daemon.wait(60.0) == 1
    last = daemon.log.read_text().splitlines()[-1]
    assert "the prepared transactions do not fit: the spool in" in last
    assert "raise spool.bytes_max" in last
    daemon = stream.daemon(source={"two_phase": True}).start()
    daemon.wait_for_log("going on")
    stream.sql(f"COMMIT PREPARED '{stream.slot}'")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    assert len(stream.check(("public", "t"))) == 30_000
