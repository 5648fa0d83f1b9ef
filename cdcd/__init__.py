"""cdcd: PostgreSQL change data capture to Kafka, exactly once.

The flow, one way through, a room a station::

    source       bytes of the walsender: connection, slot, publication, catalogue, when to read
    pgoutput     bytes <-> messages of logical replication
    transaction  messages -> committed transactions of known relations
    avro         changes -> Avro keys and events, with their schemas
    progress     what is durable, and what may be acknowledged
    snapshot     tables as they stood at one LSN -> changes
    sink         records -> Kafka transactions
    spark        the topics, read back: DataFrames, tables in a lake, verification (not part of the daemon)

`pipeline` wires the rooms and closes the loop from the sink's progress back to the source; `supervisor` starts it,
restarts it by the remedy that an error names, and stops it.
"""

from typing import Final

ROOMS: Final = ("source", "pgoutput", "transaction", "avro", "progress", "snapshot", "sink", "spark")
"""In the order of the flow: a room imports only the vocabulary of rooms before it."""

__version__ = "0.1.0"
