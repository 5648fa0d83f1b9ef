"""The pages of the manual do what they say, block by block, on real servers. The first ones that a newcomer reads.

`support.pages` says which test executes which block.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
from servers.jars import find_java
from support.page_reader import Open
from support.stream import StreamFixture, eventually

ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL, total numeric(10, 2))"
CHANGES = (
    "INSERT INTO orders VALUES (1, 'Ada', 12.50), (2, 'Grace', 7.00)",
    "UPDATE orders SET total = 8.00 WHERE id = 2",
    "DELETE FROM orders WHERE id = 1",
    "INSERT INTO orders VALUES (3, 'Edsger', 20.00)",
)
ROWS = [{"id": 2, "customer": "Grace", "total": "8.00"}, {"id": 3, "customer": "Edsger", "total": "20.00"}]


def parsed(said: str) -> list[dict[str, Any]]:
    """The rows that a program has printed."""
    rows = [json.loads(line) for line in said.splitlines()]
    return sorted(({**row, "total": f"{float(row['total']):.2f}"} for row in rows), key=lambda row: row["id"])


def test_the_tutorial(stream: StreamFixture, open_page: Open) -> None:
    with open_page("tutorial") as reader, open_page("consumers") as consumers:
        reader.sql()
        reader.write("toml")
        assert "error " not in reader.run()
        with reader.start() as daemon:
            eventually(lambda: f"{stream.prefix}.public.orders" in stream.topics.names(), "the topic", 60)
            eventually(lambda: len(stream.events()) == 2, "the snapshot", 60)
            reader.sql()
            eventually(lambda: len(stream.events()) == 5, "five events", 60)
            with reader.start() as tail:
                assert tail.stdout is not None
                events: list[str] = []
                while len(events) < 5:
                    events += re.findall(r" ((?:snapshot|insert|update|delete) id=\d) ", tail.stdout.readline())
                reader.stop(tail)
            assert sorted(events) == ["delete id=1", "insert id=3", "snapshot id=1", "snapshot id=2", "update id=2"]
            assert "public.orders" in reader.run()
            consumers.write("python")
            assert parsed(consumers.run()) == ROWS
            reader.stop(daemon)
        reader.run()
    assert (
        stream.sql("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'cdcd' AND database = current_database()")
        == []
    )


def test_other_programs_read_the_topics(stream: StreamFixture, open_page: Open) -> None:
    modules = subprocess.run([find_java(), "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.compiler" not in modules:
        pytest.skip("this Java has no compiler")
    stream.sql(ORDERS)
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql(*CHANGES)
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    with open_page("consumers") as reader:
        reader.write("java")
        assert parsed(reader.run()) == ROWS
        records = [line.partition("\t") for line in reader.run().splitlines() if "{" in line]
        assert json.loads(records[-1][2])["slot"] == stream.slot


def test_the_settings_of_the_readme_give_the_event_that_the_pages_show(stream: StreamFixture, open_page: Open) -> None:
    columns = "id bigint PRIMARY KEY, customer text, total numeric(10, 2), placed timestamptz, tags text[]"
    stream.sql(f"CREATE TABLE orders ({columns})")
    with open_page("README") as readme, open_page("events") as page:
        readme.write("toml")
        with readme.shell("cdcd run --config cdcd.toml") as daemon:
            eventually(lambda: f"{stream.prefix}.public.orders" in stream.topics.names(), "the topic", 60)
            stream.sql("INSERT INTO orders VALUES (7, 'Ada', 99.9, '2026-11-26 10:00+00', '{}')")
            eventually(lambda: len(stream.events()) == 1, "the row", 60)
            stream.sql("UPDATE orders SET tags = '{gift}'")
            with readme.shell(
                f"cdcd tail --config cdcd.toml --json --from-beginning {stream.prefix}.public.orders"
            ) as tail:
                assert tail.stdout is not None
                events = [json.loads(tail.stdout.readline()) for _ in range(2)]
            readme.stop(daemon)
        event = without_positions(events[1])
        assert event == without_positions(json.loads(page.next("json").text))
        shown = without_positions(json.loads(readme.next("json").text))
        assert event == event | shown


def without_positions(event: dict[str, Any]) -> dict[str, Any]:
    """An event without what is another number each time."""
    source = event["value"]["source"]
    assert source["commit_lsn"] > source["lsn"] > 0
    event["value"]["source"] = {**source, **dict.fromkeys(("commit_lsn", "lsn", "xid", "commit_ts"))}
    event.pop("timestamp_ms", None)
    return event
