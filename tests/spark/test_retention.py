"""Retention of topics or of snapshots stops one table at most, and the error names a way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from support.rendering import content
from support.stream import StreamFixture

from cdcd.errors import GapError

if TYPE_CHECKING:
    from cdcd.spark import Cdc

END = -1
"""For `delete_records`: all that the partition has."""


@pytest.mark.whole
def test_a_table_behind_retention_waits_for_a_load_and_streams_go_on_if_they_may(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], tmp_path: Path
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    stream.sql("CREATE TABLE bag (id int)", "ALTER TABLE bag REPLICA IDENTITY FULL")
    tables = "t", "u", "bag"
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    mirror = cdc.mirror("*", lake("iceberg"), "iceberg")

    def insert(number: int) -> None:
        stream.sql(*(f"INSERT INTO {name} VALUES ({number})" for name in tables))
        daemon.wait_until_confirmed()

    def streamed(**options: str) -> list[int]:
        ids = cdc.changes_stream("public.t", options).select("after.id")
        written = ids.writeStream.format("parquet").option("checkpointLocation", f"{tmp_path}/checkpoint")
        written.trigger(availableNow=True).start(f"{tmp_path}/ids").awaitTermination()
        return sorted(row["id"] for row in cdc.spark.read.parquet(f"{tmp_path}/ids").collect())

    insert(1)
    mirror.run_once()
    assert streamed() == [1]
    insert(2)
    topics = [f"{stream.prefix}.public.{name}" for name in ("t", "bag")]
    admin = AdminClient({"bootstrap.servers": stream.broker})
    partitions = {topic: admin.list_topics(topic).topics[topic].partitions for topic in topics}
    every = [TopicPartition(topic, number, END) for topic in topics for number in partitions[topic]]
    for done in admin.delete_records(every).values():
        done.result(10)
    insert(3)
    mirror.run_once()
    quarantined = mirror.published().quarantined
    assert set(quarantined) == {"public.t", "public.bag"}
    assert all("retention has deleted the start of the wanted range" in error for error in quarantined.values())
    assert mirror.as_of()["public.u"].count() == 3
    with pytest.raises(GapError, match="retention has deleted"):
        cdc.as_of(tables=["public.t"])
    with cdc.snapshot(stream.dsn, list(quarantined)) as snapshot:
        mirror.load(snapshot)  # the hint
    assert not mirror.published().quarantined
    insert(4)
    mirror.run_once()
    found = mirror.as_of()
    for name in tables:
        assert content(found[f"public.{name}"], ["id"]) == stream.content("public", name)
    with pytest.raises(Exception, match=r"(?i)data (may have been|loss)"):
        streamed()
    assert streamed(failOnDataLoss="false") == [1, 3, 4]


@pytest.mark.whole
def test_two_rewrites_of_an_idle_table_and_then_expire_snapshots_take_no_published_row(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str]
) -> None:
    stream.sql("CREATE TABLE bag (v int)", "ALTER TABLE bag REPLICA IDENTITY FULL")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    catalog = lake("iceberg")
    mirror = cdc.mirror("*", catalog, "iceberg", table_errors="stop")
    for number in range(2):
        stream.sql(f"INSERT INTO bag VALUES (1), ({number})")
        daemon.wait_until_confirmed()
        mirror.run_once()
    name = f"table => '{catalog.rpartition('.')[2]}.public_bag'"
    rewrite = f"rewrite_data_files({name}, options => map('rewrite-all', 'true'))"
    expire = f"expire_snapshots({name}, older_than => timestamp '9999-01-01', retain_last => 1)"
    for call in rewrite, rewrite, expire:
        cdc.spark.sql(f"CALL ice.system.{call}").collect()
    assert mirror.as_of()["public.bag"].count() == 4
    stream.sql("DELETE FROM bag WHERE v = 0")
    daemon.wait_until_confirmed()
    mirror.run_once()
    report = cdc.verify(stream.dsn, "public.bag", mirror)
    assert report.ok, report.as_text()
