"""`cdcd tail`: prints the decoded events of topics as text, or as one JSON object a line.

Before: `cli.main` has parsed the options. After: a person or a script reads standard output, until Ctrl-C.

The command reads committed records only. It joins no consumer group: it leaves no trace on the broker, and each of
several commands gets every event.
"""

from __future__ import annotations

import json
import logging
import signal
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Final, TextIO

from cdcd.cli.commands import Load
from cdcd.cli.event_text import OPERATIONS, columns_text
from cdcd.errors import DecodeError, RequestRejected
from cdcd.lsn import format_lsn
from cdcd.reading.consumer import Message, TopicReader
from cdcd.reading.decoder import EventDecoder, plain
from cdcd.reading.schema_finder import SchemaFinder
from cdcd.sink.kafka.client_config import Property, client_config
from cdcd.terminal.visible_text import word

log = logging.getLogger(__name__)

BATCH_ROWS_MAX: Final = 500


def execute(args: Namespace, load: Load, out: TextIO) -> bool:
    """Print the events of the topics that the options name, until Ctrl-C or SIGTERM."""
    settings = load().settings
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: `timeout`, `docker stop`
    sink, url = settings.sink, settings.avro.registry_url
    tail(
        sink.bootstrap_servers,
        sink.librdkafka,
        sink.prefix,
        None if url is None else {"url": url, **settings.avro.registry_config},
        args.topics,
        from_beginning=args.from_beginning,
        as_json=args.json,
        out=out,
    )
    return True


@dataclass(frozen=True)
class TailedEvent:
    """One record on a topic, decoded. `timestamp_ms`: when it was published, in ms since 1970-01-01 UTC."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any

    def as_json(self) -> str:
        """One line of JSON."""
        return json.dumps({**self.__dict__, "key": plain(self.key), "value": plain(self.value)}, ensure_ascii=False)

    def as_text(self) -> list[str]:
        """Lines for people: time, operation and table, then the row before and after.

        A record that another program wrote may look like an event. Such a record is shown as it is.
        """
        head = f"{_time_text(self.timestamp_ms)} {self.topic}"
        if self.value is None:
            return [f"{head} tombstone {columns_text(self.key)}"]
        if isinstance(self.value, dict) and isinstance(self.value.get("source"), dict):
            with suppress(KeyError, TypeError, ValueError, AttributeError):
                return self._event_lines(head)
        return [f"{head} {columns_text(self.key)} {columns_text(self.value)}"]

    def _event_lines(self, head: str) -> list[str]:
        event, source = self.value, self.value["source"]
        operation = OPERATIONS.get(event.get("op", ""), event.get("op"))
        position = f"{format_lsn(source['commit_lsn'])} #{source['seq']}"
        if source["xid"]:  # rows of a snapshot have none
            position += f" xid {source['xid']}"
        lines = [f"{head} {operation} {columns_text(self.key)} ({position})".replace("  ", " ")]
        lines += [f"    {image:9}{columns_text(event[image])}" for image in ("before", "after") if event.get(image)]
        if event.get("truncate"):
            lines.append(f"    options  {columns_text(event['truncate'])}")
        if event.get("unchanged"):
            lines.append(f"    unchanged {', '.join(map(word, event['unchanged']))}")
        for lost in event.get("unrepresentable") or ():
            column, text = word(lost["column"]), word(lost["text"])
            lines.append(f"    {lost['image']:9}{column}={text} (not representable in Avro)")
        return lines


def _time_text(timestamp_ms: int) -> str:
    """A record's time. Its producer may choose one that no calendar has."""
    try:
        return f"{datetime.fromtimestamp(timestamp_ms // 1000, UTC):%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03}"
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


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

    `registry` has the properties of the schema registry's client; None: schemas are on `{prefix}.schemas`.
    Raises RequestRejected or SettingsError (the user's fault) if a topic does not exist or may not be read;
    KafkaUnavailable; DecodeError.
    """
    config = client_config(bootstrap, "cdcd-tail", properties)
    with TopicReader(config) as reader:
        places = _places(reader, topics, prefix, from_beginning=from_beginning)
        reader.assign(places)
        log.info("reading", extra={"topics": len({topic for topic, _, _ in places}), "partitions": len(places)})
        decoder = EventDecoder(SchemaFinder(config, f"{prefix}.schemas", registry).find)
        while True:
            for message in reader.read(BATCH_ROWS_MAX):
                event = _decoded(message, decoder)
                out.writelines(f"{line}\n" for line in ([event.as_json()] if as_json else event.as_text()))
            out.flush()


def _places(
    reader: TopicReader, topics: Sequence[str], prefix: str, *, from_beginning: bool
) -> list[tuple[str, int, int]]:
    """Topic, partition and first offset, for each partition. It asks for the ends at once, to miss no later event."""
    known = reader.topics()
    places = []
    for wanted in dict.fromkeys(topics):
        matching = sorted(topic for topic in known if fnmatchcase(topic, wanted))
        if not matching:
            raise RequestRejected(f"There is no topic {wanted}", nearest_topic(wanted, prefix, known))
        for topic in matching:
            for partition in known[topic]:
                first, end = reader.bounds(topic, partition)
                places.append((topic, partition, first if from_beginning else end))
    return places


def nearest_topic(wanted: str, prefix: str, known: Iterable[str]) -> str:
    """The hint for a topic that does not exist: the nearest name, preferably of a topic with this prefix."""
    prefixed = f"{prefix}.{wanted}"
    own = [topic for topic in known if topic.startswith(f"{prefix}.")]
    if any(fnmatchcase(topic, prefixed) for topic in own):
        return f"Did you mean {prefixed}?"
    for name, topics in ((wanted, own), (prefixed, own), (wanted, known)):
        if nearest := get_close_matches(name, topics, n=1):
            return f"Did you mean {nearest[0]}?"
    return "cdcd creates the topic of a table with its first event"


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
