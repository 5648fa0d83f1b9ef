"""`cdcd peek`: the next changes in the slot, decoded, for people or one JSON object a line. Consumes nothing.

Before: `cli.main` has loaded the settings. After: a person reads the lines, or a script the JSON.
Source: PostgreSQL, "Replication Management Functions", `pg_logical_slot_peek_binary_changes`.

The server decodes from where the slot is confirmed, up to so many changes, and keeps the slot where it is; decoder,
assembler and encoder are the daemon's, so what is shown is what Kafka would get. A change may be there already: the
daemon publishes before it confirms. The server cannot be told to send a number of *events*: empty transactions count,
too. So it is asked for more until there are enough, or no more.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TextIO

import fastavro

from cdcd.avro.codecs.lookup import TypeOptions, has_known_binary, is_converted
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema_store import FingerprintStore
from cdcd.avro.single_object import split
from cdcd.clock import wall_us
from cdcd.config.settings import Settings
from cdcd.errors import BinaryFormatUnsupported, GapError, RequestRejected
from cdcd.lsn import format_lsn, parse_lsn
from cdcd.pgoutput.decoder import Decoder
from cdcd.reading.decoder import plain
from cdcd.sink.batches import BatchBuilder
from cdcd.sink.topics import TopicNames
from cdcd.source.catalog import Catalog
from cdcd.source.server_errors import SlotActive, start_refused
from cdcd.source.session import Session, StatementRejected
from cdcd.source.slot import Slot
from cdcd.source.stream_messages import POSTGRES_EPOCH_US, XLogData
from cdcd.transaction.assembler import Assembler
from cdcd.transaction.relations import Relations
from cdcd.transaction.spool import Spool
from cdcd.transaction.spool_file import SpoolDirectory

ROWS_AN_EVENT: Final = 4
"""What the server is asked for first: Begin, Relation, the change, Commit."""

ROWS_TIMES: Final = 8
"""How much more each further time."""

SPOOL_MEMORY_BYTES: Final = 64 << 20
SPOOL_BYTES_MAX: Final = 1 << 30

_PEEK: Final = """
    SELECT lsn::text, data
    FROM pg_catalog.pg_logical_slot_peek_binary_changes(%s::name, NULL, %s, VARIADIC %s::text[])
    LIMIT %s
