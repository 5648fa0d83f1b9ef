"""Progress records are exact: a slot record and the offsets before it are a cut at one LSN."""

from __future__ import annotations

from collections import defaultdict

import psycopg
from support import workload
from support.stream import StreamFixture


def _lsn(text: str) -> int:
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def test_every_cut_holds_exactly_the_transactions_up_to_its_lsn(stream: StreamFixture) -> None:
    stream.sql(workload.SCHEMA)
    daemon = stream.daemon(sink={"transaction_linger_ms": 20}).start()
    daemon.wait_for_log("going on")
    with psycopg.connect(stream.dsn, autocommit=True) as connection:
        for part in range(12):
            workload.mix(connection, 1 + part * 1000, 30)
            if part % 2:
                daemon.wait_until_confirmed()
            if part == 6:
                daemon.kill()  # a new daemon asks the broker for the ends of partitions that it has not written
                daemon.start()
            connection.execute("TRUNCATE documents" if part == 4 else "SELECT pg_current_wal_lsn()")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    events = stream.check(*workload.TABLES)

    ends: dict[str, list[int]] = {}
    cuts = rows = inside = 0
    pending: set[str] = set()
    by_topic = defaultdict(list)
    for event in events:
        by_topic[event.topic].append(event)
    for key, record in stream.topics.progress():
        if "/" in key:
            ends[record["topic"]] = record["offsets"]
            pending.add(record["topic"])
            continue
        cuts += 1
        rows += record["rows"]
        commit_lsn = _lsn(record["commit_lsn"])
        assert commit_lsn < _lsn(record["lsn"])
        assert bool(pending) == (record["rows"] > 0)
        pending.clear()
        inside = 0
        for topic, its_events in by_topic.items():
            offsets = ends.get(topic, [0, 0, 0, 0])
            for event in its_events:
                assert (event.offset < offsets[event.partition]) == (event.position[0] <= commit_lsn), (record, event)
                inside += event.offset < offsets[event.partition]
    assert cuts > 10
    assert inside == len(events)
    # A truncate counts once in a slot record, but is one Kafka record in each of the four partitions.
    truncates = sum(event.value["op"] == "t" for event in events if event.value is not None)
    assert rows == len(events) - truncates * 3 // 4
