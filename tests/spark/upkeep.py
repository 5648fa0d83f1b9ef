"""Upkeep of a lake by others, as the jobs of a platform do it: in a Spark of their own, without a pause, until killed.

    python tests/spark/upkeep.py delta FOLDER KEEP_S

`chaos.py` starts it beside the mirror. FOLDER has the mirror's tables. Files and snapshots go once they are KEEP_S
seconds old. The last line of output counts the statements that were done, and those that met another commit.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from py4j.protocol import Py4JError  # noqa: E402
from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from support import fix_spark  # noqa: E402


def statements(form: str, table: Path, keep_s: float) -> list[str]:
    """What is done to a table."""
    if form == "delta":
        return [f"OPTIMIZE delta.`{table}`", f"VACUUM delta.`{table}` RETAIN {keep_s / 3600:.5f} HOURS"]
    name = f"table => '{table.parent.name}.{table.name}'"
    older_than = f"timestamp '{datetime.now(UTC) - timedelta(seconds=keep_s):%Y-%m-%d %H:%M:%S}'"
    return [
        f"CALL ice.system.rewrite_data_files({name}, options => map('rewrite-all', 'true'))",
        f"CALL ice.system.rewrite_manifests({name})",
        f"CALL ice.system.expire_snapshots({name}, older_than => {older_than}, retain_last => 1)",
    ]


def main() -> None:
    """Go on until somebody ends the process."""
    form, folder, keep_s = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    settings = fix_spark.for_small_data(folder / "unused") | {
        "spark.sql.catalog.ice.warehouse": str(folder.parent),
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",  # else each VACUUM has 10,000 tasks
    }
    builder = SparkSession.builder.master("local[1]").appName("upkeep")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.config("spark.driver.memory", "1g").getOrCreate()
    counts: Counter[str] = Counter()
    while True:
        for table in sorted(each for each in folder.iterdir() if each.is_dir()):
            for statement in statements(form, table, keep_s):
                what = statement.split("(")[0].removeprefix("CALL ice.system.").split(" ")[0]
                try:
                    spark.sql(statement).collect()
                except (PySparkException, Py4JError) as error:  # another job has committed: a platform would try again
                    print(f"{statement}: {str(error)[:300]}", file=sys.stderr)
                    what += ", in vain"
                counts[what] += 1
            print(dict(counts), flush=True)
            time.sleep(random.uniform(0, 2))


if __name__ == "__main__":
    main()
