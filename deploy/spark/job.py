r"""`cdcd spark ...` as the file that spark-submit needs.

spark-submit --packages "$(python -c 'from cdcd.spark import packages; print(packages())')" \
        --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
        --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \
        --conf spark.sql.catalogImplementation=hive --conf spark.sql.shuffle.partitions=8 \
        --conf spark.sql.codegen.cache.maxEntries=1000 \
        --conf spark.executor.extraJavaOptions=-Dorg.apache.avro.fastread=false \
        deploy/spark/job.py mirror --config deploy/spark/mirror.toml --once

The [spark] section of the settings file has no effect here. Its comments in mirror.toml explain these settings.
"""

import sys

from pyspark.sql import SparkSession

from cdcd.cli.main import main

if __name__ == "__main__":
    SparkSession.builder.getOrCreate()  # the session that spark-submit has configured
    sys.exit(main(["spark", *sys.argv[1:]]))
