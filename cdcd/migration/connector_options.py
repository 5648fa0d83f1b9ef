"""What becomes of the options of Debezium's connector for PostgreSQL that `conversion` does not convert.

Before: `conversion` has taken the options that a setting of cdcd stands for.
After: `cdcd migrate debezium` names each of the others, with the reason.
Source: Debezium 3.7, `PostgresConnectorConfig` and "Debezium connector for PostgreSQL"; Kafka Connect, "Source
Connector Configs". A test compares the names with those of the connector itself.

An option is *needless* if cdcd does what it is for without it, or if its value is the one that cdcd's events have
anyway. It has *no equal* if events, topics or operation differ from what the connector does with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_OWN_MEMORY: Final = "cdcd bounds its memory by bytes: sink.queue_bytes_max, spool.memory_bytes"
_OWN_RETRY: Final = "cdcd tries again by itself, without end where waiting helps"
_CONNECT: Final = "it is for Kafka Connect"
_INTERNAL: Final = "it is internal to Debezium"
_NO_SIGNALS: Final = (
    "cdcd has no signals; cdcd snapshot asks for a new snapshot of tables, and --pause, --resume and --stop control it"
)
_NO_NOTIFICATIONS: Final = "cdcd sends no notifications; its log, /metrics and cdcd status say how far it is"
_OWN_SNAPSHOT: Final = "cdcd's snapshots go on by chunks after a crash (snapshot.chunk_bytes), and lock no writer"
_HEARTBEAT: Final = (
    "cdcd moves the slot of an idle database by itself; nobody writes to the heartbeat topic any more, nor runs the "
    "query"
)
_TOPIC_NAMES: Final = "cdcd's topics are named by sink.topic, and by topic in [[table]]"
_SOME_TABLES: Final = 'snapshot = "never" in [[table]] leaves a table out of snapshots'
_SOME_ROWS: Final = "where in [[table]] says which rows of a table a snapshot publishes"
_TOPIC_GROUPS: Final = "sink.partitions and sink.topic_config are for all tables; partitions in [[table]] is for some"
_EXTRA: Final = "cdcd's schemas have no such parameters"
_LINEAGE: Final = "cdcd sends nothing to OpenLineage"

SAME: Final = "cdcd does the same"

NEEDLESS: Final[Mapping[str, str]] = {
    "name": "the name in Kafka Connect; cdcd's daemon is known by source.slot",
    "connector.class": _CONNECT,
    "connector.plugin.version": _CONNECT,
    "key.converter.plugin.version": _CONNECT,
    "value.converter.plugin.version": _CONNECT,
    "header.converter.plugin.version": _CONNECT,
    "tasks.max": _CONNECT,
    "tasks.max.enforce": _CONNECT,
    "config.action.reload": "cdcd takes changed settings and secrets while it runs",
    "custom.sanitize.pattern": "cdcd logs no value of a setting",
    "connection.validation.timeout.ms": _CONNECT,
    "exactly.once.support": "cdcd publishes exactly once by default (sink.delivery)",
    "transaction.boundary": "a Kafka transaction of cdcd holds whole transactions of PostgreSQL",
    "transaction.boundary.interval.ms": "sink.transaction_linger_ms bounds it",
    "offsets.storage.topic": "cdcd's progress is on {prefix}.progress, in the Kafka transactions of its rows",
    "database.query.timeout.ms": "cdcd's questions to the catalog are short, and a stop cancels them",
    "executor.shutdown.timeout.ms": "a stop ends the open Kafka transaction, within seconds",
    "errors.max.retries": _OWN_RETRY,
    "errors.retry.delay.max.ms": _OWN_RETRY,
    "errors.retry.timeout": _OWN_RETRY,
    "retriable.restart.connector.wait.ms": _OWN_RETRY,
    "slot.max.retries": _OWN_RETRY,
    "slot.retry.delay.ms": _OWN_RETRY,
    "errors.log.enable": "cdcd logs each refused table once, without values",
    "errors.log.include.messages": "cdcd never logs values",
    "flush.lsn.source": "cdcd confirms to the slot what Kafka has committed",
    "lsn.flush.mode": "cdcd confirms to the slot what Kafka has committed",
    "lsn.flush.timeout.action": "cdcd confirms to the slot what Kafka has committed",
    "lsn.flush.timeout.ms": "cdcd confirms to the slot what Kafka has committed",
    "heartbeat.interval.ms": _HEARTBEAT,
    "heartbeat.action.query": _HEARTBEAT,
    "heartbeat.topics.prefix": _HEARTBEAT,
    "topic.heartbeat.prefix": _HEARTBEAT,
    "incremental.snapshot.allow.schema.changes": _OWN_SNAPSHOT,
    "incremental.snapshot.chunk.size": _OWN_SNAPSHOT,
    "incremental.snapshot.watermarking.strategy": _OWN_SNAPSHOT,
    "read.only": _OWN_SNAPSHOT,
    "snapshot.delay.ms": _OWN_SNAPSHOT,
    "streaming.delay.ms": "cdcd's stream and its snapshots join at one LSN",
    "snapshot.fetch.size": _OWN_SNAPSHOT,
    "query.fetch.size": _OWN_SNAPSHOT,
    "snapshot.isolation.mode": "a snapshot of cdcd is that of one LSN",
    "snapshot.lock.timeout.ms": _OWN_SNAPSHOT,
    "snapshot.locking.mode": _OWN_SNAPSHOT,
    "snapshot.max.threads.multiplier": "snapshot.workers is for all tables together",
    "legacy.snapshot.max.threads": _OWN_SNAPSHOT,
    "snapshot.tables.order.by.row.count": _OWN_SNAPSHOT,
    "max.batch.size": _OWN_MEMORY,
    "max.queue.size": _OWN_MEMORY,
    "poll.interval.ms": "cdcd waits for the server's frames, not for a time",
    "memory.management.schemas.class": _OWN_MEMORY,
    "memory.management.tables.class": _OWN_MEMORY,
    "topic.cache.size": _OWN_MEMORY,
    "schema.refresh.mode": "cdcd takes columns and types from the stream, at the event from which on they hold",
    "slot.stream.params": "cdcd asks pgoutput for what source.binary, source.streaming and source.messages say",
    "statistics.metrics.enabled": "cdcd's metrics are at /metrics",
    "table.ignore.builtin": "PostgreSQL publishes none of its own tables",
    "topic.transaction": "it is for provide.transaction.metadata",
    "publish.via.partition.root": "a publication that exists is used as it is",
    "guardrail.collections.max": "cdcd keeps little per table; cdcd help sizing has the figures",
    "guardrail.collections.limit.action": "cdcd keeps little per table; cdcd help sizing has the figures",
    "database.include.list": "a slot is of one database",
    "database.exclude.list": "a slot is of one database",
    "snapshot.mode.configuration.based.snapshot.schema": "it is for snapshot.mode = configuration_based",
    "snapshot.mode.configuration.based.snapshot.on.schema.error": "it is for snapshot.mode = configuration_based",
    "include.schema.comments": "it is for a schema history, which PostgreSQL's connector does not have",
    "internal.log.position.check.enable": "cdcd refuses a slot that lacks changes (source.on_slot_lost)",
}
"""By name: why cdcd does without it."""

NO_EQUAL: Final[Mapping[str, str]] = {
    "database.initial.statements": "cdcd's sessions have the settings that its decoding needs",
    "database.sslfactory": "it is a class of Java: name the certificates by database.sslrootcert, .sslcert and .sslkey",
    "column.propagate.source.type": _EXTRA,
    "datatype.propagate.source.type": _EXTRA,
    "replica.identity.autoset.values": "cdcd alters no table: run ALTER TABLE ... REPLICA IDENTITY once",
    "slot.drop.on.stop": "the slot must outlive the connector: set it to false before the connector stops",
    "snapshot.include.collection.list": _SOME_TABLES,
    "snapshot.select.statement.overrides": _SOME_ROWS,
    "snapshot.query.mode": _SOME_ROWS,
    "snapshot.query.mode.custom.name": "it is a class of Java",
    "snapshot.locking.mode.custom.name": "it is a class of Java",
    "snapshot.mode.custom.name": "it is a class of Java",
    "snapshot.mode.configuration.based.snapshot.data": "it is for snapshot.mode = configuration_based",
    "snapshot.mode.configuration.based.start.stream": "it is for snapshot.mode = configuration_based",
    "snapshot.mode.configuration.based.snapshot.on.data.error": "source.on_slot_lost says what cdcd does",
    "event.converting.failure.handling.mode": "a value that its type cannot hold is null, as in the connector's events",
    "event.processing.failure.handling.mode": "cdcd leaves no event out: sink.on_unpublishable parks a table or stops",
    "errors.tolerance": "cdcd leaves no event out: sink.on_unpublishable parks a table or stops",
    "skip.messages.without.change": "cdcd publishes each UPDATE",
    "transaction.metadata.factory": "it is a class of Java",
    "signal.data.collection": _NO_SIGNALS,
    "signal.enabled.channels": _NO_SIGNALS,
    "signal.poll.interval.ms": _NO_SIGNALS,
    "signal.emit.failure.backoff.ms": _NO_SIGNALS,
    "signal.emit.failure.max.retries": _NO_SIGNALS,
    "notification.enabled.channels": _NO_NOTIFICATIONS,
    "transforms": "cdcd has no transforms: consumers would see other events",
    "predicates": "they are for transforms",
    "converters": "they are classes of Java: values are as debezium.* says",
    "post.processors": "they are classes of Java, and need the database for each event",
    "custom.metric.tags": "cdcd's metrics have the label slot",
    "sourceinfo.struct.maker": "source has the fields of the connector's default",
    "topic.naming.strategy": _TOPIC_NAMES,
    "topic.creation.groups": _TOPIC_GROUPS,
    "xmin.fetch.interval.ms": "source.xmin is null",
    "money.fraction.digits": "money has two digits",
    "database.applicationName": "source.application_name is the daemon's name",
}
"""By name: why nothing in cdcd is the same."""

FAMILIES: Final[Mapping[str, tuple[bool, str]]] = {
    "internal.": (True, _INTERNAL),
    "openlineage.": (False, _LINEAGE),
    "transforms.": (False, "it is for transforms"),
    "predicates.": (False, "it is for transforms"),
    "signal.": (False, _NO_SIGNALS),
    "notification.": (False, _NO_NOTIFICATIONS),
    "snapshot.select.statement.overrides.": (False, _SOME_ROWS),
    "column.mask.hash.": (
        False,
        'cdcd\'s hash is another one ([[table]] mask = "hash"): values that are hashed already would not join with it',
    ),
    "column.truncate.to.": (False, "cdcd does not shorten values: leave the column out, or mask it ([[table]])"),
    "topic.creation.": (False, _TOPIC_GROUPS),
    "driver.": (False, "it is a property of the JDBC driver; write libpq's into source.dsn"),
    "database.": (False, "it is a property of the JDBC driver; write libpq's into source.dsn"),
    "consumer.override.": (True, "no consumer is needed"),
    "admin.override.": (True, "sink.librdkafka is for all clients"),
    "producer.override.": (False, "librdkafka's properties are under sink.librdkafka, by its own names"),
    "key.converter.": (False, "cdcd's encodings have no such option"),
    "value.converter.": (False, "cdcd's encodings have no such option"),
    "header.converter.": (False, "cdcd's encodings have no such option"),
    "post.processors.": (False, "they are classes of Java"),
    "custom.": (False, "cdcd does not know it"),
}
"""By the beginning of a name: whether cdcd does without it, and why."""

HARMLESS: Final[Mapping[str, frozenset[str]]] = {
    "slot.drop.on.stop": frozenset({"false"}),
    "snapshot.query.mode": frozenset({"select_all"}),
    "event.converting.failure.handling.mode": frozenset({"warn", "skip"}),
    "event.processing.failure.handling.mode": frozenset({"fail"}),
    "errors.tolerance": frozenset({"none"}),
    "skip.messages.without.change": frozenset({"false"}),
    "transaction.metadata.factory": frozenset({"io.debezium.pipeline.txmetadata.DefaultTransactionMetadataFactory"}),
    "signal.enabled.channels": frozenset({"source"}),
    "signal.emit.failure.max.retries": frozenset({"0"}),
    "topic.naming.strategy": frozenset(
        {"io.debezium.schema.SchemaTopicNamingStrategy", "io.debezium.schema.DefaultTopicNamingStrategy"}
    ),
    "sourceinfo.struct.maker": frozenset({"io.debezium.connector.postgresql.PostgresSourceInfoStructMaker"}),
    "xmin.fetch.interval.ms": frozenset({"0"}),
    "money.fraction.digits": frozenset({"2"}),
    "snapshot.mode.configuration.based.snapshot.data": frozenset({"false"}),
    "snapshot.mode.configuration.based.start.stream": frozenset({"false"}),
    "snapshot.mode.configuration.based.snapshot.on.data.error": frozenset({"false"}),
    "openlineage.integration.enabled": frozenset({"false"}),
    "notification.enabled.channels": frozenset({""}),
    "transforms": frozenset({""}),
    "predicates": frozenset({""}),
    "topic.creation.groups": frozenset({""}),
}
"""By name of those without an equal: the values that ask for what cdcd does anyway."""


def fate(name: str, value: str) -> tuple[bool, str]:
    """Whether cdcd does without an option that no setting stands for, and why."""
    if value.strip().lower() in {each.lower() for each in HARMLESS.get(name, ())}:
        return True, SAME
    if name in NEEDLESS:
        return True, NEEDLESS[name]
    if name in NO_EQUAL:
        return False, NO_EQUAL[name]
    for beginning in sorted(FAMILIES, key=len, reverse=True):
        if name.startswith(beginning):
            return FAMILIES[beginning]
    return False, "Debezium 3.7's connector for PostgreSQL does not know it, nor does cdcd"
