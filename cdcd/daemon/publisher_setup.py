"""Makes the publisher of a stream, from what a start has found in Kafka.

Before: `kafka_takeover` has fenced the daemon before, and read what that daemon has committed.
After: `kafka_takeover` hands the publisher on.
"""

from __future__ import annotations

from collections.abc import Collection

from cdcd.config.settings import Settings
from cdcd.daemon.clients import Clients
from cdcd.daemon.schema_registry import registry_headers, take_over_ids
from cdcd.progress.continuity import Server
from cdcd.progress.records import SlotRecord
from cdcd.progress.snapshot_records import TableSnapshot
from cdcd.sink.interfaces import Producer
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.kafka.progress_store import SnapshotsTopic
from cdcd.sink.kafka.topic_check import TopicCheck
from cdcd.sink.parking.state import ParkedTables, PendingParking
from cdcd.sink.publisher import Publisher, Source
from cdcd.sink.table_topics import TableTopics, TopicSettings
from cdcd.sink.topics import topic_owners


class PublisherSetup:
    """Makes one publisher."""

    def __init__(
        self, settings: Settings, clients: Clients, kafka: KafkaCluster, parking: PendingParking | None
    ) -> None:
        """`parking` adds tables to park."""
        self._settings = settings
        self._clients = clients
        self._kafka = kafka
        self._parking = parking

    def make(
        self,
        server: Server,
        producer: Producer,
        published: Collection[tuple[str, str]],
        check: TopicCheck,
        last: SlotRecord | None,
        found: SnapshotsTopic,
    ) -> tuple[Publisher, dict[str, TableSnapshot]]:
        """Return the publisher that goes on from `last`, and how far the snapshot of each table is, by topic.

        `published` are the tables of the publication. If topics have lost records, as `check` says, a Kafka transaction
        records it, and which snapshots are wanted for that. Raises as `Publisher.declare_loss`.
        """
        sink, slot, kafka = self._settings.sink, self._settings.source.slot, self._kafka
        names = self._settings.topic_names()
        known, given_up = check.known(found.snapshots), check.given_up()
        parked = {(each.schema, each.table) for each in last.parked} if last is not None else set()
        if self._parking is not None:
            self._parking.begin(0 if last is None else last.lsn)
            parked |= self._parking.parked.keys()
        topics = TableTopics(
            kafka.admin,
            names,
            TopicSettings(sink.partitions, sink.replication_factor, sink.topic_config),
            {topic: each.snapshot for topic, each in found.snapshots.items() if topic not in given_up},
            known,
            topic_owners(names, published, {name: topic.table for name, topic in known.items()}, parked),
            kafka.bounds,
        )
        ids = self._clients.registry()
        rename = registry_headers(self._settings, names, ids)
        tables = ParkedTables(topics, slot, last, self._parking, kafka.parked_reader(names.parked), rename)
        source = Source(
            slot,
            server.system_id,
            server.timeline,
            check.cluster_id,
            server.database_oid,
            server.confirmed_lsn if slot not in found.beginnings else None,
            server.lsn_base,
            sink.event_format,
        )
        places = check.places(known, self._clients.sizes.table_records)
        publisher = Publisher(
            producer, topics, source, last, tables, found.snapshots, places, self._settings.snapshot_rules().forbids
        )
        if ids is not None:
            take_over_ids(ids, slot, found.schema_ids, publisher)
        lost = check.tables_to_snapshot()
        if not (lost or given_up):
            return publisher, found.snapshots
        wanted = publisher.declare_loss(lost, self._clients.monotonic_s(), given_up.values())
        return publisher, found.snapshots | {each.topic: each for each in wanted}
