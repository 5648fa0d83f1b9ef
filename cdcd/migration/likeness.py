"""Checks that cdcd does what the connector has done: with the same tables, on the same topics, from the same end on.

Before: `handover` knows the published tables, and what the topics end in. After: it goes on only if nothing is raised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from cdcd.errors import RequestRejected
from cdcd.migration.topic_tails import TopicTails
from cdcd.migration.transforms import Route, routed_by
from cdcd.progress.snapshot_records import DONE, TableSnapshot
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.publisher import Publisher
from cdcd.sink.topics import TopicNames, shared_topics
from cdcd.source.table_selection import qualified_name

Table = tuple[str, str]

_ILLEGAL: Final = re.compile("[^A-Za-z0-9._-]")


def check_tables(publication: str, tables: Collection[Table], captured: Callable[[str, str], bool]) -> None:
    """Raise RequestRejected if the publication has tables that the connector does not capture."""
    others = sorted(f"{schema}.{name}" for schema, name in tables if not captured(schema, name))
    if others:
        raise RequestRejected(
            f"the publication {publication} has {len(others)} tables that the connector leaves out "
            f"({', '.join(others[:3])}): cdcd would publish them",
            "While the connector runs, make the publication one of its tables, in one transaction: BEGIN; DROP "
            f"PUBLICATION {publication}; CREATE PUBLICATION {publication} FOR TABLE ...; COMMIT. Stop the connector "
            "once the slot's confirmed_flush_lsn has passed that",
            code="connector-differs",
        )


def check_names(
    names: TopicNames, tables: Collection[Table], delimiter: str, routes: Sequence[Route], *, in_keys: bool
) -> None:
    """Raise RequestRejected if a table has another topic in Debezium, or keys that name the table there or here alone.

    `delimiter`: topic.delimiter. `routes`: what the connector's routers do. `in_keys`: keys of tables that share a
    topic name the table in cdcd.
    """
    for schema, name in tables:
        ours, theirs = names.on_broker(schema, name), _ILLEGAL.sub("_", delimiter.join((names.prefix, schema, name)))
        is_named = any(route.names_table and route.is_for(theirs) for route in routes)
        theirs = routed_by(routes, theirs)
        if ours != theirs:
            raise RequestRejected(
                f"the table {schema}.{name} has the topic {ours} in cdcd, and {theirs} in Debezium",
                "Set topic in an entry of [[table]]; or take the table out of the publication while the connector "
                "runs; or let cdcd begin under another sink.prefix with a snapshot",
                code="connector-differs",
            )
        if is_named != (in_keys and names.shares_topic(schema, name)):
            who = ("the connector", "cdcd") if is_named else ("cdcd", "the connector")
            raise RequestRejected(
                f"the keys of {schema}.{name} name the table as {who[0]} writes them, and as {who[1]} does they do not",
                "Compare the entries of [[table]], and debezium.key_enforce_uniqueness, with those that cdcd migrate "
                "debezium writes",
                code="connector-differs",
            )
    for owner, (schema, name) in shared_topics(names, tables):
        raise RequestRejected(
            f"the tables {'.'.join(owner)} and {schema}.{name} come to one topic, and no entry of [[table]] says so",
            "Write the same topic in the entries of [[table]] for both",
            code="connector-differs",
        )


def check_messages(kafka: KafkaCluster, names: TopicNames, delimiter: str, routes: Sequence[Route]) -> None:
    """Raise RequestRejected if the connector has published logical messages: cdcd has another topic for them."""
    theirs = routed_by(routes, delimiter.join((names.prefix, "message")))
    found = kafka.admin.partitions([theirs])
    if found and any(kafka.admin.end_offsets(found)[theirs]):
        raise RequestRejected(
            f"the connector has published logical messages on {theirs}, and cdcd does so on {names.messages}",
            "Set source.messages = false if nobody reads them; else let their consumers read both topics, and delete "
            "the old one",
            code="connector-differs",
        )


def check_copied(found: TopicTails) -> None:
    """Raise RequestRejected if the connector has not finished its snapshot."""
    if not found.is_copied:
        raise RequestRejected(
            "the topics have no change, nor the last row of a snapshot: the connector has not finished its snapshot",
            "Start the connector again, and stop it once it streams; or drop its slot, and let cdcd begin with a "
            "snapshot under another sink.prefix",
            code="connector-unfinished",
        )


def check_finished(snapshots: Mapping[str, TableSnapshot], tables: Collection[Table]) -> None:
    """Raise RequestRejected if cdcd has had the slot before, and has not finished the snapshot of one of `tables`.

    cdcd gives no slot back then, so no connector has streamed since: what is left to copy must not be forgotten.
    """
    left = sorted(
        qualified_name(each.schema, each.table)
        for each in snapshots.values()
        if each.state != DONE and (each.schema, each.table) in tables
    )
    if left:
        raise RequestRejected(
            f"cdcd has the slot already, and has not finished the snapshot of {', '.join(left[:3])}",
            "Run: cdcd run. If a connector has streamed since, let cdcd begin under another sink.prefix",
            code="connector-differs",
        )


def check_quiet(kafka: KafkaCluster, found: TopicTails, publisher: Publisher) -> None:
    """Raise RequestRejected if others have written to the topics since their ends were read.

    A connector gives the slot back before its producer has written everything.
    """
    publisher.flush()
    assert publisher.open is not None
    partitions = {topic: len(ends) for topic, ends in found.ends.items()}
    grown = found.has_grown(kafka.admin.end_offsets(partitions) if partitions else {}, publisher.open.written)
    if grown:
        raise RequestRejected(
            f"somebody writes to {grown}: the connector has not ended yet",
            "Run the command again once Kafka Connect says that it is stopped",
            code="slot-active",
        )
