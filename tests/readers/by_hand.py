"""Executes the blocks of the page about consumers whose programs the usual run does not have: Flink SQL, and kcat.

    pip install apache-flink==2.2.1     (828 MB, Java 17)
    apt install kcat
    python tests/readers/by_hand.py --jars DIR

DIR has flink-sql-connector-kafka:4.0.1-2.0 and flink-sql-avro-confluent-registry:2.2.0 (Maven, org.apache.flink).
`--flink PYTHON` names the interpreter that has apache-flink, if it is not this one.

Real servers: PostgreSQL, Kafka, a schema registry, and cdcd between them.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import servers
from servers.registry import SchemaRegistry
from support.pages import By, blocks, executes
from support.stream import StreamFixture

PROGRAM = """
import sys
from pathlib import Path
from pyflink.table import EnvironmentSettings, TableEnvironment
jars, *statements = sys.argv[1:]
flink = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
flink.get_config().set("pipeline.jars", ";".join(path.as_uri() for path in Path(jars).absolute().glob("*.jar")))
flink.get_config().set("parallelism.default", "1")
for statement in statements:
    if statement.startswith("SET "):
        flink.get_config().set(*statement[4:].replace("'", "").split(" = "))
    elif statement.startswith("SELECT"):
        for row in flink.execute_sql(statement).collect():
            print(row.get_row_kind().name, *row, flush=True)
    else:
        flink.execute_sql(statement)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jars", type=Path, required=True, help="the directory of Flink's jars")
    parser.add_argument("--flink", default=sys.executable, metavar="PYTHON", help="the Python that has apache-flink")
    options = parser.parse_args()
    mine = [block for block in blocks("consumers") if isinstance(executes(block), By)]
    events, table, kcat = (block.text for block in mine)
    with (
        tempfile.TemporaryDirectory() as folder,
        servers.PostgreSQL() as postgres,
        servers.Kafka() as kafka,
        SchemaRegistry() as registry,
        StreamFixture(postgres.dsn(), kafka.bootstrap, "shop", Path(folder)) as stream,
    ):
        stream.sql("CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL, total numeric(10, 2))")
        stream.sql("ALTER TABLE orders REPLICA IDENTITY FULL", "INSERT INTO orders VALUES (1, 'Ada', 12.50)")
        settings = {"snapshot": {"mode": "initial"}, "avro": {"registry_url": registry.url}}
        daemon = stream.daemon(**settings).start()
        daemon.wait_for_log("the snapshot is complete")
        stream.sql("INSERT INTO orders VALUES (2, 'Grace', 7.00), (3, 'Edsger', 20.00)")
        stream.sql("UPDATE orders SET total = 8.00 WHERE id = 2", "DELETE FROM orders WHERE id = 1")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0

        def flink(block: str) -> list[str]:
            """Execute the statements of a block, up to the topic's end of now; returns the rows that they give."""
            text = block.replace("localhost:9092", kafka.bootstrap).replace("http://localhost:8081", registry.url)
            text = text.replace("'connector' =", "'scan.bounded.mode' = 'latest-offset', 'connector' =")
            statements = [each.strip() for each in text.split(";\n") if each.strip()]
            command = [options.flink, "-c", PROGRAM, str(options.jars), *statements]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
            assert done.returncode == 0, done.stderr
            return sorted(done.stdout.splitlines())

        expect(
            "avro-confluent",
            flink(events),
            "INSERT c 2 Grace 7.00", "INSERT c 3 Edsger 20.00", "INSERT d None None None", "INSERT r 1 Ada 12.50",
            "INSERT u 2 Grace 8.00",
        )  # fmt: skip
        expect(
            "debezium-avro-confluent",
            flink(table),
            "DELETE 1 Ada 12.50", "INSERT 1 Ada 12.50", "INSERT 2 Grace 7.00", "INSERT 3 Edsger 20.00",
            "UPDATE_AFTER 2 Grace 8.00", "UPDATE_BEFORE 2 Grace 7.00",
        )  # fmt: skip

        with tempfile.TemporaryDirectory() as other:
            plain = StreamFixture(postgres.dsn(), kafka.bootstrap, "plain", Path(other))
            with plain, plain.daemon(snapshot={"mode": "initial"}) as daemon:
                daemon.start().wait_for_log("the snapshot is complete")
                assert daemon.stop() == 0
        command = kcat.replace("localhost:9092", kafka.bootstrap).replace("shop.", "plain.")
        read = subprocess.run(["bash", "-euc", command], capture_output=True, text=True, check=True, timeout=60)
        keys = re.findall(r"^([0-9a-f]{16}) {.*public.orders", read.stdout, re.MULTILINE)
        expect("kcat", ["a schema by its fingerprint"] if keys else [], "a schema by its fingerprint")


def expect(what: str, found: list[str], *wanted: str) -> None:
    """Print what a program has read; ends the script if it is not what it must be."""
    print(f"{what}:", *found, sep="\n  ", flush=True)
    if found != [*wanted]:
        sys.exit(f"{what} should give {wanted}")


if __name__ == "__main__":
    main()
