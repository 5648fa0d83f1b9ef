"""Fixtures of the Spark tests: a stream on the session's servers, and its topics as Spark sees them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.fix_postgres import Database
from support.stream import StreamFixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdcd.spark import Cdc


@pytest.fixture
def stream(database: Database, broker: str, prefix: str, tmp_path: Path) -> Iterator[StreamFixture]:
    """Give a stream of a fresh database and fresh topics."""
    with StreamFixture(database.dsn, broker, prefix, tmp_path) as stream:
        yield stream


@pytest.fixture
def cdc(spark: SparkSession, stream: StreamFixture) -> Cdc:
    """Give the stream's topics to Spark."""
    from cdcd.spark import Cdc

    return Cdc(spark, stream.broker, stream.prefix)


def pytest_itemcollected(item: pytest.Item) -> None:
    """PySpark leaves the sockets of its results to the garbage collector."""
    item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
