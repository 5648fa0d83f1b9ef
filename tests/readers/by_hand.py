"""Executes the blocks of the page about consumers whose programs the usual run does not have: Flink SQL, and kcat.

    apt install kcat
    python tests/readers/by_hand.py     (the first time it fetches Flink: 828 MB)

Real servers: PostgreSQL, Kafka, a schema registry, and cdcd between them.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import servers
from servers import flink
from servers.registry import SchemaRegistry
from support.pages import By, blocks, executes
from support.stream import StreamFixture


def main() -> None:
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

        def read(block: str) -> list[str]:
            """Execute the statements of a block, up to the topic's end of now; returns the rows that they give."""
            text = block.replace("localhost:9092", kafka.bootstrap).replace("http://localhost:8081", registry.url)
            text = text.replace("'connector' =", "'scan.bounded.mode' = 'latest-offset', 'connector' =")
            statements = [each.strip() for each in text.split(";\n") if each.strip()]
            [changes] = flink.execute(statements).values()
            return sorted(" ".join((kind, *map(str, row))) for kind, row in changes)

        expect(
            "avro-confluent",
            read(events),
            "INSERT c 2 Grace 7.00", "INSERT c 3 Edsger 20.00", "INSERT d None None None", "INSERT r 1 Ada 12.50",
            "INSERT u 2 Grace 8.00",
        )  # fmt: skip
        expect(
            "debezium-avro-confluent",
            read(table),
            "DELETE 1 Ada 12.50", "INSERT 1 Ada 12.50", "INSERT 2 Grace 7.00", "INSERT 3 Edsger 20.00",
            "UPDATE_AFTER 2 Grace 8.00", "UPDATE_BEFORE 2 Grace 7.00",
        )  # fmt: skip

        with tempfile.TemporaryDirectory() as other:
            plain = StreamFixture(postgres.dsn(), kafka.bootstrap, "plain", Path(other))
            with plain, plain.daemon(snapshot={"mode": "initial"}) as daemon:
                daemon.start().wait_for_log("the snapshot is complete")
                assert daemon.stop() == 0
        command = kcat.replace("localhost:9092", kafka.bootstrap).replace("shop.", "plain.")
        shown = subprocess.run(["bash", "-euc", command], capture_output=True, text=True, check=True, timeout=60)
        keys = re.findall(r"^([0-9a-f]{16}) {.*public.orders", shown.stdout, re.MULTILINE)
        expect("kcat", ["a schema by its fingerprint"] if keys else [], "a schema by its fingerprint")


def expect(what: str, found: list[str], *wanted: str) -> None:
    """Print what a program has read; ends the script if it is not what it must be."""
    print(f"{what}:", *found, sep="\n  ", flush=True)
    if found != [*wanted]:
        sys.exit(f"{what} should give {wanted}")


if __name__ == "__main__":
    main()
