"""cdcd: PostgreSQL change data capture to Kafka, exactly once.

The packages of the flow, from PostgreSQL to Kafka::

    source       replication connection -> frames; questions to the server (slot, publication, catalog)
    pgoutput     bytes <-> messages of logical replication
    transaction  messages -> changes of committed transactions
    avro         changes -> Avro keys and events, with their schemas
    progress     the LSN that may be acknowledged, and the records on the progress topic
    snapshot     tables as of one LSN -> rows
    sink         keys and events -> Kafka transactions

The packages around the flow. Each imports only packages before it; `terminal` stands before all::

    terminal     text for terminals: progress bars, sizes, durations
    config       the settings and their sources
    monitoring   status, metrics, health, the status page, the log
    reading      reads the topics back, as a consumer does
    verify       `cdcd verify`: compares topics with tables at one LSN
    preflight    `cdcd check`: finds out whether the daemon would run
    daemon       `cdcd run`: the start, the loop, restarts
    spark        topics as DataFrames and lake tables (not part of the daemon)
    cli          the commands

`cdcd/README.md` describes the architecture.
"""

from typing import Final

FLOW: Final = ("source", "pgoutput", "transaction", "avro", "progress", "snapshot", "sink")
"""The packages of the flow, in order. A package imports only packages before it."""

RING: Final = ("config", "monitoring", "reading", "verify", "preflight", "daemon", "spark", "cli")
"""The packages around the flow, in order."""

__version__ = "0.1.0"
