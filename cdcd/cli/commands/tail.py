"""`cdcd tail`: the events of topics, decoded, for people or one JSON object a line.

Before: `cli.main` names topics. After: standard output, until Ctrl-C.

Reads only what is committed, without a consumer group: it leaves no trace on the broker, and two of them do not share.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Final, TextIO

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from cdcd.errors import DecodeError, RequestRejected
from cdcd.lsn import format_lsn
from cdcd.reading.consumer import committed_consumer, received
from cdcd.reading.decoder import EventDecoder, plain
from cdcd.reading.schema_finder import SchemaFinder
from cdcd.sink.kafka.client_config import Property, client_config
from cdcd.sink.kafka.errors import kafka_error, to_cdcd_error

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 10.0
BATCH_ROWS_MAX: Final = 500
BATCH_WAIT_S: Final = 0.2

_OPERATIONS: Final = {
    "c": "insert", "u": "update", "d": "delete", "r": "snapshot", "t": "truncate", "m": "message",
}  # fmt: skip


@dataclass(frozen=True)
class TailedEvent:
    """One record as it stands in Kafka, decoded. `timestamp_ms` is when it was published, since 1970 UTC."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any

    def as_json(self) -> str:
        """One line of JSON."""
        return json.dumps({**self.__dict__, "key": plain(self.key), "value": plain(self.value)}, ensure_ascii=False)

    def as_text(self) -> str:
        """As people read it: what happened when and where, then the row before and after it."""
        published = datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)
        head = f"{published:%Y-%m-%d %H:%M:%S}.{self.timestamp_ms % 1000:03} {self.topic}"
        if self.value is None:
            return f"{head} tombstone {_columns(self.key)}"
        if not (isinstance(self.value, dict) and isinstance(self.value.get("source"), dict)):
            return f"{head} {_columns(self.key)} {_columns(self.value)}"
        event, source = self.value, self.value["source"]
        operation = _OPERATIONS.get(event.get("op", ""), event.get("op"))
        position = f"{format_lsn(source['commit_lsn'])} #{source['seq']}"
        if source["xid"]:  # rows of a snapshot have none
            position += f" xid {source['xid']}"
        lines = [f"{head} {operation} {_columns(self.key)} ({position})".replace("  ", " ")]
        lines += [f"    {image:9}{_columns(event[image])}" for image in ("before", "after") if event.get(image)]
        if event.get("truncate"):
            lines.append(f"    options  {_columns(event['truncate'])}")
        if event.get("unchanged"):
            lines.append(f"    unchanged {', '.join(event['unchanged'])}")
        for lost in event.get("unrepresentable") or ():
            lines.append(f"    {lost['image']:9}{lost['column']}={lost['text']} (not representable in Avro)")
        return "\n".join(lines)


def tail(
    bootstrap: str,
    properties: Mapping[str, Property],
    prefix: str,
    registry: Mapping[str, Any] | None,
    topics: Sequence[str],
    *,
    from_beginning: bool,
    as_json: bool,
    out: TextIO,
) -> None:
    """Write the events of `topics` (`*` stands for any characters) to `out`, until KeyboardInterrupt.

    `registry` is the configuration of the schema registry's client, None where schemas travel on `{prefix}.schemas`.
    Raises RequestRejected or SettingsError (the user's fault): no such topic, no access; KafkaUnavailable; DecodeError.
    """
    config = client_config(bootstrap, "cdcd-tail", properties)
    consumer = committed_consumer(config)
    try:
        places = _places(consumer, topics, prefix, from_beginning=from_beginning)
        consumer.assign(places)
        log.info("reading", extra={"topics": len({place.topic for place in places}), "partitions": len(places)})
        decoder = EventDecoder(SchemaFinder(config, f"{prefix}.schemas", registry).find)
        while True:
            for message in received(consumer.consume(BATCH_ROWS_MAX, BATCH_WAIT_S), bootstrap):
                event = _decoded(message, decoder)
                out.write(f"{event.as_json() if as_json else event.as_text()}\n")
            out.flush()
    except KafkaException as error:
        raise to_cdcd_error(kafka_error(error), "reading topics", bootstrap) from error
    finally:
        consumer.close()


def _places(consumer: Consumer, topics: Sequence[str], prefix: str, *, from_beginning: bool) -> list[TopicPartition]:
    """Where to start in every partition of the topics that are meant. Ends are fixed now, not at the first fetch."""
    there = consumer.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    places: list[TopicPartition] = []
    for wanted in dict.fromkeys(topics):
        matching = sorted(topic for topic in there if fnmatchcase(topic, wanted))
        if not matching:
            raise RequestRejected(f"There is no topic {wanted}", _nearest(wanted, prefix, there))
        for topic in matching:
            for partition in sorted(there[topic].partitions):
                place = TopicPartition(topic, partition)
                low, high = consumer.get_watermark_offsets(place, timeout=REQUEST_TIMEOUT_S)
                place.offset = low if from_beginning else high
                places.append(place)
    return places


def _nearest(wanted: str, prefix: str, there: Iterable[str]) -> str:
    """The hint for a topic that is not there: what was meant, rather one of ours."""
    prefixed = f"{prefix}.{wanted}"
    own = [topic for topic in there if topic.startswith(f"{prefix}.")]
    if any(fnmatchcase(topic, prefixed) for topic in own):
        return f"Did you mean {prefixed}?"
    for name, topics in ((wanted, own), (prefixed, own), (wanted, there)):
        if nearest := get_close_matches(name, topics, n=1):
            return f"Did you mean {nearest[0]}?"
    return "cdcd makes a table's topic with its first event"


def _decoded(message: Message, decoder: EventDecoder) -> TailedEvent:
    key, value = message.key(), message.value()
    topic, partition, offset = str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)
    try:
        return TailedEvent(
            topic,
            partition,
            offset,
            message.timestamp()[1],
            None if key is None else decoder.decode(bytes(key)),
            None if value is None else decoder.decode(bytes(value)),
        )
    except DecodeError as error:
        raise DecodeError(f"{topic}, partition {partition}, offset {offset}: {error.message}", error.hint) from error


def _columns(row: Any) -> str:
    """`id=1 name="two words"`; a value that is no record as itself."""
    if not isinstance(row, dict):
        return "" if row is None else _value(row)
    return " ".join(f"{name}={_value(value)}" for name, value in row.items())


def _value(value: Any) -> str:
    simple = plain(value)
    if isinstance(simple, str) and simple and not any(c.isspace() or c in "\"'=" for c in simple):
        return simple
    return json.dumps(simple, ensure_ascii=False)
