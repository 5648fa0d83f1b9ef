"""cdcd: PostgreSQL change data capture to Kafka, exactly once.

The flow runs one way. Each package is a stage of it::

    source       replication connection -> frames; questions to the server (slot, publication, catalog)
    pgoutput     bytes <-> messages of logical replication
    transaction  messages -> changes of committed transactions
    avro         changes -> Avro keys and events, with their schemas
    debezium     changes -> Debezium's keys and events in JSON or Avro
    json_events  the JSON of the keys and events of avro
    outbox       rows and messages that are events of their own -> records
    progress     the LSN that may be acknowledged, and the records on the progress topic
    snapshot     tables as of one LSN -> rows
    sink         keys and events -> Kafka transactions

The packages around the flow, each above the flow and the ones before it::

    config       the settings, and where they are read from
    monitoring   status, metrics, health, the page, the log
    reading      the topics, read back: the consumer's half of the wire format
    verify       the topics compared with the tables at one LSN
    preflight    the judges of `cdcd check` and of a start
    daemon       `cdcd run`: start-up, the loop, restarts
    migration    from another program's connector to cdcd: `cdcd migrate`
    spark        the topics as DataFrames and lake tables (not part of the daemon)
    cli          the commands

Below all packages: `terminal` (progress bars, sizes and durations in words), `manual` (the pages of
`cdcd help`, what `cdcd explain` takes from them, and the files of `cdcd files`), and the modules directly in `cdcd`.

`cdcd/README.md` is the architecture.
"""

from typing import Final

FLOW: Final = (
    "source", "pgoutput", "transaction", "avro", "debezium", "json_events", "outbox", "progress", "snapshot", "sink"
)  # fmt: skip
"""In the order of the flow: a package imports only packages before it, and none of their modules that do I/O."""

RING: Final = ("config", "monitoring", "reading", "verify", "preflight", "daemon", "migration", "spark", "cli")
"""The packages around the flow, in order."""

__version__ = "0.1.0"
