"""Turns pgoutput messages into events, as the daemon would publish them, and each event into a line.

Before: `peek` has read pgoutput messages from the slot. After: `peek` prints the events.

Decoder, assembler and encoder are the daemon's own code, so the events are those that Kafka would get.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from cdcd.cli.event_text import OPERATIONS, columns_text, header_texts, without_schema
from cdcd.clock import wall_us
from cdcd.lsn import format_lsn
from cdcd.pgoutput.decoder import Decoder
from cdcd.reading.decoder import EventDecoder, plain
from cdcd.source.stream_messages import POSTGRES_EPOCH_US, XLogData
from cdcd.transaction.assembler import Assembler
from cdcd.transaction.event_format import EventFormat
from cdcd.transaction.record_consumer import TRANSACTIONS
from cdcd.transaction.record_list import ListedRecord, RecordList
from cdcd.transaction.relations import MESSAGES, Relations
from cdcd.transaction.spool import Spool
from cdcd.transaction.spool_file import SpoolDirectory

SPOOL_MEMORY_BYTES: Final = 64 << 20
SPOOL_BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True)
class PeekedEvent:
    """One event as Kafka would get it, decoded."""

    schema: str
    table: str
    """With the schema "", of no table: a logical message, where a transaction begins or ends, or the topic of an event
    of the outbox."""
    key: Any
    value: Any
    op: str = ""
    commit_lsn: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    is_flat: bool = False
    """The value is a row, and no envelope."""

    @property
    def of_outbox(self) -> bool:
        """Whether it is an event of the outbox."""
        return _of_outbox(self.schema, self.table)

    def as_json(self, topic: str) -> str:
        """One line of JSON, like that of `cdcd tail --json` but without partition, offset and timestamp."""
        document = {"topic": topic, "key": plain(self.key), "value": plain(self.value)}
        return json.dumps(document | ({"headers": self.headers} if self.headers else {}), ensure_ascii=False)

    def as_text(self, topic: str) -> str:
        """One line: LSN, transaction, operation, table; then the row after or before the change, or else the key."""
        if self.of_outbox or (self.schema, self.table) == TRANSACTIONS:
            shown = [format_lsn(self.commit_lsn), "event", topic, columns_text(self.key), columns_text(self.value)]
            return " ".join(shown).rstrip()
        what = f"{OPERATIONS[self.op]} {self.schema}.{self.table}" if self.schema else "message"
        if self.is_flat or self.value is None:
            row = self.key if self.value is None else self.value
            return " ".join([format_lsn(self.commit_lsn), what, columns_text(row)]).rstrip()
        source = self.value["source"]
        after = dict(self.value.get("after") or ())
        lost = self.value.get("unrepresentable", ())
        texts = {each["column"]: each["text"] for each in lost if each["image"] == "after"}
        unchanged = dict.fromkeys(self.value.get("unchanged", ()), "(unchanged)")
        new = {name: unchanged.get(name, texts.get(name, value)) for name, value in after.items()}
        event = self.value
        old = event.get("truncate") or self.key or event.get("before") or event.get("message") or {}
        row = new or {name: value for name, value in old.items() if value != []}
        words = [format_lsn(source["lsn"]), f"xid {source['xid' if 'xid' in source else 'txId']}", what]
        return " ".join([*words, columns_text(row)]).rstrip()


def peeked_events(
    messages: Iterable[tuple[int, bytes]], relations: Relations, events: EventFormat, *, is_flat: bool, in_connect: bool
) -> list[PeekedEvent]:
    """The events of the messages (LSN and bytes of each), in commit order.

    `events`: the format; its schemas go to the records. `is_flat`: as PeekedEvent. `in_connect`: keys and values of
    tables have Connect's schema. Raises BinaryFormatUnsupported as the daemon's decoder does.
    """
    found = RecordList()
    now_us = wall_us() - POSTGRES_EPOCH_US
    with TemporaryDirectory(prefix="cdcd-peek-") as folder:
        spool = Spool(SpoolDirectory(Path(folder) / "spool"), SPOOL_MEMORY_BYTES, SPOOL_BYTES_MAX)
        assembler = Assembler(Decoder(), relations, events.stream_encoder(found), spool)
        assembler.feed([XLogData(lsn, 0, now_us, data).encode() for lsn, data in messages])
        while assembler.is_busy:
            assembler.proceed()
    decoder = EventDecoder(lambda fingerprint: found.schemas[str(fingerprint)])
    return [_peeked(each, decoder, is_flat=is_flat, in_connect=in_connect) for each in found.records]


def _peeked(record: ListedRecord, decoder: EventDecoder, *, is_flat: bool, in_connect: bool) -> PeekedEvent:
    def decoded(data: bytes | None) -> Any:
        if data is None:
            return None
        if _of_outbox(record.schema, record.table):
            return decoder.decode_payload(data)
        return without_schema(decoder.decode(data)) if in_connect else decoder.decode(data)

    return PeekedEvent(
        record.schema,
        record.table,
        decoded(record.key),
        decoded(record.value),
        record.op,
        record.commit_lsn,
        header_texts(record.headers),
        is_flat,
    )


def _of_outbox(schema: str, table: str) -> bool:
    return not schema and table != MESSAGES.name and (schema, table) != TRANSACTIONS
