"""The jars that work with each version of Spark. Every combination here was tried.

After: users put `packages()` into spark.jars.packages; `commands`, before it starts a session, and `Cdc` refuse a Kafka
connector that is known to fail.
Source: SPARK-55271 (the Kafka source of 4.1.0 to 4.1.2 ends with a NullPointerException after every restart from a
crash); the release notes of Delta Lake 4 and Apache Iceberg 1.11 and 1.12.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, Literal, TypeAlias

from cdcd.errors import SettingsError

Format: TypeAlias = Literal["delta", "iceberg"]

JDBC: Final = "org.postgresql:postgresql:42.7.4"

_BAD_KAFKA: Final = re.compile(r"spark-sql-kafka-0-10_2\.13[-:](4\.1\.[012])(?!\d)")

_KAFKA: Final = {"4.0": "{version}", "4.1": "4.1.3", "4.2": "4.2.0"}
_AVRO: Final = {"4.0": "{version}", "4.1": "4.1.1", "4.2": "4.2.0"}
_LAKE: Final[dict[tuple[str, str], str]] = {
    ("4.0", "delta"): "io.delta:delta-spark_2.13:4.0.0",
    ("4.1", "delta"): "io.delta:delta-spark_4.1_2.13:4.4.0",
    ("4.2", "delta"): "io.delta:delta-spark_4.2_2.13:4.4.0",
    ("4.0", "iceberg"): "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    ("4.1", "iceberg"): "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}


def packages(spark_version: str | None = None, formats: Collection[Format] | None = None) -> str:
    """The value of `spark.jars.packages` for a version of Spark (default: the installed PySpark's).

    It names the Kafka source, Avro, PostgreSQL's JDBC driver and the table formats (None: all that there are for it).
    Raises SettingsError for a Spark that does not work with them.
    """
    if spark_version is None:
        import pyspark

        spark_version = pyspark.__version__
    found = re.match(r"(\d+\.\d+)\.(\d+)", spark_version)
    minor = found[1] if found else spark_version
    if minor == "4.1" and found is not None and int(found[2]) < 3:
        raise SettingsError(
            f"Spark {spark_version}'s Kafka source fails at the first restart after a crash (SPARK-55271)",
            "Use PySpark 4.1.3: pip install pyspark==4.1.3",
            code="spark-unfit",
        )
    if minor not in _KAFKA:
        raise SettingsError(
            f"cdcd.spark was not tried with Spark {spark_version}",
            "Use PySpark 4.1.3: pip install pyspark==4.1.3",
            code="spark-unfit",
        )
    wanted = [
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{_KAFKA[minor].format(version=spark_version)}",
        f"org.apache.spark:spark-avro_2.13:{_AVRO[minor].format(version=spark_version)}",
        JDBC,
    ]
    for name in [form for of, form in _LAKE if of == minor] if formats is None else formats:
        if (minor, name) not in _LAKE:
            raise SettingsError(
                f"there is no {name} for Spark {spark_version}",
                "Use PySpark 4.1.3: pip install pyspark==4.1.3",
                code="spark-unfit",
            )
        wanted.append(_LAKE[minor, name])
    return ",".join(wanted)


def check_jars(jars: str) -> None:
    """Raise SettingsError if `jars`, the session's spark.jars and packages, name a Kafka source that fails."""
    found = _BAD_KAFKA.search(jars)
    if found is not None:
        raise SettingsError(
            f"Spark's Kafka connector {found[1]} fails at the first restart after a crash (SPARK-55271)",
            "Use org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3, or what cdcd.spark.packages() names. If a jar that "
            "it needs cannot be fetched, give that one alone in another version: spark.jars.excludes leaves it out, "
            "and spark.jars names its file. Or use PySpark 4.0.0 with the connector 4.0.0",
            code="spark-unfit",
        )