"""

_OPERATIONS: Final = {"c": "insert", "u": "update", "d": "delete", "t": "truncate", "m": "message"}


@dataclass(frozen=True)
class PeekedEvent:
    """One event as Kafka would get it, decoded. `schema` is empty for a logical decoding message."""

    schema: str
    table: str
    key: Any
    value: Any

    @property
    def position(self) -> tuple[int, int]:
        """Its place in the order of all events."""
        return self.value["source"]["commit_lsn"], self.value["source"]["seq"]

    def as_json(self, names: TopicNames) -> str:
        """One line of JSON, as `cdcd tail --json` has it, but for what only Kafka gives."""
        topic = names.topic(self.schema, self.table) if self.schema else names.messages
        return json.dumps({"topic": topic, "key": plain(self.key), "value": plain(self.value)}, ensure_ascii=False)

    def as_text(self) -> str:
        """One line: where, which transaction, what, of which table, the key, the values that came with it."""
        source = self.value["source"]
        what = f"{_OPERATIONS[self.value['op']]} {self.schema}.{self.table}" if self.schema else "message"
        after = dict(self.value["after"] or ())
        texts = {lost["column"]: lost["text"] for lost in self.value["unrepresentable"] if lost["image"] == "after"}
        unchanged = dict.fromkeys(self.value["unchanged"], "(unchanged)")
        shown = {name: unchanged.get(name, texts.get(name, value)) for name, value in after.items()}
        old = self.value.get("truncate") or self.key or self.value["before"] or {}
        row = shown or {name: value for name, value in old.items() if value != []}
        words = [format_lsn(source["lsn"]), f"xid {source['xid']}", what]
        return " ".join([*words, *(f"{name}={_shown(value)}" for name, value in row.items())])


def peek(settings: Settings, limit: int, *, as_json: bool, out: TextIO) -> None:
    """Write the next events in the slot, at most `limit`, to `out`.

    Raises SlotActive while a daemon streams, GapError if the slot is not there, RequestRejected if it cannot be looked
    into.
    """
    source, names = settings.source, TopicNames(settings.sink.prefix, settings.sink.topic)
    with Session(source.dsn, source.application_name) as session:
        _check(session, source.slot)
        catalog = Catalog(session)
        binary = source.binary
        if binary == "auto":
            types = catalog.published_types(source.publication)
            binary = all(has_known_binary(each, session.encoding) for each in types)
        encoding = session.encoding
        numeric = settings.avro.numeric
        options = TypeOptions(numeric, any_encoding=encoding == "SQL_ASCII", converted=is_converted(encoding))
        try:
            events = _events(session, catalog, settings, options, limit, binary=binary)
        except BinaryFormatUnsupported:
            if source.binary is True:
                raise
            events = _events(session, catalog, settings, options, limit, binary=False)
    out.writelines(f"{event.as_json(names) if as_json else event.as_text()}\n" for event in events)


def _check(session: Session, name: str) -> None:
    state = Slot(session, name).state()
    if state is None:
        raise GapError(
            f'the slot "{name}" does not exist', "cdcd run makes it at its first start; or correct source.slot"
        )
    if state.active:
        raise SlotActive(name, state.active_pid)
    if state.lost:
        raise GapError(f'the slot "{name}" has lost WAL that it still needed', "Run cdcd check: it says what to do")
    if state.plugin != "pgoutput":
        raise RequestRejected(
            f'the slot "{name}" is one of the plugin {state.plugin}, not of pgoutput', "Correct source.slot"
        )


def _events(
    session: Session, catalog: Catalog, settings: Settings, types: TypeOptions, limit: int, *, binary: bool
) -> list[PeekedEvent]:
    options = _options(settings, session.server_version, binary=binary)
    asked = ROWS_AN_EVENT * limit
    while True:
        rows = _rows(session, settings.source.slot, asked, options)
        found = _decoded(rows, catalog, types)
        if len(found) >= limit or len(rows) < asked:
            return found[:limit]
        asked *= ROWS_TIMES


def _options(settings: Settings, server_version: int, *, binary: bool) -> dict[str, str]:
    """What the daemon asks of pgoutput, but only for transactions that have ended: protocol 1."""
    source = settings.source
    quoted = source.publication.replace('"', '""')
    options = {
        "proto_version": "1",
        "publication_names": f'"{quoted}"',
        "binary": str(binary).lower(),
        "messages": str(source.messages).lower(),
    }
    if source.origin != "any" and server_version >= 160_000:
        options["origin"] = source.origin
    return options


def _rows(session: Session, slot: str, asked: int, options: Mapping[str, str]) -> list[tuple[str, bytes]]:
    words = [word for option in options.items() for word in option]
    try:
        return [(lsn, bytes(data)) for lsn, data in session.rows(_PEEK, [slot, asked, words, asked])]
    except StatementRejected as error:
        raise start_refused(error.sqlstate, error.message, slot, None) from error


def _decoded(rows: Iterable[tuple[str, bytes]], catalog: Catalog, types: TypeOptions) -> list[PeekedEvent]:
    """The events that the messages make, in the order of their positions."""
    batches = BatchBuilder(tombstones=False)
    now_us = wall_us() - POSTGRES_EPOCH_US
    frames = [XLogData(parse_lsn(lsn), 0, now_us, data).encode() for lsn, data in rows]
    with TemporaryDirectory(prefix="cdcd-peek-") as folder:
        spool = Spool(SpoolDirectory(Path(folder) / "spool"), SPOOL_MEMORY_BYTES, SPOOL_BYTES_MAX)
        encoder = EventEncoder(batches, FingerprintStore(batches), types)
        assembler = Assembler(Decoder(), Relations(catalog), encoder, spool, 0)
        assembler.feed(frames)
        while assembler.busy:
            assembler.proceed()
    batch = batches.take()
    schemas = {fingerprint: fastavro.parse_schema(json.loads(text)) for fingerprint, text in batch.schemas}
    events = [
        PeekedEvent(table.schema, table.name, _read(message.get("key"), schemas), _read(message["value"], schemas))
        for table in batch.tables
        for message in table.messages
    ]
    return sorted(events, key=lambda event: event.position)


def _read(data: bytes | None, schemas: Mapping[str, Any]) -> Any:
    if data is None:
        return None
    fingerprint, start = split(data)
    return fastavro.schemaless_reader(io.BytesIO(data[start:]), schemas[fingerprint], None)


def _shown(value: Any) -> str:
    """As `cdcd tail` shows a value: bare where it is one word, else as JSON."""
    simple = plain(value)
    if isinstance(simple, str) and simple and not any(c.isspace() or c in "\"'=" for c in simple):
        return simple
    return json.dumps(simple, ensure_ascii=False)
