"""The page of the types names the Spark types that `cdcd.spark` gives. If the test fails, it prints the right page."""

from __future__ import annotations

from typing import Any

import pytest
from support import type_rows

pytest.importorskip("pyspark")

from cdcd import manual
from cdcd.spark.reading.types import ddl, resolved


def test_each_row_has_the_spark_type_of_its_avro_type() -> None:
    def spark(avro: Any) -> str:
        return ddl(resolved(avro, {})).replace("timestamp_ltz", "timestamp")  # as Spark shows it

    assert type_rows.corrected(spark) == manual.page("types"), f"the right page:\n\n{type_rows.corrected(spark)}"
