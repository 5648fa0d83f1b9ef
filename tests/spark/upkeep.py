"""Others at a lake, in a Spark of their own, until killed: the upkeep of a platform's jobs, and SQL on the views.

    python tests/spark/upkeep.py delta FOLDER VIEWS KEEP_S SETTINGS

`chaos.py` starts it beside the mirror. FOLDER has the mirror's tables, VIEWS is the schema of its views. Files and
snapshots go once they are KEEP_S seconds old. SETTINGS is a file in JSON: the mirror's session.

After each statement on a table it reads all views, as the manual says it, and then rests for twice as long as both
took: the mirror has cores left. Each line of output has the counts, and what was wrong with the views.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from py4j.protocol import Py4JError  # noqa: E402
from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from support.transfers import TOTAL  # noqa: E402

REST_MAX_S = 10.0


def statements(form: str, table: Path, keep_s: float) -> list[str]:
    """What is done to a table. VACUUM takes the time from the table's properties: RETAIN is in whole hours."""
    if form == "delta":
        return [f"OPTIMIZE delta.`{table}`", f"VACUUM delta.`{table}`"]
    name = f"table => '{table.parent.name}.{table.name}'"
    older_than = f"timestamp '{datetime.now(UTC) - timedelta(seconds=keep_s):%Y-%m-%d %H:%M:%S}'"
    return [
        f"CALL ice.system.rewrite_data_files({name}, options => map('rewrite-all', 'true'))",
        f"CALL ice.system.rewrite_manifests({name})",
        f"CALL ice.system.expire_snapshots({name}, older_than => {older_than}, retain_last => 1)",
    ]


def read_views(spark: SparkSession, views: str) -> tuple[str, str | None]:
    """What a read of all views has shown, and what is wrong with it."""
    run = f"SELECT DISTINCT run, switching_to FROM {views}.cdcd_published"
    try:
        before = spark.sql(run).collect()
        names = [row["view"] for row in spark.sql(f"SELECT view FROM {views}.cdcd_published").collect()]
    except (PySparkException, Py4JError) as error:
        return "views without a list", f"UNREADABLE list of the views: {str(error)[:500]}"
    sums = " + ".join(f"(SELECT coalesce(sum(balance), 0) FROM {view})" for view in names)
    found: int | str
    try:
        found = spark.sql(f"SELECT {sums}").first()[0]
    except (PySparkException, Py4JError) as error:
        found = str(error)[:500]
    try:
        after = spark.sql(run).collect()
    except (PySparkException, Py4JError) as error:
        return "views without a list", f"UNREADABLE list of the views, the second time: {str(error)[:500]}"
    if len(before) != 1 or before[0]["switching_to"] is not None or after != before:
        return "views amid a switch", None
    return (
        "views at one run",
        None if found == TOTAL else f"BROKEN views of run {before[0]['run']}: {found}, not {TOTAL}",
    )


def main() -> None:
    """Go on until somebody ends the process."""
    form, folder, views, keep_s = sys.argv[1], Path(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    settings = json.loads(Path(sys.argv[5]).read_text()) | {
        "spark.master": "local[1]",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",  # else each VACUUM has 10,000 tasks
        "spark.sql.catalog.ice.cache-enabled": "false",  # else Spark knows no newer version than it has read once
    }
    builder = SparkSession.builder.appName("upkeep")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    counts: Counter[str] = Counter()
    for _ in repeat(None):
        tables = sorted(each for each in folder.iterdir() if each.is_dir())
        for statement in chain.from_iterable(statements(form, table, keep_s) for table in tables):
            began = time.monotonic()
            what = statement.split("(")[0].removeprefix("CALL ice.system.").split(" ")[0]
            try:
                spark.sql(statement).collect()
            except (PySparkException, Py4JError) as error:  # another job has committed: a platform would try again
                print(f"{statement}: {str(error)[:300]}", file=sys.stderr, flush=True)
                what += ", in vain"
            shown, fault = read_views(spark, views)
            counts.update([what, shown])
            print(json.dumps({"counts": counts, "fault": fault}), flush=True)
            time.sleep(min(REST_MAX_S, 2 * (time.monotonic() - began)))


if __name__ == "__main__":
    main()
