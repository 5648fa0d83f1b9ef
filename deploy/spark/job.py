r"""`cdcd spark ...` as spark-submit wants it: a file.

spark-submit --packages "$(python -c 'from cdcd.spark import packages; print(packages())')" \
        --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
        --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \
        --conf spark.sql.catalogImplementation=hive --conf spark.sql.shuffle.partitions=8 \
        deploy/spark/job.py mirror --config config/mirror.toml --once

The file's [spark] says nothing here; config/mirror.toml says there what these settings mean.
"""

import sys

from pyspark.sql import SparkSession

from cdcd.cli.main import main

if __name__ == "__main__":
    SparkSession.builder.getOrCreate()  # the one that spark-submit has described
    sys.exit(main(["spark", *sys.argv[1:]]))
