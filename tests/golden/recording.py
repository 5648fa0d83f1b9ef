"""A recorded stream: what a server sent, what its catalog said, and what the events must be.

Before: `records` makes recordings from real servers. After: `test_golden` holds the code to them, without a server.

One file a PostgreSQL version: a header, the catalog's answers, the frames of one stream for each way to ask for it
(CopyData payloads without keepalives), and the events, which are the same however the changes were sent.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema_store import FingerprintStore
from cdcd.pgoutput.decoder import Decoder
from cdcd.reading.decoder import plain
from cdcd.sink.batches import Batch, BatchBuilder
from cdcd.source.pg_types import Attribute, PgType
from cdcd.transaction.assembler import Assembler
from cdcd.transaction.change_consumer import ChangeConsumer
from cdcd.transaction.record_consumer import RecordConsumer
from cdcd.transaction.relations import Relations
from cdcd.transaction.spool import Spool
from cdcd.transaction.spool_file import SpoolDirectory

HERE = Path(__file__).parent
Event = dict[str, Any]


@dataclass
class Stream:
    """One stream of the recorded WAL: what START_REPLICATION asked for, and what came."""

    mode: str
    options: dict[str, str]
    frames: list[bytes] = field(repr=False)

    @property
    def parallel(self) -> bool:
        """Stream Abort carries an LSN and a time."""
        return self.options.get("streaming") == "parallel"


@dataclass
class Answers:
    """The catalog, as it was when all had happened."""

    known: dict[int, PgType] = field(default_factory=dict)
    primary_keys: dict[int, tuple[str, ...]] = field(default_factory=dict)
    identity_indexes: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def types(self, oids: Iterable[int]) -> Mapping[int, PgType]:
        return {oid: self.known[oid] for oid in oids if oid in self.known}

    def primary_key(self, relation_oid: int) -> tuple[str, ...]:
        return self.primary_keys[relation_oid]

    def identity_index(self, relation_oid: int) -> tuple[str, ...]:
        return self.identity_indexes[relation_oid]

    def columns(self, relation_oid: int) -> Mapping[str, bool]:
        return {}

    def attributes(self, relation_oid: int) -> Mapping[str, Attribute]:
        return {}

    def position(self) -> int:
        return 1 << 62

    def expect(self, relation_oids: Iterable[int]) -> None:
        return

    def takes_requests(self, relation_oid: int) -> bool:
        return True

    def forget(self) -> None:
        pass


@dataclass
class Recording:
    """Everything of one server."""

    server: str
    answers: Answers
    streams: list[Stream]
    events: list[Event] = field(repr=False)

    def save(self, path: Path) -> None:
        """Write the file; the same content gives the same bytes."""
        lines: list[Any] = [{"server": self.server}, _dump_answers(self.answers)]
        for stream in self.streams:
            lines.append({"mode": stream.mode, "options": stream.options})
            lines += [base64.b64encode(frame).decode() for frame in stream.frames]
        lines.append({"events": len(self.events)})
        lines += self.events
        text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
        path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def load(path: Path) -> Recording:
    """Read a file that `save` wrote."""
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    server, answers, *rest = lines
    streams: list[Stream] = []
    for number, line in enumerate(rest):
        if isinstance(line, str):
            streams[-1].frames.append(base64.b64decode(line))
        elif "mode" in line:
            streams.append(Stream(line["mode"], line["options"], []))
        else:
            return Recording(server["server"], _load_answers(answers), streams, rest[number + 1 :])
    raise ValueError(f"{path} ends before its events")


@dataclass
class Replayed:
    """What came out of a stream: decoded events in commit order, and the row fields of each."""

    events: list[Event]
    fields: list[list[dict[str, Any]]]
    keys: list[Any]
    values: list[Any]
    """Keys and values as fastavro gives them, before JSON."""
    records: list[tuple[bytes | None, bytes]]
    """Keys and values as they go to Kafka."""
    schemas: dict[str, Any]
    """By fingerprint."""


def batches_of(
    stream: Stream, answers: Answers, encoder: Callable[[RecordConsumer], ChangeConsumer], burst: int = 100
) -> Iterator[Batch]:
    """Feed the frames to an assembler, `burst` at a time; what comes out each time. `encoder` makes that of events."""
    batches = BatchBuilder(tombstones=False)
    with tempfile.TemporaryDirectory() as folder:
        assembler = Assembler(
            Decoder(streaming_parallel=stream.parallel),
            Relations(answers),
            encoder(batches),
            Spool(SpoolDirectory(Path(folder) / "spool"), 1 << 14, 1 << 30),
        )
        for at in range(0, len(stream.frames), burst):
            assembler.feed(stream.frames[at : at + burst])
            while assembler.is_busy:
                assembler.proceed()
            yield batches.build()
        assert not assembler.in_transaction


def replay(stream: Stream, answers: Answers, burst: int = 100) -> Replayed:
    """What comes out of the stream in Avro, decoded by fastavro."""
    schemas: dict[str, Any] = {}
    parsed: dict[str, Any] = {}
    found: list[tuple[tuple[int, int], Event, list[dict[str, Any]], Any, Any, tuple[bytes | None, bytes]]] = []
    for batch in batches_of(
        stream, answers, lambda records: EventEncoder(records, FingerprintStore(records), TypeOptions()), burst
    ):
        for fingerprint, text in batch.schemas:
            schemas[fingerprint] = json.loads(text)
            parsed[fingerprint] = fastavro.parse_schema(json.loads(text))
        for table in batch.tables:
            for message in table.messages:
                key, value = _decoded(message.get("key"), parsed), _decoded(message["value"], parsed)
                source = value["source"]
                event = {"table": f"{table.schema}.{table.name}", "key": plain(key), "value": plain(value)}
                if not source["xid"]:  # a message outside of any transaction: its time is when it was sent
                    event["value"]["source"]["commit_ts"] = None
                fields = schemas[(message["value"] or b"")[2:10].hex()]["fields"][3]["type"][1]["fields"]
                record = message.get("key"), message["value"] or b""
                found.append(((source["commit_lsn"], source["seq"]), event, fields, key, value, record))
    found.sort(key=lambda each: each[0])
    return Replayed(
        [event for _, event, _, _, _, _ in found],
        [fields for _, _, fields, _, _, _ in found],
        [key for _, _, _, key, _, _ in found],
        [value for _, _, _, _, value, _ in found],
        [record for _, _, _, _, _, record in found],
        schemas,
    )


def _decoded(data: bytes | None, parsed: dict[str, Any]) -> Any:
    if data is None:
        return None
    stream = io.BytesIO(data[10:])
    value = fastavro.schemaless_reader(stream, parsed[data[2:10].hex()], None)
    assert not stream.read(), "bytes behind the record"
    return value


def _dump_answers(answers: Answers) -> dict[str, Any]:
    return {
        "types": [_dump_type(pgtype) for _, pgtype in sorted(answers.known.items())],
        "primary_keys": {str(oid): list(names) for oid, names in sorted(answers.primary_keys.items())},
        "identity_indexes": {str(oid): list(names) for oid, names in sorted(answers.identity_indexes.items())},
    }


def _load_answers(found: dict[str, Any]) -> Answers:
    types = [_load_type(each) for each in found["types"]]
    return Answers(
        {pgtype.oid: pgtype for pgtype in types},
        {int(oid): tuple(names) for oid, names in found["primary_keys"].items()},
        {int(oid): tuple(names) for oid, names in found["identity_indexes"].items()},
    )


def _dump_type(pgtype: PgType) -> dict[str, Any]:
    made: dict[str, Any] = {
        "oid": pgtype.oid,
        "schema": pgtype.schema,
        "name": pgtype.name,
        "kind": pgtype.kind,
        "base_typmod": pgtype.base_typmod,
        "is_array": pgtype.is_array,
        "dropped": pgtype.dropped,
        "asked_lsn": pgtype.asked_lsn,
        "delimiter": pgtype.delimiter,
        "fields": [[name, _dump_type(of), typmod] for name, of, typmod in pgtype.fields],
    }
    for part in ("base", "element"):
        inner = getattr(pgtype, part)
        made[part] = None if inner is None else _dump_type(inner)
    return made


def _load_type(found: dict[str, Any]) -> PgType:
    parts = {part: None if found[part] is None else _load_type(found[part]) for part in ("base", "element")}
    fields = tuple((name, _load_type(of), typmod) for name, of, typmod in found["fields"])
    return PgType(**{**found, **parts, "fields": fields})
