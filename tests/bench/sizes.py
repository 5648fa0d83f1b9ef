"""How many bytes a change takes: of WAL in PostgreSQL, and of its topic in Kafka, compressed as cdcd does it.

    python tests/bench/sizes.py [--rows 100000] [--pg 18]

Rows of 12 columns, 100 a transaction: inserted, updated, updated and deleted under REPLICA IDENTITY FULL. The WAL is
what pg_current_wal_lsn() has moved, with full-page images off, because how many there are is the checkpoints' affair.
The topic's bytes are those of the broker's segments. Both hardly depend on how fast the machine is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]
import servers  # noqa: E402
from bench.workloads import FILL, ORDERS  # noqa: E402
from support.stream import StreamFixture  # noqa: E402

TRANSACTION = 100
CHANGES = {
    "insert": "{fill}",
    "update": "UPDATE orders SET status = 'delivered', paid = true WHERE id BETWEEN {first} AND {last}",
    "update, FULL": "UPDATE orders SET status = 'returned', paid = false WHERE id BETWEEN {first} AND {last}",
    "delete, FULL": "DELETE FROM orders WHERE id BETWEEN {first} AND {last}",
}


def main() -> None:
    """Print one line for each kind of change."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the table (default: 100000)")
    parser.add_argument("--pg", default="18", help="PostgreSQL's major version (default: 18)")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        servers.PostgreSQL(arguments.pg, fsync=False, settings={"full_page_writes": "off"}) as postgres,
        servers.Kafka() as kafka,
        StreamFixture(postgres.dsn(), kafka.bootstrap, "sizes", Path(folder)) as stream,
    ):
        stream.sql(ORDERS)
        daemon = stream.daemon().start()
        daemon.wait_for_log("going on")
        for name, statement in CHANGES.items():
            if "FULL" in name:
                stream.sql("ALTER TABLE orders REPLICA IDENTITY FULL")
            wal, topic = stream.written(), _bytes(kafka)
            for first in range(1, arguments.rows + 1, TRANSACTION):
                last = first + TRANSACTION - 1
                fill = FILL.format(first=first, last=last)
                stream.sql(statement.format(fill=fill, first=first, last=last))
            wal = stream.written() - wal
            daemon.wait_until_confirmed(timeout_s=300)
            topic = _bytes(kafka) - topic
            print(
                f"{name:14} {wal / arguments.rows:6.0f} bytes of WAL, {topic / arguments.rows:6.0f} of the topic a row"
            )
        assert daemon.stop() == 0


def _bytes(kafka: servers.Kafka) -> int:
    """The size of the table's topic."""
    return sum(path.stat().st_size for path in kafka.data.glob("sizes.public.orders-*/*.log"))


if __name__ == "__main__":
    main()
