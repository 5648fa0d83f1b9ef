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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Final, TextIO

from cdcd.cli.commands import Load
from cdcd.cli.event_text import OPERATIONS, columns_text, header_texts, without_schema
from cdcd.errors import DecodeError, RequestRejected
from cdcd.lsn import format_lsn
from cdcd.reading.committed_range import RangeReader
from cdcd.reading.consumer import Message, TopicReader
from cdcd.reading.decoder import EventDecoder, plain
from cdcd.reading.schema_finder import SchemaFinder
from cdcd.sink.kafka.client_config import client_config
from cdcd.source.table_selection import settings_file_hint
from cdcd.terminal.visible_text import word

log = logging.getLogger(__name__)

BATCH_ROWS_MAX: Final = 500


def execute(args: Namespace, load: Load, out: TextIO) -> bool:
    """Print the events of the topics that the options name, until Ctrl-C or SIGTERM."""
    settings = load().settings
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: `timeout`, `docker stop`
    sink, url = settings.sink, settings.avro.registry_url
    config = client_config(sink.bootstrap_servers, "cdcd-tail", sink.client_properties)
    registry = None if url is None else {"url": url, **settings.avro.registry_config}
    decoder = EventDecoder(SchemaFinder(config, f"{sink.prefix}.schemas", registry).find)
    start = Start(args.last, args.since, from_beginning=args.from_beginning)
    shown = Shown(decoder, args.key, out, as_json=args.json, is_payload=settings.topic_names().may_be_outbox_topic)
    tail(config, args.topics, sink.prefix, start, shown, follows=not args.no_follow)
    return True


@dataclass(frozen=True)
class Start:
    """Where to begin; with the defaults, at new events."""

    last: int | None = None
    """At the last so many events of all topics together."""
    since_ms: int | None = None
    """At the events that were published at this time or later, in ms since 1970-01-01 UTC."""
    from_beginning: bool = False
    """At the oldest event."""


@dataclass(frozen=True)
class TailedEvent:
    """One record on a topic, decoded. `timestamp_ms`: when it was published, in ms since 1970-01-01 UTC."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> str:
        """One line of JSON."""
        document = {**self.__dict__, "key": plain(self.key), "value": plain(self.value)}
        if not self.headers:
            del document["headers"]
        return json.dumps(document, ensure_ascii=False)

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
        if "commit_lsn" in source:
            position, xid = f"{format_lsn(source['commit_lsn'])} #{source['seq']}", source["xid"]
        else:  # of Debezium's format
            position, xid = format_lsn(source["lsn"]), source["txId"]
        if xid:  # rows of a snapshot have none
            position += f" xid {xid}"
        row = columns_text(self.key)
        if self.key is None and source.get("table"):  # the topic may have several tables
            row = word(f"{source['schema']}.{source['table']}")
        lines = [f"{head} {operation} {row} ({position})".replace("  ", " ")]
        lines += [f"    {image:9}{columns_text(event[image])}" for image in ("before", "after") if event.get(image)]
        if event.get("truncate"):
            lines.append(f"    options  {columns_text(event['truncate'])}")
        if event.get("unchanged"):
            lines.append(f"    unchanged {', '.join(map(word, event['unchanged']))}")
        for lost in event.get("unrepresentable") or ():
            column, text = word(lost["column"]), word(lost["text"])
            lines.append(f"    {lost['image']:9}{column}={text} (not representable in Avro)")
        return lines


class Shown:
    """The events that are shown: it decodes records, and writes those with the wanted key."""

    def __init__(
        self,
        decoder: EventDecoder,
        key: Sequence[str],
        out: TextIO,
        *,
        as_json: bool,
        is_payload: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`key`: values of the key, or `column=value`; empty: every event.

        `is_payload`: whether the values of a topic are what an application chose, as in the outbox's.
        """
        self._decoder = decoder
        self._is_payload = is_payload
        self._key = key
        self._out = out
        self._as_json = as_json

    def is_wanted(self, message: Message) -> bool:
        """Whether the record has the wanted key. Raises DecodeError."""
        return not self._key or has_key(_decoded(message, self._decoder, self._is_payload).key, self._key)

    def show(self, messages: Iterable[Message]) -> None:
        """Write the wanted ones among these records. Raises DecodeError."""
        for message in messages:
            event = _decoded(message, self._decoder, self._is_payload)
            if not self._key or has_key(event.key, self._key):
                self._out.writelines(f"{line}\n" for line in ([event.as_json()] if self._as_json else event.as_text()))
        self._out.flush()


def has_key(key: Any, wanted: Sequence[str]) -> bool:
    """Whether a decoded key has each of the wanted values, as `7` or as `id=7`."""
    columns = key if isinstance(key, dict) else {} if key is None else {"": key}
    texts = {name: _plain_text(value) for name, value in columns.items()}
    named = {f"{name}={text}" for name, text in texts.items()}
    return all(each in named or each in texts.values() for each in wanted)


