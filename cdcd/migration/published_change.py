"""Reads the change that an event of Debezium's connector tells, in JSON or in Avro.

Before: `topic_tails` has read an event of a topic; `seam` has one that cdcd would publish.
After: they compare the two.
Source: Debezium 3.7, the envelope of its events, and the field `source` of its connector for PostgreSQL.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cdcd.config.settings import Settings
from cdcd.errors import DecodeError, RequestRejected
from cdcd.reading.decoder import EventDecoder, plain
from cdcd.reading.schema_finder import SchemaFinder

_STREAMED: Final = ("c", "u", "d", "t")

Row: TypeAlias = "tuple[int, int, str, str]"
"""A change without a key: xid, LSN, op, and the row before and after it as JSON."""


@dataclass(frozen=True)
class Change:
    """A change, as its event tells."""

    xid: int
    lsn: int
    op: str
    last_commit: int
    """Where the transaction before ends; 0: it is not known."""
    row: str
    """Before and after, as JSON."""

    @property
    def identity(self) -> Row:
        """The change of a table without a key."""
        return self.xid, self.lsn, self.op, self.row


class ChangeReader:
    """Reads the events of one encoding."""

    def __init__(self, encoding: str, decoder: EventDecoder | None = None) -> None:
        """`encoding`: sink.encoding. `decoder`: for "avro", which has the schemas of the registry."""
        self._encoding = encoding
        self._decoder = decoder

    def read(self, value: bytes, topic: str) -> tuple[Change | None, str]:
        """The change that an event tells, None for a row of a snapshot, and its `source.snapshot`.

        Raises RequestRejected if it is no event of the connector in this encoding, and as the decoder does.
        """
        try:
            event = self._event(value)
            source = event["source"]
            snapshot = str(source.get("snapshot") or "false")
            if event["op"] not in _STREAMED or snapshot != "false":
                return None, snapshot
            before, _ = json.loads(source["sequence"])
            row = json.dumps(plain([event["before"], event["after"]]), sort_keys=True)
            return Change(int(source["txId"]), int(source["lsn"]), event["op"], int(before or 0), row), snapshot
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, DecodeError):
            raise RequestRejected(
                f"an event on {topic} is not one that Debezium's connector writes in the encoding {self._encoding}",
                "Compare sink.encoding, sink.prefix and avro.registry_url with the connector's converters",
                code="connector-differs",
            ) from None

    def _event(self, value: bytes) -> Any:
        if self._encoding == "avro":
            assert self._decoder is not None
            decoded = self._decoder.decode_avro(value)
            if decoded is None:
                raise ValueError("it is not Avro")
            return decoded[1]
        document: Any = json.loads(value)
        has_schema = document.keys() == {"schema", "payload"}
        if has_schema != (self._encoding == "json-schema"):
            raise ValueError("it is in the other encoding")
        return document["payload"] if has_schema else document


def change_reader(settings: Settings) -> ChangeReader:
    """What reads the events of the format and the encoding that the settings name."""
    avro = settings.avro
    registry = {"url": avro.registry_url, **avro.registry_config} if avro.registry_url is not None else None
    return ChangeReader(settings.sink.encoding, EventDecoder(SchemaFinder({}, "", registry).find))
