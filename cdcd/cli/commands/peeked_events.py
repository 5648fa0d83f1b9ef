"""Turns pgoutput messages into events, as the daemon would publish them, and each event into a line.

Before: `peek` has read pgoutput messages from the slot. After: `peek` prints the events.

Decoder, assembler and encoder are the daemon's own code, so the events are those that Kafka would get.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema_store import FingerprintStore
from cdcd.cli.event_text import OPERATIONS, columns_text
from cdcd.clock import wall_us
from cdcd.json_events.json_records import JsonRecords
from cdcd.lsn import format_lsn
from cdcd.pgoutput.decoder import Decoder
from cdcd.reading.decoder import EventDecoder, plain
from cdcd.sink.batches import BatchBuilder
from cdcd.source.stream_messages import POSTGRES_EPOCH_US, XLogData
from cdcd.transaction.assembler import Assembler
from cdcd.transaction.relations import Relations
from cdcd.transaction.spool import Spool
from cdcd.transaction.spool_file import SpoolDirectory

SPOOL_MEMORY_BYTES: Final = 64 << 20
SPOOL_BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True)
class PeekedEvent:
    """One event as Kafka would get it, decoded. `schema` is empty for a logical decoding message."""

    schema: str
    table: str
    key: Any
    value: Any

    @property
    def position(self) -> tuple[int, int]:
        """The event's place in the order of all events: commit_lsn and seq."""
        return self.value["source"]["commit_lsn"], self.value["source"]["seq"]

    def as_json(self, topic: str) -> str:
        """One line of JSON, like that of `cdcd tail --json` but without partition, offset and timestamp."""
        return json.dumps({"topic": topic, "key": plain(self.key), "value": plain(self.value)}, ensure_ascii=False)

    def as_text(self) -> str:
        """One line: LSN, transaction, operation, table; then the row after or before the change, or else the key."""
        source = self.value["source"]
        what = f"{OPERATIONS[self.value['op']]} {self.schema}.{self.table}" if self.schema else "message"
        after = dict(self.value["after"] or ())
        texts = {lost["column"]: lost["text"] for lost in self.value["unrepresentable"] if lost["image"] == "after"}
        unchanged = dict.fromkeys(self.value["unchanged"], "(unchanged)")
        new = {name: unchanged.get(name, texts.get(name, value)) for name, value in after.items()}
        old = self.value.get("truncate") or self.key or self.value["before"] or {}
        row = new or {name: value for name, value in old.items() if value != []}
        words = [format_lsn(source["lsn"]), f"xid {source['xid']}", what]
        return " ".join([*words, columns_text(row)]).rstrip()


def peeked_events(
    messages: Iterable[tuple[int, bytes]], relations: Relations, types: TypeOptions, *, in_json: bool = False
) -> list[PeekedEvent]:
    """The events of the messages (LSN and bytes of each), in the order of their positions. `in_json`: else in Avro.

    Raises BinaryFormatUnsupported as the daemon's decoder does.
    """
    batches = BatchBuilder(tombstones=False)
    now_us = wall_us() - POSTGRES_EPOCH_US
    with TemporaryDirectory(prefix="cdcd-peek-") as folder:
        spool = Spool(SpoolDirectory(Path(folder) / "spool"), SPOOL_MEMORY_BYTES, SPOOL_BYTES_MAX)
        records = JsonRecords(batches) if in_json else batches
        encoder = EventEncoder(records, FingerprintStore(records), types)
        assembler = Assembler(Decoder(), relations, encoder, spool)
        assembler.feed([XLogData(lsn, 0, now_us, data).encode() for lsn, data in messages])
        while assembler.is_busy:
            assembler.proceed()
    batch = batches.build()
    schemas = dict(batch.schemas)
    decoder = EventDecoder(lambda fingerprint: schemas[str(fingerprint)])
    events = [
        PeekedEvent(
            table.schema,
            table.name,
            _decoded(message.get("key"), decoder),
            _decoded(message["value"], decoder),
        )
        for table in batch.tables
        for message in table.messages
    ]
    return sorted(events, key=lambda event: event.position)


def _decoded(data: bytes | None, decoder: EventDecoder) -> Any:
    return None if data is None else decoder.decode(data)
