"""Repairs of single rows, on the topic `{prefix}.snapshots`: what is asked for, and what was done.

Before: a request names the keys (`daemon_requests`). `sink.publisher` writes a record of it in the Kafka transaction
that passes the request, so that no request is lost.
After: the daemon reads the rows of these keys at one LSN (`daemon.repair_reading`), and publishes them. The same Kafka
transaction deletes the record, so that no row is published twice, and counts the rows in the table's own record.

The keys of these records have two `/`. Those of the snapshots have one, those of the slots none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from cdcd.errors import GapError
from cdcd.lsn import format_lsn, parse_lsn
from cdcd.progress.records import table_key
from cdcd.source.requests_table import KEYS_BYTES_MAX

VERSION: Final = 1

KEYS_MAX: Final = 500
"""One request names no more keys."""

_DONE: Final = "done"


@dataclass(frozen=True)
class RepairKeys:
    """The rows that a request names."""

    columns: tuple[str, ...]
    """The columns of the key, in the order of the table."""
    keys: tuple[tuple[str, ...], ...]
    """PostgreSQL's text of their values."""

    def text(self) -> str:
        """Return the JSON text that `read_keys` reads."""
        return json.dumps({"columns": self.columns, "keys": self.keys}, ensure_ascii=False, separators=(",", ":"))


def divided(columns: tuple[str, ...], keys: Iterable[tuple[str, ...]]) -> Iterator[RepairKeys]:
    """Divide keys so that a request can name each part. Raises ValueError, with the key, if one alone is too long."""
    room = KEYS_BYTES_MAX - len(RepairKeys(columns, ()).text().encode())
    part, size = list[tuple[str, ...]](), 0
    for key in keys:
        needed = len(json.dumps(key, ensure_ascii=False).encode("utf-8", "surrogateescape")) + 1
        if needed > room:
            raise ValueError(" ".join(key)[:100])
        if size + needed > room or len(part) == KEYS_MAX:
            yield RepairKeys(columns, tuple(part))
            part, size = [], 0
        part.append(key)
        size += needed
    if part:
        yield RepairKeys(columns, tuple(part))


def read_keys(text: str) -> RepairKeys:
    """Read the rows that a request names. Raises ValueError, with the reason, if the text names none."""
    try:
        document = json.loads(text)
        columns, keys = tuple(document["columns"]), tuple(map(tuple, document["keys"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("its keys cannot be read") from None
    if not (columns and keys and len(keys) <= KEYS_MAX and all(len(key) == len(columns) for key in keys)):
        raise ValueError(f"it names no keys, or more than {KEYS_MAX}")
    for value in (*columns, *(value for key in keys for value in key)):
        if not isinstance(value, str) or "\0" in value:
            raise ValueError("its keys are not text")
    return RepairKeys(columns, keys)


@dataclass(frozen=True)
class PendingRepair:
    """Rows of one table that are to be published as they are in PostgreSQL, or deleted."""

    slot: str
    topic: str
    schema: str
    table: str
    wanted: RepairKeys
    number: str = ""
    """Tells the repairs of a table apart: the digest of what was asked for."""

    def key(self) -> bytes:
        """Return the record's key."""
        return table_key(self.slot, f"{self.topic}/{self.number}")

    def value(self) -> bytes:
        """Return the record's value: JSON with sorted keys."""
        document = {
            "version": VERSION,
            "slot": self.slot,
            "topic": self.topic,
            "schema": self.schema,
            "table": self.table,
            "columns": self.wanted.columns,
            "keys": self.wanted.keys,
            "number": self.number,
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    def with_keys(self, left: Sequence[tuple[str, ...]]) -> PendingRepair:
        """Return the repair of those of its rows that are left."""
        return replace(self, wanted=replace(self.wanted, keys=tuple(left)))


def pending_repair(slot: str, topic: str, schema: str, table: str, wanted: RepairKeys) -> PendingRepair:
    """Return the record of a request. Equal requests have the same record."""
    number = sha256(wanted.text().encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return PendingRepair(slot, topic, schema, table, wanted, number)


@dataclass(frozen=True)
class TableRepairs:
    """The repairs of one table that are done."""

    slot: str
    topic: str
    lsn: int
    """The LSN of the last one: its rows are as they were there."""
    rows: int
    """Rows that were published, in all repairs."""
    deletes: int
    """Deletes that were published, because the table has no row with the key."""

    def key(self) -> bytes:
        """Return the record's key."""
        return table_key(self.slot, f"{self.topic}/{_DONE}")

    def value(self) -> bytes:
        """Return the record's value: JSON with sorted keys."""
        document = {
            "version": VERSION,
            "slot": self.slot,
            "topic": self.topic,
            "lsn": format_lsn(self.lsn),
            "rows": self.rows,
            "deletes": self.deletes,
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def is_repair_record(key: bytes) -> bool:
    """Whether a record of the snapshots topic tells of repairs, by its key."""
    return key.count(b"/") == 2


def parse_repair_record(key: bytes, value: bytes) -> PendingRepair | TableRepairs:
    """Read one record; raises GapError if it cannot be understood."""
    try:
        document = json.loads(value)
        if document["version"] != VERSION:
            raise ValueError(f"version {document['version']}; this cdcd reads version {VERSION}")
        if "keys" in document:
            wanted = RepairKeys(
                tuple(map(str, document["columns"])), tuple(tuple(map(str, k)) for k in document["keys"])
            )
            return PendingRepair(
                document["slot"],
                document["topic"],
                document["schema"],
                document["table"],
                wanted,
                document["number"],
            )
        return TableRepairs(
            document["slot"],
            document["topic"],
            parse_lsn(document["lsn"]),
            int(document["rows"]),
            int(document["deletes"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise GapError(
            f"the record with the key {key.decode(errors='replace')!r} on the snapshots topic cannot be read: {error}",
            "Run the cdcd version that wrote it, and keep other producers off the snapshots topic",
            code="record-unreadable",
        ) from None