def _plain_text(value: Any) -> str:
    simple = plain(value)
    return simple if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False)


def _time_text(timestamp_ms: int) -> str:
    """A record's time. Its producer may choose one that no calendar has."""
    try:
        return f"{datetime.fromtimestamp(timestamp_ms // 1000, UTC):%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03}"
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


def tail(
    config: Mapping[str, object], topics: Sequence[str], prefix: str, start: Start, shown: Shown, *, follows: bool
) -> None:
    """Show the events of `topics` (`*` stands for any characters), until KeyboardInterrupt.

    `config` has the properties of Kafka's client. Unless it `follows`, it ends where the topics end now. Raises
    RequestRejected or SettingsError (the user's fault) if a topic does not exist or may not be read; KafkaUnavailable;
    DecodeError.
    """
    with TopicReader(config) as reader:
        # It asks for the ends at once, to miss no later event.
        ends = _ends(reader, topics, prefix)
        places = [(*place, _first(reader, place, bounds, start)) for place, bounds in ends.items()]
        if follows and start.last is None:
            reader.assign(places)
        log.info("reading", extra={"topics": len({topic for topic, _ in ends}), "partitions": len(ends)})
        if start.last is not None:
            shown.show(_last(config, ends, start.last, shown))
        elif not follows:
            with RangeReader(config) as ranges:
                for topic, partition, first in places:
                    shown.show(ranges.between(topic, partition, first, ends[topic, partition][1]))
        if not follows:
            return
        if start.last is not None:
            reader.assign(places)
        while True:
            shown.show(reader.read(BATCH_ROWS_MAX))


def _ends(reader: TopicReader, topics: Sequence[str], prefix: str) -> dict[tuple[str, int], tuple[int, int]]:
    """The first offset and the end of each partition, by topic and partition."""
    known = reader.topics()
    ends = {}
    for wanted in dict.fromkeys(topics):
        matching = sorted(topic for topic in known if fnmatchcase(topic, wanted))
        if not matching:
            raise RequestRejected(
                f"There is no topic {wanted}", nearest_topic(wanted, prefix, known), code="topic-missing"
            )
        for topic in matching:
            for partition in known[topic]:
                ends[topic, partition] = reader.bounds(topic, partition)
    return ends


def _first(reader: TopicReader, place: tuple[str, int], bounds: tuple[int, int], start: Start) -> int:
    first, end = bounds
    if start.since_ms is not None:
        found = reader.offset_at(*place, start.since_ms)
        return end if found is None else found
    return first if start.from_beginning else end


def _last(
    config: Mapping[str, object], ends: Mapping[tuple[str, int], tuple[int, int]], count: int, shown: Shown
) -> list[Message]:
    """The last `count` wanted records of all partitions together, in the order in which they were published."""
    with RangeReader(config) as ranges:
        found = [each for place in ends for each in ranges.last(place, ends[place], count, shown.is_wanted)]
    return sorted(found, key=lambda message: message.timestamp()[1])[-count:]


def nearest_topic(wanted: str, prefix: str, known: Iterable[str]) -> str:
    """The hint for a topic that does not exist: the nearest name, preferably of a topic with this prefix."""
    if hint := settings_file_hint(wanted):
        return hint
    prefixed = f"{prefix}.{wanted}"
    own = [topic for topic in known if topic.startswith(f"{prefix}.")]
    if any(fnmatchcase(topic, prefixed) for topic in own):
        return f"Did you mean {prefixed}?"
    for name, topics in ((wanted, own), (prefixed, own), (wanted, known)):
        if nearest := get_close_matches(name, topics, n=1):
            return f"Did you mean {nearest[0]}?"
    return "cdcd creates the topic of a table with its first event"


def _decoded(message: Message, decoder: EventDecoder, is_payload: Callable[[str], bool]) -> TailedEvent:
    key, value = message.key(), message.value()
    topic, partition, offset = str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)
    headers: Any = message.headers() or ()  # librdkafka's binding gives them as a list, though its types say otherwise
    is_chosen = is_payload(topic)

    def decoded(data: bytes) -> Any:
        return decoder.decode_payload(data) if is_chosen else without_schema(decoder.decode(data))

    try:
        return TailedEvent(
            topic,
            partition,
            offset,
            message.timestamp()[1],
            None if key is None else decoded(bytes(key)),
            None if value is None else decoded(bytes(value)),
            header_texts(headers),
        )
    except DecodeError as error:
        raise DecodeError(
            f"{topic}, partition {partition}, offset {offset}: {error.message}", error.hint, code=error.code
        ) from error
