"""Deliberate bugs, each of which breaks a promise: they prove that the simulation can fail.

Before: the rooms of cdcd in their order, then the parts of the world that the simulation plays.
After: `mutant` edits the source of one module and plays the scene; `test_mutations` does so for every mutation.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True)
class Mutation:
    """One bug, as an edit of one module."""

    name: str
    """What is wrong, in words."""
    module: str
    diff: str
    """Successive lines of the module: `-` goes before a line to remove, `+` before one to add, a space before one that
    stays. The lines that are there already must stand in the module exactly once."""
    scene: str = "World"
    """The class in `scenes` that is played, by name. Some bugs show so seldom that they have a scene of their own."""
    first_seed: int = 0
    """The seeds before it take long, and none of them notices the bug."""
    damages_frames: bool = False
    """The decoder gets bytes that no server has sent: any error is a sign of the bug."""

    @property
    def before(self) -> str:
        """The lines as they stand in the module."""
        return self._lines_without("+")

    @property
    def after(self) -> str:
        """The lines with the bug."""
        return self._lines_without("-")

    def _lines_without(self, sign: str) -> str:
        lines = dedent(self.diff).lstrip("\n").splitlines(keepends=True)
        return "".join(line[1:] for line in lines if not line.startswith(sign))


_MUTATIONS = (
    # headers
    Mutation(
        "give an event the headers of another table's",
        "cdcd.transaction.headed_events",
        """
        -        self._writer.relation = self._relation
        +        self._writer.relation = self._writer.relation
        """,
    ),
    Mutation(
        "number the events of a transaction in their ids from where the last one ended",
        "cdcd.transaction.record_headers",
        """
                 self._id = f"{commit_lsn}-"
        -        self._seq = 0
        """,
    ),
    Mutation(
        "park events without their headers",
        "cdcd.sink.parking.wire_format",
        """
        -        part["headers"] = headers
        +        pass
        """,
    ),
    Mutation(
        "forget that the second part of a divided batch has headers",
        "cdcd.sink.batches",
        """
        -        rest.has_headers = self.has_headers
        """,
    ),
    # tables that share a topic
    Mutation(
        "gather the records of tables that share a topic apart",
        "cdcd.sink.batches",
        """
        -            topic = "" if self._shared_topic is None else self._shared_topic(schema, name)
        +            topic = ""
        """,
        first_seed=41,
    ),
    Mutation(
        "take the records of tables that share a topic for those of the first one",
        "cdcd.sink.batches",
        """
        -        if gathering.table != table:
        -            gathering.turn(table, self._tables.names[table])
        """,
        first_seed=41,
    ),
    Mutation(
        "leave the table out of the keys of Debezium's events and of flat rows",
        "cdcd.debezium.key_encoder",
        """
        -            self._end = writer.form.table_in_key(named, identifier) + self._header_end
        +            self._end = self._header_end
        """,
        first_seed=21,
    ),
    # the outbox
    Mutation(
        "publish what is deleted from the outbox",
        "cdcd.outbox.outbox_events",
        """
         def delete(self, frame: bytes, at: i64, lsn: i64) -> None:
        -        \"\"\"Publish nothing.\"\"\"
        +        self._changes.delete(frame, at, lsn)
        """,
    ),
    Mutation(
        "take a transaction that only deletes events for one that has some",
        "cdcd.outbox.outbox_events",
        """
        -        return kind == INSERT
        +        return True
        """,
        first_seed=87,
    ),
    Mutation(
        "publish a message of the outbox as a message, too",
        "cdcd.outbox.outbox_events",
        """
                     if found is not None and self._publish(found):
        -                return
        +                pass
        """,
    ),
    Mutation(
        "forget the headers of an event without a payload",
        "cdcd.outbox.outbox_events",
        """
        -        if headers:
        +        if headers and payload is not None:
        """,
    ),
    # Debezium's events, and flat rows
    Mutation(
        "say of each transaction that it comes after the first one",
        "cdcd.debezium.event_encoder",
        """
         def commit(self, end_lsn: i64) -> None:
        -        self._last_commit = end_lsn
        +        self._last_commit = self._last_commit or end_lsn
        """,
    ),
    Mutation(
        "number the events of a table on in the next transaction",
        "cdcd.debezium.transaction_metadata",
        """
        -            each.count = 0
        +            pass
        """,
    ),
    Mutation(
        "count the logical messages outside of transactions as events of one",
        "cdcd.debezium.message_encoder",
        """
        -        if transactional and self._metadata is not None and self._collection is not None:
        +        if self._metadata is not None and self._collection is not None:
        """,
    ),
    Mutation(
        "give the records about transactions the headers of the event before",
        "cdcd.transaction.headed_events",
        """
        -        if table != self._transactions:
        -            self._add_own(table, op)
        +        self._add_own(table, op)
        """,
        first_seed=11,
    ),
    Mutation(
        "write the fields of flat rows with the transaction before",
        "cdcd.debezium.added_fields",
        """
        -        if self._version != form.version:
        +        if self._version < 0:
        """,
    ),
    Mutation(
        "count a tombstone that is replayed as an event",
        "cdcd.sink.parking.state",
        """
        -            batch.rows = events
        +            batch.rows = len(chunk.events)
        """,
        first_seed=300,
    ),
    Mutation(
        "copy the tables that the settings forbid to copy",
        "cdcd.snapshot.table_rules",
        """
        -        return self._first(schema, table, lambda rule: rule.is_taken, self._takes_others)
        +        return self._first(schema, table, lambda rule: rule.is_taken, self._takes_others) or self._takes_others
        """,
        scene="NeverCopied",
    ),
    Mutation(
        "end a replayed Kafka transaction between a delete and its tombstone",
        "cdcd.sink.kafka.parked_reader",
        """
        -                    if full or event.op != DELETE:
        +                    if full or event.op:
        """,
    ),
    # JSON
    Mutation(
        "give every event in JSON the commit of the first one",
        "cdcd.json_events.envelope",
        """
        -        self._source = b'","source":{"commit_lsn":%d,"seq":' % int(commit_lsn)
        +        self._source = self._source or b'","source":{"commit_lsn":%d,"seq":' % int(commit_lsn)
        """,
    ),
    # columns that are masked
    Mutation(
        "let the spool keep values that are to be masked",
        "cdcd.transaction.spooled_transactions",
        """
        -        self.append_change(self._masks.frame(block, frame))
        +        self.append_change(frame)
        """,
        scene="MaskedColumns",
    ),
    Mutation(
        "mask a row by the columns that its table had before",
        "cdcd.transaction.spooled_transactions",
        """
                 self._arrived += 1
        -        self._masks.forget()
        """,
        scene="MaskedColumns",
        first_seed=20,
    ),
    Mutation(
        "mask the rows of a spooled transaction twice",
        "cdcd.transaction.masked_changes",
        """
        -        self._changes.insert(frame if frame[0] == MASKED else self.masking.frame(frame, at), at, lsn)
        +        self._changes.insert(self.masking.frame(frame, at), at, lsn)
        """,
        scene="MaskedColumns",
    ),
    # keys of the settings
    Mutation(
        "take the key of the settings only for a table that has none",
        "cdcd.transaction.relations",
        """
        -        if chosen := self._chosen_key(message):
        +        if (chosen := self._chosen_key(message)) and not self._key(message):
        """,
        scene="ChosenKeys",
    ),
    Mutation(
        "take every old key that the server sends for a change of the key",
        "cdcd.avro.event_encoder",
        """
        -        elif not self._key.has_key or self._key.is_unchanged(frame, old, new):
        +        elif not self._key.has_key or (kind == OLD and self._key.is_unchanged(frame, old, new)):
        """,
        scene="ChosenKeys",
        first_seed=50,
    ),
    # columns that are added with a default
    Mutation(
        "forget the defaults of added columns at a start",
        "cdcd.daemon.wiring",
        """
        -                kafka.publisher.last_added,
        +                None,
        """,
        scene="AddedColumns",
    ),
    Mutation(
        "record the defaults of added columns only with another key",
        "cdcd.sink.table_keys",
        """
        -            if self.last.get((schema, name)) == key and before == added:
        +            if self.last.get((schema, name)) == key:
        """,
        scene="AddedColumns",
    ),
    # tables that are replaced
    Mutation(
        "take the tables of an adopted server for others",
        "cdcd.sink.publisher",
        """
        -            self._produce_snapshot_records(list(learned))
        """,
        scene="AdoptedServer",
    ),
    Mutation(
        "take the events of another table of the name for events of the same table",
        "cdcd.daemon.recopies",
        """
        -                self.follow(*table, other.contradiction(Incarnation(each.oid)))
        -                copied[table] = None
        +                pass
        """,
        scene="ReplacedTables",
        first_seed=17,
    ),
    Mutation(
        "trust the stream to show every replaced table",
        "cdcd.daemon.snapshot_requests",
        """
        -        replaced = "" if seen is None else self._recopies.why_replaced(topic, seen)
        +        replaced = ""
        """,
        scene="ReplacedTables",
    ),
    Mutation(
        "compare the stream with a table that it has not reached",
        "cdcd.daemon.snapshot_requests",
        """
        -        self._replaced_now = []
                 for each in chosen:
        +            self._recopies.incarnations.put(each.topic, each.incarnation)
        """,
        scene="ReplacedTables",
    ),
    Mutation(
        "copy once more what a snapshot has that the stream has not reached",
        "cdcd.daemon.snapshot_requests",
        """
        -        self._requested -= anew
        """,
        scene="ReplacedTables",
    ),
    Mutation(
        "put the first rows of a table to those of the table that had its name",
        "cdcd.daemon.recopies",
        """
        -            is_other = bool(self.why_replaced(begun.topic, seen)) or is_other
        """,
        scene="ReplacedTables",
        first_seed=17,
    ),
    Mutation(
        "forget that a table has left its name, if no other table had events under it",
        "cdcd.progress.topic_incarnations",
        """
        -        self._by_topic[left] = Incarnation(0)
        """,
        scene="ReplacedTables",
        first_seed=22,
    ),
    # transaction
    # Where the server announces every new name, this shows only in transactions whose Relations come before the commit.
    Mutation(
        "forget a table whose name another table has got",
        "cdcd.transaction.change_router",
        """
        -            self._known[other.relation_oid] = DormantRelation(self._relations, self._consumer, other)
        +            del self._known[other.relation_oid]
        """,
        scene="SwappedNames",
        damages_frames=True,
    ),
    Mutation(
        "take a keepalive inside a transaction for quiet",
        "cdcd.transaction.assembler",
        """
        +        self._state = BETWEEN_TRANSACTIONS
        +        self.received_lsn = wal_end
                 if not self._state.in_transaction:
                     self.last_idle_keepalive_lsn = wal_end
        """,
    ),
    Mutation(
        "skip one byte too far",
        "cdcd.transaction.sent_again",
        """
        +        durable_lsn += bool(durable_lsn)
                 self._durable_lsn: i64 = durable_lsn
        """,
    ),
    Mutation(
        "skip nothing",
        "cdcd.transaction.sent_again",
        """
        +        durable_lsn = 0
                 self._durable_lsn: i64 = durable_lsn
        """,
    ),
    Mutation(
        "let the stream run past the snapshot",
        "cdcd.transaction.assembler",
        """
        -        self._pause_lsn = lsn
        -        self.is_paused = False
        """,
        scene="SnapshotsUnderFaults",
    ),
    Mutation(
        "go on although the last published transaction does not come again",
        "cdcd.transaction.sent_again",
        """
        -        self.awaits_last_published = commit_lsn != 0 and max(confirmed_lsn, self._since_lsn) <= commit_lsn
        +        self.awaits_last_published = False
        """,
        scene="PutBackServer",
    ),
    Mutation(
        "drop rows where nothing was published",
        "cdcd.transaction.sent_again",
        """
        -        return self._commit_lsn < self._skipped_lsn and self._since_lsn <= self._skipped_lsn
        +        return False
        """,
        scene="PutBackServer",
        first_seed=105,
    ),
    Mutation(
        "drop messages where nothing was published",
        "cdcd.transaction.assembler",
        """
                     self._consumer.commit(message.lsn)
        -        else:
        -            self._sent_again.check_rows()
        """,
        scene="PutBackBeforeMessages",
    ),
    Mutation(
        "take requests that were passed over for rows of another history",
        "cdcd.transaction.assembler",
        """
        -                    elif self._sent_again.expects_no_rows and self._router.is_event(frame, kind, BODY_AT):
        +                    elif self._sent_again.expects_no_rows:
                                 self._sent_again.check_rows()
        """,
        scene="RequestsPassedOver",
    ),
    Mutation(
        "ignore the subxid",
        "cdcd.transaction.spooled_transactions",
        """
        -            spooled.roll_back(message.subxid)
        +            pass
        """,
        first_seed=70,
    ),
    Mutation(
        "abort all for one subxid",
        "cdcd.transaction.spooled_transactions",
        """
        -            spooled.roll_back(message.subxid)
        +            del self._streams[message.xid]
        +            spooled.close()
        """,
        first_seed=70,
    ),
    Mutation(
        "keep the first version of a table",
        "cdcd.transaction.change_router",
        """
        +        if message.relation_oid in self._known:
        +            return
                 self.put(message, open_changes(self._relations, self._consumer, message))
        """,
    ),
    Mutation(
        "leave the key out where the catalog of now has another",
        "cdcd.transaction.relations",
        """
        -            if hidden and index - hidden == flagged:
        +            if len(index) != len(flagged):
                         return set()
        """,
    ),
    Mutation(
        "hand on memory before the disk",
        "cdcd.transaction.spool",
        """
        +        yield self._frames
                 if len(self._segments):
                     self._segments.check_size()
                     for number in range(len(self._segments)):
                         yield self._segments.read(number).frames
        -        yield self._frames
        """,
    ),
    Mutation(
        "let the spool grow",
        "cdcd.transaction.spool",
        """
                 self._frame_bytes += size
        +        return
        """,
    ),
    Mutation(
        "let the list of what is on disk grow",
        "cdcd.transaction.spool",
        """
        -        if size > 0 and self._index_bytes > self._index_bytes_max:
        +        if size > self._memory_bytes_max > self._bytes_max:
        """,
        scene="SubtransactionsByTheThousand",
    ),
    Mutation(
        "cut where the next subtransaction begins",
        "cdcd.transaction.spool",
        """
                 self._spool.on_change(taken, 0)
        -        self._cut_memory(bisect_left(self._begin_xids, xid))
        +        at = bisect_left(self._begin_xids, xid) + 1
        +        if at < len(self._begin_xids):
        +            self._cut_memory(at)
        """,
        scene="SubtransactionsByTheThousand",
    ),
    Mutation(
        "trust the disk",
        "cdcd.transaction.spool_segments",
        """
        -        if not compare_digest(self._tag([data]), tag):
        -            raise self._damaged(start)
        """,
        scene="TornSpool",
        damages_frames=True,
    ),
    # avro
    Mutation(
        "take a registry that is away for one that refuses",
        "cdcd.avro.registry_patience",
        """
        -                if error.meaning is not Meaning.PASSING:
        +                if error.meaning is not Meaning.REFUSED:
        """,
        scene="RegistryAway",
    ),
    # progress
    Mutation(
        "acknowledge what was received",
        "cdcd.progress.ack_tracker",
        """
        -        position = min(self._durable, self._server_position)
        +        return self._received
        """,
    ),
    Mutation(
        "acknowledge a quiet server before the slot record",
        "cdcd.progress.ack_tracker",
        """
        -        return self._acked
        +        return max(self._acked, self.idle_position())
        """,
    ),
    Mutation(
        "remember that it was caught up",
        "cdcd.progress.ack_tracker",
        """
        -        if (
        -            self.awaits_last_published
        -            or self._in_transaction
        -            or unresolved
        -            or self._received > self._durable
        -            or self._server_position <= self._durable
        -        ):
        +        if not (self._in_transaction or unresolved or self._received > self._durable):
        +            self._is_caught_up = True
        +        if not hasattr(self, "_is_caught_up") or self._server_position <= self._durable:
        """,
    ),
    Mutation(
        "let a prepared transaction be forgotten",
        "cdcd.progress.ack_tracker",
        """
        -        self._held[name] = prepare_lsn
        """,
    ),
    Mutation(
        "end the hold before the rows are durable",
        "cdcd.progress.ack_tracker",
        """
        -            if end_lsn <= self._durable:
        -                del self._held[name]
        -            else:
        -                self._resolved[name] = end_lsn
        +            del self._held[name]
        """,
    ),
    Mutation(
        "acknowledge a history that may be another one",
        "cdcd.progress.ack_tracker",
        """
        -        if self.awaits_last_published:
        -            return self._confirmed
        """,
        scene="PutBackServer",
    ),
    # Found by the simulation. A Rollback Prepared told a position, and the slot record with it hid the contradiction.
    Mutation(
        "record a position of a history that may be another one",
        "cdcd.progress.ack_tracker",
        """
        -            self.awaits_last_published
        -            or self._in_transaction
        +            self._in_transaction
        """,
        scene="PutBackServer",
        first_seed=600,
    ),
    Mutation(
        "begin anew although the progress is lost",
        "cdcd.progress.continuity",
        """
        -        return check_first_start(slot, remains, progress, accepts_gap=accepts_gap)
        +        return True
             return check_continuity(last, slot, server, remains.beginning_lsn or 0, accepts_gap=accepts_gap)
        """,
        scene="LostProgress",
    ),
    Mutation(
        "miss no parked events that are lost",
        "cdcd.sink.publisher",
        """
        -            if name != parked or self._parked.has_events
        +            if name != parked
        """,
        scene="LostParkedEvents",
    ),
    Mutation(
        "trust a progress that lacks its last records",
        "cdcd.progress.continuity",
        """
        -    if not beyond:
        -        return True
        +    return True
        """,
        scene="CutProgress",
    ),
    Mutation(
        "look for table records behind the end of a progress that was brought back",
        "cdcd.sink.kafka.progress_store",
        """
        -        read_from = offset if offset <= stop else start
        +        read_from = offset
        """,
        scene="BroughtBackProgress",
    ),
    # Found by the simulation. After a restart the COMMIT PREPARED came alone, which looks as if rows were lost.
    Mutation(
        "let go of a prepared transaction without rows",
        "cdcd.progress.ack_tracker",
        """
        -            if end_lsn <= self._durable:
        +            if end_lsn <= self._durable or end_lsn > self._received:
        """,
        scene="PreparedWithoutRows",
    ),
    Mutation(
        "take a topic that was made again for the one before",
        "cdcd.progress.topic_evidence",
        """
        -    if was.topic_id and now.topic_id and was.topic_id != now.topic_id:
        -        return "was deleted and made again"
        """,
    ),
    Mutation(
        "miss a topic that does not exist",
        "cdcd.progress.topic_evidence",
        """
        -        what = _loss(was, found.get(topic)) if any(was.ends) else ""
        +        what = _loss(was, found[topic]) if topic in found else ""
        """,
    ),
    Mutation(
        "miss a topic that ends too early",
        "cdcd.progress.topic_evidence",
        """
        -        if UNKNOWN_END < end < recorded:
        +        if UNKNOWN_END < end < 0:
        """,
    ),
    Mutation(
        "believe the progress of another cluster",
        "cdcd.progress.topic_evidence",
        """
        -    if last.cluster_id and cluster_id and last.cluster_id != cluster_id:
        +    if last.cluster_id and not cluster_id:
        """,
    ),
    # snapshot
    Mutation(
        "leave out what has moved into blocks that are done",
        "cdcd.snapshot.chunks",
        """
        -                found.append(Chunk(table.topic, heap, done.first, done.end, False, table.xmin))
        """,
        scene="BrokenSnapshots",
    ),
    Mutation(
        "look for what has moved since the last snapshot, not since the first",
        "cdcd.snapshot.chunks",
        """
        -            return replace(table, lsn=lsn, done=kept, starts_with_truncate=False, key_columns=key)
        +            return replace(table, lsn=lsn, xmin=xmin, done=kept, starts_with_truncate=False, key_columns=key)
        """,
        scene="BrokenSnapshots",
    ),
    Mutation(
        "take blocks of a file that is gone for done",
        "cdcd.snapshot.chunks",
        """
        -        kept = tuple(done for done in table.done if (done.heap, done.file_node) in current)
        +        kept = tuple(replace(done, file_node=heaps[0].file_node) for done in table.done)
        """,
        scene="BrokenSnapshots",
    ),
    # Found by the simulation.
    Mutation(
        "begin the rest of a snapshot with a truncate",
        "cdcd.snapshot.chunks",
        """
        -            return replace(table, lsn=lsn, done=kept, starts_with_truncate=False, key_columns=key)
        +            return replace(table, lsn=lsn, done=kept, key_columns=key)
        """,
        scene="BrokenSnapshots",
    ),
    Mutation(
        "give rows the lsn of what the snapshot does not show",
        "cdcd.snapshot.encoder",
        """
        +        self._lsn += 1
                 self._encoder.begin_snapshot(self._lsn - 1, self._taken_us)
        """,
        scene="SnapshotsUnderFaults",
    ),
    Mutation(
        "take blocks for done that are being read",
        "cdcd.snapshot.encoder",
        """
        +        table = self._tables[chunk.topic]
        +        if chunk.completes is not None:
        +            table.record = table.record.with_range(chunk.completes)
        +            self._changed.add(chunk.topic)
                 return self._tables[chunk.topic].rows.begin_copy()
        """,
        scene="SnapshotsUnderFaults",
        first_seed=89,
    ),
    # sink
    Mutation(
        "take the topics of another prefix for this one's",
        "cdcd.sink.topics",
        """
        -    known = {"{prefix}": re.escape(prefix), "{schema}": "[a-zA-Z0-9_-]+", "{table}": "[a-zA-Z0-9_-]+"}
        +    known = {"{prefix}": "[a-zA-Z0-9_-]+", "{schema}": "[a-zA-Z0-9_-]+", "{table}": "[a-zA-Z0-9_-]+"}
        """,
        scene="TwoPrefixes",
    ),
    Mutation(
        "truncate one partition",
        "cdcd.sink.batches",
        """
        -        gathering.everywhere.append(len(gathering.messages))
        """,
    ),
    Mutation(
        "rows to any partition",
        "cdcd.sink.partitioner",
        """
        -                lists[partition_for(key, partitions)].append(message)
        +                lists[at % partitions].append(message)
        """,
    ),
    Mutation(
        "replay parked events by their keys, where a column decides the partition",
        "cdcd.sink.parking.wire_format",
        """
        -        if event.hash is not None:
        +        if event.hash is None:
        """,
        scene="ChosenKeys",
    ),
    Mutation(
        "rows without keys to any partition",
        "cdcd.sink.partitioner",
        """
        -                lists[0].append(message)
        +                lists[at % partitions].append(message)
        """,
    ),
    Mutation(
        "wake nobody when there is room",
        "cdcd.sink.batch_queue",
        """
        -        if is_awaited:
        -            self._on_room()
        """,
    ),
    Mutation(
        "commit when the next batch comes",
        "cdcd.sink.commit_schedule",
        """
                     self._raise_if_too_old(now, transaction)
                     return False
        +        return more
        """,
    ),
    Mutation(
        "commit inside a postgresql transaction",
        "cdcd.sink.kafka_transaction",
        """
        -            self.is_inside = batch.ends_inside_transaction
        +            self.is_inside = False
        """,
    ),
    Mutation(
        "publish schemas after the rows",
        "cdcd.sink.publisher",
        """
                 if batch.schemas:
        -            self._publish_schemas(batch.schemas)
        +            self._publish_schemas(getattr(self, "_earlier_schemas", []))
        +            self._earlier_schemas = batch.schemas
        """,
    ),
    Mutation(
        "stop all tables for a topic that kafka refuses",
        "cdcd.sink.table_topics",
        """
                 except Unpublishable as error:
        +            new = {}
        """,
    ),
    Mutation(
        "make the topic of a table whenever it is parked",
        "cdcd.sink.publisher",
        """
        +        self._topics.find(name for table in batch.tables for name in table.tables)
                 self._topics.find(name for _, names in with_tables for name in names)
        """,
    ),
    Mutation(
        "progress outside the transaction",
        "cdcd.sink.publisher",
        """
        +        self._producer.commit()
        +        self._producer.begin()
                 self._produce(self._topics.names.progress, _PROGRESS_PARTITION, messages)
        """,
    ),
    Mutation(
        "go on from the commit lsn",
        "cdcd.sink.publisher",
        """
        -            lsn=transaction.end_lsn or (0 if last is None else last.lsn),
        +            lsn=transaction.commit_lsn or transaction.end_lsn or (0 if last is None else last.lsn),
        """,
    ),
    Mutation(
        "publish changes before the snapshot is complete",
        "cdcd.sink.parking.state",
        """
        -        self._defer([(each.schema, each.table) for each in records if each.state == RUNNING], lsn)
        """,
        scene="SnapshotsUnderFaults",
        first_seed=210,
    ),
    Mutation(
        "leave deferred what was deferred",
        "cdcd.sink.parking.state",
        """
        -            if each.has_ended and isinstance(known, DeferredTable):
        -                self._tables[each.schema, each.table] = replace(known, is_replaying=True)
        """,
        scene="SnapshotsUnderFaults",
        first_seed=90,
    ),
    Mutation(
        "fence with the second producer when its turn comes",
        "cdcd.sink.kafka.alternating_producer",
        """
        -        return first.start(stopping) and second.start(stopping)
        +        begin = second.begin
        +
        +        def start_and_begin() -> None:
        +            second.begin = begin
        +            second.start(stopping)
        +            begin()
        +
        +        second.begin = start_and_begin
        +        return first.start(stopping)
        """,
        scene="ZombieThatPublishes",
    ),
    Mutation(
        "take a producer that Kafka has forgotten for one that is fenced",
        "cdcd.sink.kafka.refusals",
        """
        -_FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
        +_FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_ID_MAPPING})
        """,
        scene="ForgottenProducers",
    ),
    Mutation(
        "take where the slot began for an acknowledgement",
        "cdcd.sink.hanging_transactions",
        """
        -        return evidence.confirmed_lsn == evidence.undecided.lsn
        +        return 0 < evidence.confirmed_lsn <= evidence.undecided.lsn
        """,
        scene="MarkersLost",
        first_seed=265,
    ),
    Mutation(
        "abort a commit whose rows readers see",
        "cdcd.sink.hanging_transactions",
        """
        -    if evidence.rows_visible or _was_acknowledged(evidence):
        +    if _was_acknowledged(evidence):
        """,
        scene="CoordinatorMoves",
    ),
    Mutation(
        "abort a commit that postgresql was told of",
        "cdcd.sink.hanging_transactions",
        """
        -    if evidence.rows_visible or _was_acknowledged(evidence):
        +    if evidence.rows_visible:
        """,
        scene="CoordinatorMoves",
    ),
    Mutation(
        "abort rows that the progress counts",
        "cdcd.sink.hanging_transactions",
        """
        -    ends = {topic: record.offsets for topic, record in evidence.tables.items()}
        +    ends: dict[str, tuple[int, ...]] = {}
        """,
        scene="CoordinatorMoves",
    ),
    # Found by the simulation.
    Mutation(
        "abort schemas that the progress counts",
        "cdcd.sink.hanging_transactions",
        """
        -        ends |= {topic: state.ends for topic, state in evidence.visible.own_topics.items()}
        +        pass
        """,
        scene="CoordinatorMoves",
    ),
    Mutation(
        "abort messages that the progress counts",
        "cdcd.sink.kafka.undecided_transactions",
        """
        -        tables = {topic for topic, _ in hanging} - self._shared
        +        tables = {topic for topic, _ in hanging} - self._shared - {names.messages}
        """,
        scene="CoordinatorMoves",
    ),
    Mutation(
        "take the rows of undecided progress for visible",
        "cdcd.sink.kafka.undecided_transactions",
        """
        +        return True
                 for partition, end in enumerate(counted.offsets):
        """,
        scene="MarkersLost",
    ),
    Mutation(
        "leave undecided what hangs of the second producer",
        "cdcd.sink.hanging_transactions",
        """
        -        for producer in producers:
        +        for producer in producers[:1]:
        """,
        scene="MarkersLost",
    ),
    Mutation(
        "forget the tables that no transaction has touched lately",
        "cdcd.sink.table_records",
        """
        -        return next((offset for _, offset in self._places.values()), self.end)
        +        return self.end
        """,
    ),
    Mutation(
        "let the end of a topic go back",
        "cdcd.sink.kafka_transaction",
        """
        -        self.lacks_records = self.lacks_records or end - written < self.offsets[partition]
        +        self.lacks_records = self.lacks_records or end <= self.offsets[partition]
        """,
        scene="CutWhileItWrites",
    ),
    Mutation(
        "end a stream for a loss that no later start can see",
        "cdcd.sink.publisher",
        """
        -                    lacks_records=kafka.lacks_records,
        """,
        scene="CutWhileItWrites",
    ),
    Mutation(
        "keep the snapshot of a topic that its table has left",
        "cdcd.sink.publisher",
        """
        -                if self._keys.has_snapshot(topic.name):
        +                if not topic.name:
        """,
        scene="RepublishedTable",
    ),
    Mutation(
        "keep the snapshot of a table that the publication was without",
        "cdcd.source.incarnations",
        """
        -        if self.published_by and seen.published_by and not set(self.published_by) & set(seen.published_by):
        +        if self.published_by and not seen.published_by:
        """,
        scene="FollowedPublication",
    ),
    Mutation(
        "leave tables in the publication that the settings leave out",
        "cdcd.source.publication_contents",
        """
        -    if out:
        -        statements.append(f"{alter} DROP {listed_tables(out)}")
        +    if back:
        +        statements.append(f"{alter} DROP {listed_tables(back)}")
        """,
        scene="FollowedPublication",
    ),
    Mutation(
        "forget where cdcd's own topics end",
        "cdcd.sink.publisher",
        """
        -            own_topics=self._own,
        """,
    ),
    Mutation(
        "judge no topic of cdcd's own",
        "cdcd.sink.kafka.cluster",
        """
        -            if fault.is_fatal:
        +            if not fault.hint:
        """,
    ),
    Mutation(
        "overlook rows that no record explains",
        "cdcd.sink.kafka.progress_store",
        """
        -        if unclaimed and not self.snapshots_topic().is_empty:
        +        if unclaimed:
        """,
        scene="LostProgress",
    ),
    Mutation(
        "take another slot's snapshots for this one's",
        "cdcd.sink.kafka.progress_store",
        """
        -            {each.topic: each for each in tables if each.slot == self._slot},
        +            {each.topic: each for each in tables},
        """,
        scene="SharedPrefix",
    ),
    # preflight
    Mutation(
        "let a stranger's table without a replica identity refuse the next start",
        "cdcd.preflight.replica_identity",
        """
        -    yield from _for_each(bare, _bare, error if publication is None else warning, "replica-identity-missing")
        +    yield from _for_each(bare, _bare, error, "replica-identity-missing")
        """,
    ),
    # daemon
    Mutation(
        "leave the server without an answer while an event waits for the registry",
        "cdcd.daemon.pipeline",
        """
        -        self._wait(min(wait_s, update_s), is_reading=False)
        +        self._wait(wait_s, is_reading=False)
        """,
        scene="RegistryAway",
    ),
    Mutation(
        "take lost topics as they are",
        "cdcd.daemon.publisher_setup",
        """
        -        lost = check.tables_to_snapshot()
        +        lost = []
        """,
        first_seed=127,
    ),
    Mutation(
        "do not hear of topics that are lost while the stream runs",
        "cdcd.daemon.pipeline",
        """
        -        self._topic_watch.raise_loss()
        """,
    ),
    Mutation(
        "start again without end for a prepared transaction that does not fit",
        "cdcd.daemon.fallbacks",
        """
        -        if isinstance(error, SpoolFull) and not self.streaming_allowed and not error.may_pass:
        +        if isinstance(error, SpoolFull) and self.streaming_allowed and error.may_pass:
        """,
        scene="PreparedBeyondTheSpool",
    ),
    Mutation(
        "fence before the server is judged",
        "cdcd.daemon.kafka_takeover",
        """
        -        check_server(visible, server)
        """,
        scene="Intruder",
    ),
    # adopted servers, whose LSNs begin again
    Mutation(
        "add no base to the LSNs of commits",
        "cdcd.pgoutput.decoder",
        """
                     cursor = Cursor(frame, at, "Commit")
        -            cursor.lsn_base = self.lsn_base
        """,
        scene="AdoptedServer",
    ),
    Mutation(
        "add no base to the LSNs of streamed and prepared transactions",
        "cdcd.pgoutput.decoder",
        """
                     cursor.to_text = self._to_text
        -            cursor.lsn_base = self.lsn_base
        """,
        scene="AdoptedServer",
    ),
    Mutation(
        "add no base to the LSNs of rows",
        "cdcd.transaction.change_router",
        """
        -        lsn = read_i64_be(frame, 1) + self._lsn_base
        +        lsn = read_i64_be(frame, 1)
        """,
        scene="AdoptedServer",
    ),
    Mutation(
        "add no base to keepalives",
        "cdcd.transaction.assembler",
        """
        -        wal_end: i64 = keepalive.wal_end + self._decoder.lsn_base
        +        wal_end: i64 = keepalive.wal_end
        """,
        scene="AdoptedServer",
    ),
    Mutation(
        "confirm to the server what it does not have",
        "cdcd.daemon.stream_startup",
        """
        -        stream.lsn_base = kafka.lsn_base
        """,
        scene="AdoptedServer",
    ),
    Mutation(
        "let LSNs in Kafka go back at another server",
        "cdcd.progress.continuity",
        """
        -        return base_for(server.wal_lsn, last.lsn)
        +        return last.lsn_base
        """,
        scene="AdoptedServer",
    ),
    Mutation(
        "forget the base at the next start",
        "cdcd.daemon.kafka_takeover",
        """
        -            server = server.rebased(0 if last is None else last.lsn_base)
        """,
        scene="AdoptedServer",
    ),
    Mutation(
        "look at the progress that a killed adoption hides",
        "cdcd.daemon.adoption",
        """
        -            last = progress_store(self._settings, kafka).visible_record()
        +            last = progress_store(self._settings, kafka).last_record()
        """,
        scene="AdoptedServer",
    ),
    Mutation(
        "commit the record of an adoption that was killed",
        "cdcd.sink.kafka.undecided_transactions",
        """
        -        if last is not None and (last.system_id, last.lsn_base) != (undecided.system_id, undecided.lsn_base):
        +        if last is None:
                     return False
        """,
        scene="AdoptedServer",
    ),
    Mutation(
        "drop the slot although the record may be in Kafka",
        "cdcd.daemon.adoption",
        """
        -            # The slot stays from here on: Kafka may have the record, whatever becomes of the answer.
        -            return self._record(session_of_kafka, found, incarnations, proof, seam)
        +            try:
        +                return self._record(session_of_kafka, found, incarnations, proof, seam)
        +            except BaseException:
        +                slot.drop_created()
        +                raise
        """,
        scene="AdoptedServer",
    ),
    Mutation(
        "count seq anew in every batch",
        "cdcd.daemon.stream_reader",
        """
        +        self._assembler._consumer.seq = 0
                 assembler, tracker, batch = self._assembler, self._tracker, self._batches.build()
        """,
    ),
    # Found by the simulation. In one burst the tracker heard of the Begin before the Prepare, which ended it.
    Mutation(
        "forget that a transaction began after a prepare",
        "cdcd.daemon.stream_reader",
        """
        +        was_prepared = any(outcome.kind == PREPARE for outcome in assembler.prepared_outcomes)
                 assembler.prepared_outcomes.clear()
                 # Last, because it is the state after all frames: a transaction may have begun after the last prepare.
        -        if assembler.in_transaction:
        +        if assembler.in_transaction and not was_prepared:
        """,
        scene="RolledBackBeforeALargeOne",
    ),
    Mutation(
        "drop the batch that finds no room",
        "cdcd.daemon.sink_link",
        """
        -        if not self._queue.put(batch):
        -            self._refused = batch
        +        self._queue.put(batch)
        """,
    ),
    Mutation(
        "wake nobody for the acknowledgement",
        "cdcd.daemon.sink_link",
        """
        -        self._wake()
        """,
    ),
    Mutation(
        "read the progress before fencing",
        "cdcd.sink.kafka.progress_store",
        """
        -        if self._visible is not None and bounds is not None and self._visible[0] == bounds:
        +        if self._visible is not None:
        """,
        scene="ZombieThatPublishes",
    ),
    Mutation(
        "accept a slot that was moved",
        "cdcd.daemon.kafka_takeover",
        """
        -        is_contiguous = check_start(last, remains, slot, server, names.progress, accepts_gap=accepts_gap)
        +        is_contiguous = True
        """,
    ),
    Mutation(
        "leave undecided what hangs",
        "cdcd.daemon.kafka_takeover",
        """
        -        decide_hanging(undecided, producers, gather_evidence, self._pause, self._ended)
        """,
        first_seed=240,
    ),
    # Found by the simulation. Another daemon made the slot between the two questions, and published.
    Mutation(
        "take the slot of another daemon for a lost one",
        "cdcd.daemon.slot_setup",
        """
        -        if self._slot.state() is not None:
        -            return  # another daemon has made it meanwhile, and may have published already
        """,
        scene="TwoFirstStarts",
    ),
    # Found by the simulation.
    Mutation(
        "take the news of another daemon for a gap",
        "cdcd.daemon.slot_setup",
        """
        -        if state is None or state.active_pid != stream.backend_pid:
        +        if state is None:
        """,
        scene="LostWhileTakingOver",
    ),
    Mutation(
        "forget over a restart that the snapshots are paused",
        "cdcd.daemon.wiring",
        """
        -        is_paused=last is not None and last.snapshots_paused,
        """,
        scene="PausedSnapshots",
        first_seed=48,
    ),
    Mutation(
        "record a pause of the snapshots only until the next start",
        "cdcd.sink.publisher",
        """
        -        self._snapshots_paused = last is not None and last.snapshots_paused
        +        self._snapshots_paused = False
        """,
        scene="PausedSnapshots",
    ),
    Mutation(
        "begin chunks while the snapshots are paused",
        "cdcd.daemon.snapshot_coordinator",
        """
        -        rows.read(now, self._requests.may_read)
        +        rows.read(now)
        """,
        scene="PausedSnapshots",
        first_seed=79,
    ),
    Mutation(
        "forget over a restart that a snapshot was stopped",
        "cdcd.sink.publisher",
        """
        -                self._record_request(transaction, self._keys.stop(wanted))
        +                pass
        """,
        scene="StoppedSnapshots",
    ),
    Mutation(
        "read on in a table whose snapshot was stopped",
        "cdcd.snapshot.encoder",
        """
        -        if table is not None and not table.record.has_ended:
        +        if False:
        """,
        scene="StoppedSnapshots",
    ),
    Mutation(
        "begin a snapshot that was stopped before its rows",
        "cdcd.snapshot.encoder",
        """
        -            self._tables.pop(topic, None)
        -            self._changed.discard(topic)
                     return
        """,
        scene="StoppedSnapshots",
    ),
    Mutation(
        "forget what is asked for during a snapshot",
        "cdcd.daemon.snapshot_coordinator",
        """
        -        self._requests.request(schema, table)
                 if self.state is SnapshotState.IDLE:
        +            self._requests.request(schema, table)
                     self._begin()
        """,
        scene="SnapshotsUnderFaults",
        first_seed=25,
    ),
    Mutation(
        "lose a request that comes without rows",
        "cdcd.daemon.stream_reader",
        """
        -        if batch.rows or batch.requests or self._has_open_rows:
        +        if batch.rows or self._has_open_rows:
        """,
        scene="SnapshotsUnderFaults",
    ),
    Mutation(
        "take requests of everybody's logical messages",
        "cdcd.avro.event_encoder",
        """
                 self._messages.message(b"N" + row, lsn)
        +        if prefix == "cdcd":
        +            asked = {"action": "snapshot", "table_schema": "public", "table_name": "orders"}
        +            self.records.request({"slot": "s", **asked})
        """,
    ),
    Mutation(
        "take requests from a table that a stranger owns",
        "cdcd.transaction.dormant_relation",
        """
        -        return RequestRows(consumer, message, relations.takes_requests(message.relation_oid))
        +        return RequestRows(consumer, message, True)
        """,
    ),
    Mutation(
        "take requests for tables that are not published",
        "cdcd.daemon.request_intake",
        """
        -                if request.needs_published_table and request.table not in published and not gives_up:
        -                    raise ValueError("the publication does not have this table")
        """,
    ),
    Mutation(
        "take the requests of another slot",
        "cdcd.daemon.request_intake",
        """
        -        own = [row for row in rows if row.get("slot") == self._slot]  # the others are for other daemons
        +        own = list(rows)
        """,
    ),
    Mutation(
        "publish requests as rows",
        "cdcd.transaction.dormant_relation",
        """
        -    if is_requests(message.nspname, message.relname):
        +    if False:
        """,
    ),
    Mutation(
        "leave rows under the old key",
        "cdcd.daemon.recopies",
        """
        -        return list(copied)
        +        return []
        """,
        scene="ChangedKeys",
    ),
    Mutation(
        "overlook a key that came and went within a batch",
        "cdcd.daemon.request_intake",
        """
        -        return taken + [Request(SNAPSHOT, table) for table in self._announce(announced)]
        +        last = {(each.schema, each.name): each for each in announced}
        +        return taken + [Request(SNAPSHOT, table) for table in self._announce(last.values())]
        """,
        scene="ChangedKeys",
    ),
    Mutation(
        "let the copy under a new key die with the daemon",
        "cdcd.daemon.request_intake",
        """
        -        return taken + [Request(SNAPSHOT, table) for table in self._announce(announced)]
        +        self._announce(announced)
        +        return taken
        """,
        scene="ChangedKeys",
    ),
    Mutation(
        "copy again for a key that changed before the copy",
        "cdcd.daemon.snapshot_requests",
        """
        -            if not each.done and (is_other or each.topic in self._requested):
        +            if not each.done and is_other:
        """,
        scene="ChangedKeys",
    ),
    Mutation(
        "take the rest of a snapshot for a new one",
        "cdcd.daemon.snapshot_requests",
        """
        -            if not each.done and (is_other or each.topic in self._requested):
        +            if is_other or each.topic in self._requested:
        """,
        scene="ChangedKeys",
        first_seed=599,
    ),
    Mutation(
        "begin a first snapshot after events under another key",
        "cdcd.daemon.recopies",
        """
        -        is_other = self._keys.get(table, key) != key
        +        is_other = False
        """,
        scene="ChangedKeys",
    ),
    # Repairs
    Mutation(
        "publish a repair and leave its record",
        "cdcd.daemon.repair_requests",
        """
        -                del self._pending[key]
        -                records[key] = None
        +                del self._pending[key]
        """,
        scene="RepairsUnderFaults",
    ),
    Mutation(
        "forget a repair at a restart",
        "cdcd.sink.publisher",
        """
        -            if repair is not None:
        +            if False:
        """,
        scene="RepairsUnderFaults",
    ),
    Mutation(
        "let the stream go on before the repairs of its snapshot",
        "cdcd.daemon.snapshot_coordinator",
        """
        -        if self._rows.has_repairs:
        -            return self._repair(self._rows)
                 anew = self._requests.reach(self._rows.tables)
                 self.state = SnapshotState.READING
                 self._rows.start(now, anew)
        +        if self._rows.has_repairs:
        +            return self._repair(self._rows)
        """,
        scene="RepairsUnderFaults",
    ),
    Mutation(
        "give up the keys that a snapshot had no room for",
        "cdcd.daemon.repair_requests",
        """
        -            if each.left and not each.refused:
        +            if False:
        """,
        scene="RepairsUnderFaults",
    ),
    Mutation(
        "keep the rows of keys that have none",
        "cdcd.snapshot.repair_events",
        """
        -        for key in repair.without_rows:
        +        for key in ():
        """,
        scene="RepairsUnderFaults",
    ),
    # Gaps
    Mutation(
        "take a table for complete once some of its repairs are done",
        "cdcd.daemon.snapshot_requests",
        """
        -            if topic not in left:
        +            if True:
        """,
        scene="LostSlot",
    ),
    Mutation(
        "take a table that differs after a gap for complete",
        "cdcd.daemon.gap_repairs",
        """
        -        record = self._requests.compared(*self._table, found.lsn, differs=bool(found.repairs))
        +        record = self._requests.compared(*self._table, found.lsn, differs=False)
        """,
        scene="LostSlot",
    ),
    Mutation(
        "go on at another server and leave what differs there",
        "cdcd.daemon.adoption_proof",
        """
        -        return Seam(server_lsn, frozenset(tables), last.lsn, frozenset(found))
        +        return Seam(server_lsn, frozenset(again), last.lsn, frozenset(found))
        """,
        scene="AdoptedServer",
    ),
    Mutation(
        "record that a table was compared, and not what differs",
        "cdcd.daemon.gap_repairs",
        """
        -        return _batch([record], [Request(REPAIR, self._table, repair=keys) for keys in found.repairs])
        +        return _batch([record], [])
        """,
        scene="LostSlot",
    ),
    # The tables are deferred only from that batch on: what the stream has before it is published.
    Mutation(
        "resume the stream without the first batch",
        "cdcd.daemon.snapshot_coordinator",
        """
        -            batch=batch if batch.rows or batch.snapshot_records else None,
        +            batch=batch if not consistent_lsn and (batch.rows or batch.snapshot_records) else None,
        """,
        scene="SnapshotsUnderFaults",
    ),
    # What the status tells
    Mutation(
        "count no lag while a large transaction is received",
        "cdcd.daemon.stream_report",
        """
        -        pending, open_us = self._pending_commits, self._open_commit_us
        +        pending, open_us = self._pending_commits, 0
        """,
    ),
    Mutation(
        "take WAL that the server has not sent for received",
        "cdcd.daemon.stream_reader",
        """
        -        received_lsn = max(tracker.received_lsn, tracker.server_position)
        +        received_lsn = max(tracker.received_lsn, assembler.server_lsn)
        """,
    ),
    Mutation(
        "show less received than Kafka holds",
        "cdcd.daemon.stream_reader",
        """
        -        received_lsn = max(tracker.received_lsn, tracker.server_position)
        +        received_lsn = tracker.received_lsn
        """,
    ),
    Mutation(
        "forget when the WAL grew",
        "cdcd.monitoring.wal_history",
        """
        -        seen = [each for each in self._seen if each[0] > durable_lsn]
        +        seen = [each for each in self._seen if each[0] > wal_lsn]
        """,
    ),
    Mutation(
        "leave the slot of a start that failed",
        "cdcd.daemon.unused_slot",
        """
        -                    if slot.drop():
        +                    if slot.state() is None:
        """,
        scene="RefusedTakeovers",
    ),
    # The parts that the simulation plays
    # The lock of a table lasts only while the table is read. A TRUNCATE before that leaves it empty for the snapshot.
    Mutation(
        "read a table that was rewritten before its turn",
        "sim.snapshots",
        """
        -        if snapshot.is_rewritten(shown):
        -            raise SnapshotGone(f"{shown.name} was rewritten meanwhile")
        """,
        scene="RewrittenBeforeTheirTurn",
    ),
    Mutation(
        "fence nobody",
        "sim.replica",
        """
        -        super().__init__(world.broker, transactional_id)
        +        super().__init__(world.broker, f"{transactional_id}-{world.steps}")
        """,
    ),
    # TRUNCATE has the lock until its COMMIT returns, and that waits for its standby: for this daemon, which waits.
    Mutation(
        "wait for the lock of somebody who waits for us",
        "sim.snapshots",
        """
        -        yield
        -        return not oids & self.world.database.exclusive()
        +        while oids & self.world.database.exclusive():
        +            yield
        +        return True
        """,
        scene="SnapshotsUnderFaults",
    ),
)

MUTATIONS = {mutation.name: mutation for mutation in _MUTATIONS}
"""By their names."""
