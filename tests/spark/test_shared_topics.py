"""Spark reads tables that share a topic by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from support.rendering import content
from support.stream import StreamFixture

if TYPE_CHECKING:
    from cdcd.spark import Cdc

TABLES = ("tenant_1.orders", "tenant_2.orders")


@pytest.mark.whole
@pytest.mark.postgres_versions("newest")
def test_tables_that_share_a_topic_are_read_and_mirrored_each_by_itself(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str]
) -> None:
    stream.sql(
        "CREATE SCHEMA tenant_1",
        "CREATE SCHEMA tenant_2",
        "CREATE TABLE tenant_1.orders (id int PRIMARY KEY, v text)",
        "CREATE TABLE tenant_2.orders (id int PRIMARY KEY, v text, more int)",
        *(f"INSERT INTO {each} SELECT g, '{each}' FROM generate_series(1, 20) g" for each in TABLES),
    )
    daemon = stream.daemon(
        source={"tables": ["*.*"]},
        snapshot={"mode": "initial"},
        sink={"tombstones": True},
        table=[{"match": "tenant_*.orders", "topic": "{prefix}.orders"}],
    ).start()
    daemon.wait_for_log("the snapshot is complete", 60)
    mirror = cdc.mirror(TABLES, lake("delta"), "delta")
    for number in range(2):
        stream.sql(
            f"UPDATE tenant_1.orders SET v = '{number}' WHERE id = 1",
            f"UPDATE tenant_2.orders SET id = id + 100, more = {number} WHERE id = 2 + {number}",
            f"DELETE FROM tenant_1.orders WHERE id = 2 + {number}",
        )
        if number == 1:
            stream.sql("TRUNCATE tenant_2.orders", "INSERT INTO tenant_2.orders VALUES (1, 'after', 0)")
        daemon.wait_until_confirmed()
        mirror.run_once()
        for found in (cdc.as_of(), mirror.as_of()):
            for name in TABLES:
                schema, _, table = name.partition(".")
                assert content(found[name]) == stream.content(schema, table), f"{name}, {number}"
