"""A large row passes, or is parked, in a few times its own size of memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import servers
from support.fix_postgres import Database
from support.stream import StreamFixture, metric

pytestmark = pytest.mark.whole

MEBIBYTE = 1 << 20
ROW_BYTES = 64 * MEBIBYTE
TIMES_MAX = 5
"""As the manual's sum of the memory says: 3 times, and the parked records that wait in librdkafka."""

GRANTED_BYTES = 768 * MEBIBYTE
"""The limit of the manifest."""
BOUNDS_BYTES = 332_000_000
"""The sum of the bounds, in the manual: changes that follow one another also wait in the queue and in librdkafka."""
FULL_ROW_BYTES = 60 * MEBIBYTE
TOPIC_BYTES = 200 * MEBIBYTE


def peak_bytes(pid: int) -> int:
    """The process's largest resident set so far."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("streaming", ["off", "on"])
def test_a_row_that_is_parked_takes_at_most_five_times_its_size(stream: StreamFixture, streaming: str) -> None:
    stream.sql("CREATE TABLE t (id bigint PRIMARY KEY, body text)")
    daemon = stream.daemon(source={"streaming": streaming}, sink={"on_unpublishable": "park"})
    daemon.start().wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (0, 'small')")
    daemon.wait_until_confirmed()
    before = peak_bytes(daemon.pid)
    # Text that no compression makes small enough for the topic.
    stream.sql(f"INSERT INTO t SELECT 1, string_agg(md5(n::text), '') FROM generate_series(1, {ROW_BYTES // 32}) n")
    stream.sql("INSERT INTO t VALUES (2, 'small')")
    daemon.wait_for_log("is parked", 60)
    daemon.wait_until_confirmed()
    grown = peak_bytes(daemon.pid) - before
    assert daemon.stop() == 0
    assert grown <= TIMES_MAX * ROW_BYTES, f"{grown / ROW_BYTES:.1f} times its size"


@pytest.mark.parametrize("streaming", ["off", "auto"])
def test_large_changes_pass_within_the_memory_that_the_manifest_grants(
    database: Database, start_kafka: Callable[..., servers.Kafka], tmp_path: Path, streaming: str
) -> None:
    limits = {"message.max.bytes": str(TOPIC_BYTES), "socket.request.max.bytes": str(2 * TOPIC_BYTES)}
    kafka = start_kafka(settings=limits, heap_mb=1200)
    body = "SELECT string_agg(sha512(n::text::bytea), '') FROM generate_series(1, {}) n"  # nothing compresses it
    with StreamFixture(database.dsn, kafka.bootstrap, "large", tmp_path) as stream:
        stream.sql(
            "CREATE TABLE t (id int PRIMARY KEY, v int, body bytea)",
            "ALTER TABLE t REPLICA IDENTITY FULL",
            "CREATE TABLE pieces (id int PRIMARY KEY, body bytea)",
            f"INSERT INTO pieces SELECT 1, ({body.format(10 * MEBIBYTE // 64)})",
        )
        daemon = stream.daemon(source={"streaming": streaming}).start()
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t SELECT 0, 0, 'x'")
        daemon.wait_until_confirmed()
        times = FULL_ROW_BYTES // (10 * MEBIBYTE)
        for statement in (
            f"INSERT INTO t SELECT 1, 0, string_agg(body, '') FROM pieces, generate_series(1, {times})",
            "UPDATE t SET v = 1 WHERE id = 1",  # the unchanged value comes in the old row only, and the event has two
            "UPDATE t SET body = '\\x00'::bytea || body WHERE id = 1",
            "UPDATE t SET body = '\\x01'::bytea || body WHERE id = 1",
            "UPDATE t SET id = 2 WHERE id = 1",
            "DELETE FROM t WHERE id = 2",
            "INSERT INTO t SELECT 3, 0, string_agg(body, '') FROM pieces, generate_series(1, 10)",  # 100 MiB
        ):
            stream.sql(statement)  # without waiting: the next one comes while the last one is under way
        daemon.wait_until_confirmed(timeout_s=180)
        peak = peak_bytes(daemon.pid)
        assert metric(daemon, "cdcd_parked_tables") == 0
        assert daemon.stop() == 0
        change = 2 * FULL_ROW_BYTES
        assert peak <= BOUNDS_BYTES + 3 * change, f"{peak / 1e6:.0f} MB"
        assert peak < GRANTED_BYTES
