"""What Debezium's connector wrote: every record's key, value and headers, byte for byte.

Before: `record` writes the files from a real connector. After: whatever must write the same bytes.

One file for each set of the connector's modes. It has the same changes in three encodings, each from a connector of its
own. `wal.jsonl.gz` has the WAL of these changes as the server sent it (`golden.recording`), `catalog.jsonl.gz` what
the connector could see of the tables before them.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WAL = HERE / "wal.jsonl.gz"
CATALOG = HERE / "catalog.jsonl.gz"
WORKLOAD = HERE / "workload.sql"

_SCHEMA, _PAYLOAD = b'{"schema":', b',"payload":'


@dataclass(frozen=True)
class Record:
    """A record of Kafka. Its topic has one partition, so the order within a topic is the connector's."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class Connector:
    """A connector, by its properties, and what it wrote, by topics. `encoding` is "json", "json-schema" or "avro"."""

    encoding: str
    properties: dict[str, str]
    records: list[Record] = field(repr=False)
    avro_schemas: dict[int, str] = field(default_factory=dict, repr=False)
    """The schemas of the registry by the number that begins an Avro record: 00, four bytes."""


def save(path: Path, connectors: Iterable[Connector]) -> None:
    """Write a file; the same content gives the same bytes."""
    lines: list[Any] = []
    for connector in connectors:
        texts: dict[bytes, int] = {}
        records = [_packed(record, connector.encoding, texts) for record in connector.records]
        schemas: Any = [text.decode() for text in texts]
        if connector.encoding == "avro":
            schemas = {str(number): text for number, text in sorted(connector.avro_schemas.items())}
        lines.append({"encoding": connector.encoding, "properties": connector.properties, "schemas": schemas})
        lines += records
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def load(path: Path) -> list[Connector]:
    """Read a file that `save` wrote."""
    found: list[Connector] = []
    texts: list[bytes] = []
    for line in map(json.loads, lzma.decompress(path.read_bytes()).splitlines()):
        if isinstance(line, list):
            topic, key, value, headers = line
            names = tuple((name, _unpacked(header, texts) or b"") for name, header in headers)
            found[-1].records.append(Record(topic, _unpacked(key, texts), _unpacked(value, texts), names))
        else:
            schemas, connector = line["schemas"], Connector(line["encoding"], line["properties"], [])
            found.append(connector)
            if connector.encoding == "avro":
                connector.avro_schemas = {int(number): text for number, text in schemas.items()}
            else:
                texts = [text.encode() for text in schemas]
    return found


def statements(part: str, text: str) -> Iterator[list[str]]:
    """Yield the statements of each part of the workload whose title begins with `part`."""
    for block in text.split("\n--! ")[1:]:
        title, _, body = block.partition("\n")
        if title.startswith(part):
            yield [statement.strip() for statement in f"{body}\n".split(";\n") if statement.strip()]


def _packed(record: Record, encoding: str, texts: dict[bytes, int]) -> list[Any]:
    of_headers = "json" if encoding == "avro" else encoding  # the converter for Avro has no headers
    headers = [[name, _part(value, of_headers, texts)] for name, value in record.headers]
    key, value = (_part(each, encoding, texts) for each in (record.key, record.value))
    return [record.topic, key, value, headers]


def _part(data: bytes | None, encoding: str, texts: dict[bytes, int]) -> Any:
    """Return what the file has for these bytes: text; of JSON with a schema, the schema's number and the payload."""
    if data is None:
        return None
    if encoding == "avro":
        return {"hex": data.hex()}
    if encoding == "json-schema":
        end = len(_SCHEMA) + _length(data[len(_SCHEMA) :])
        schema, payload = data[len(_SCHEMA) : end], data[end + len(_PAYLOAD) : -1]
        assert data == _joined(schema, payload), data
        return [texts.setdefault(schema, len(texts)), payload.decode()]
    return data.decode()


def _unpacked(part: Any, texts: list[bytes]) -> bytes | None:
    if part is None:
        return None
    if isinstance(part, dict):
        return bytes.fromhex(part["hex"])
    if isinstance(part, list):
        return _joined(texts[part[0]], part[1].encode())
    return str(part).encode()


def _joined(schema: bytes, payload: bytes) -> bytes:
    return _SCHEMA + schema + _PAYLOAD + payload + b"}"


def _length(data: bytes) -> int:
    """Return how many bytes the JSON value takes with which `data` begins."""
    text = data.decode()
    _, end = json.JSONDecoder().raw_decode(text)
    return len(text[:end].encode())
