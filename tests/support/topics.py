"""Reads the topics without cdcd's own code: by librdkafka's consumer, fastavro, and the rules of the manual.

`Topics.events` gives every committed event of some topics. `fold` replays events into rows. `text_of` writes a value as
PostgreSQL's `col::text` does, so that PostgreSQL itself is the oracle.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import struct
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

Row = tuple[str | None, ...]

MARKERS_WAIT_S = 10.0
"""How long the markers of a committed transaction may take. (A busy broker needed more than 0.3 s.)"""


@dataclass
class Event:
    topic: str
    """With `#` and the table behind it, if tables share it: as the table records name it."""
    partition: int
    offset: int
    timestamp_ms: int
    key: dict[str, Any] | None
    value: Any
    """The decoded event, a dict; None for a tombstone."""
    fields: list[dict[str, Any]] = field(repr=False)

    @property
    def position(self) -> tuple[int, int]:
        return self.value["source"]["commit_lsn"], self.value["source"]["seq"]


class Topics:
    """Reads the topics of one prefix."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self._schemas: dict[bytes, Any] = {}
        self._texts: dict[bytes, dict[str, Any]] = {}

    def names(self) -> list[str]:
        """The topics of row events."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        own = {f"{self.prefix}.{name}" for name in ("progress", "schemas", "messages", "parked", "snapshots")}
        return sorted(
            t for t in admin.list_topics(timeout=10).topics if t.startswith(self.prefix + ".") and t not in own
        )

    def raw(self, *topics: str, isolation: str = "read_committed") -> Iterator[Any]:
        """Every message of the topics up to their ends now, in the order of each partition.

        A transaction that a producer has just committed ends in each partition a moment later: the broker answers
        first, and writes the markers then. So this waits for them, but not for a transaction of a daemon that was
        killed: nobody ends it before its timeout.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "tests",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "check.crcs": True,
            }
        )
        try:
            there = consumer.list_topics(timeout=10).topics
            open_partitions = {(topic, partition) for topic in topics for partition in there[topic].partitions}
            consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in open_partitions])
            in_transaction: set[tuple[str, int]] = set()
            deadline = time.monotonic() + MARKERS_WAIT_S
            while open_partitions:
                if time.monotonic() > deadline:
                    open_partitions -= in_transaction
                # `consume` returns after so many messages, or at the timeout, and not at the end of the partitions.
                for message in consumer.consume(5000, timeout=0.05):
                    error = message.error()
                    if error is not None:
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        place = str(message.topic()), int(message.partition() or 0)
                        _, end = consumer.get_watermark_offsets(TopicPartition(*place), cached=True) or (0, 0)
                        if int(message.offset() or 0) < end:
                            in_transaction.add(place)
                        else:
                            open_partitions.discard(place)
                    else:
                        yield message
        finally:
            consumer.close()

    def events(self, *topics: str) -> list[Event]:
        """Every committed event of the topics, decoded; fails if one cannot be."""
        if not self._schemas:
            self._load_schemas()
        events = []
        for message in self.raw(*topics):
            fields: list[dict[str, Any]] = []
            value = None
            if message.value() is not None:
                value = self._decode(message.value())
                fields = self._row_fields(message.value()[2:10])
            has_schema = message.key() and message.key()[0] > 127  # a truncate on a compacted topic has none
            key = self._decode(message.key()) if has_schema else None
            topic = message.topic() + _table_mark(key, value)
            events.append(
                Event(topic, message.partition(), message.offset(), message.timestamp()[1], key, value, fields)
            )
        return events

    def progress(self) -> list[tuple[str, dict[str, Any]]]:
        """Every committed progress record, key and value, without the tombstones."""
        every = self.raw(f"{self.prefix}.progress")
        return [(m.key().decode(), json.loads(m.value())) for m in every if m.value() is not None]

    def by_table(self) -> dict[tuple[str, str], str]:
        """The topic of each table, as the table records name it."""
        return {(v["schema"], v["table"]): v["topic"] for k, v in self.progress() if "/" in k}

    def _load_schemas(self) -> None:
        for message in self.raw(f"{self.prefix}.schemas"):
            fingerprint = bytes.fromhex(message.key().decode())
            self._texts[fingerprint] = json.loads(message.value())
            self._schemas[fingerprint] = fastavro.parse_schema(json.loads(message.value()))

    def _decode(self, data: bytes) -> dict[str, Any]:
        assert data[:2] == b"\xc3\x01", data[:2]
        if data[2:10] not in self._schemas:
            self._load_schemas()
        stream = io.BytesIO(data[10:])
        record = fastavro.schemaless_reader(stream, self._schemas[data[2:10]], None)
        assert stream.tell() == len(data) - 10, "bytes after the record"
        assert isinstance(record, dict)
        return record

    def _row_fields(self, fingerprint: bytes) -> list[dict[str, Any]]:
        (before,) = (f for f in self._texts[fingerprint]["fields"] if f["name"] == "before")
        fields: list[dict[str, Any]] = before["type"][1]["fields"]
        return fields


def _table_mark(key: dict[str, Any] | None, value: Any) -> str:
    """`#` and the table, as in the names of the progress, of an event on a topic that tables share."""
    source = {} if value is None else value["source"]
    names = source.get("schema"), source.get("table")
    of_key = (key or {}).get("__schema"), (key or {}).get("__table")
    assert key is None or value is None or names == of_key, f"the key {of_key}, the event {names}"
    schema, table = names if names[0] else of_key
    return f"#{_encoded(schema)}.{_encoded(table)}" if schema and table else ""


def _encoded(name: str) -> str:
    return re.sub(rb"[^A-Za-z0-9_]", lambda found: b"-%02x" % found[0][0], name.encode()).decode()


def check_exactly_once(events: list[Event]) -> None:
    """Check that each position comes once, and that positions rise within every partition.

    A truncate is the exception: every partition has one of the same position.
    """
    changes = [event for event in events if event.value is not None]
    positions = Counter(event.position for event in changes if event.value["op"] != "t")
    doubled = [position for position, times in positions.items() if times > 1]
    some = [(e.topic, e.partition, e.offset, e.timestamp_ms, e.position) for e in changes if e.position in doubled[:3]]
    assert not doubled, f"{len(doubled)} positions more than once, such as {some}"
    last: dict[tuple[str, int], tuple[int, int]] = {}
    for event in changes:
        place = (event.topic, event.partition)
        assert last.get(place, (-1, -1)) < event.position, f"out of order at {place} offset {event.offset}"
        last[place] = event.position


def fold(events: list[Event], *, snapshot: bool = False) -> Counter[Row]:
    """The table's rows after all events, each as the texts of its columns in the order of the newest schema.

    With `snapshot`, rows exist before their first event: only events after their `r` must find them.
    """
    changes = sorted((e for e in events if e.value is not None), key=lambda e: (e.position, e.partition))
    rows: dict[str, dict[str, str | None]] = {}
    unkeyed: Counter[str] = Counter()
    columns: list[str] = []
    gone: tuple[tuple[int, int, int], dict[str, str | None]] = ((-1, -1, -1), {})
    for event in changes:
        value = event.value
        columns = [f.get("pg_name", f["name"]) for f in event.fields]
        unrepresentable = {(u["image"], u["column"]): u["text"] for u in value["unrepresentable"]}
        images = {
            image: None
            if value[image] is None
            else {
                f.get("pg_name", f["name"]): unrepresentable.get(
                    (image, f["name"]), text_of(value[image][f["name"]], f)
                )
                for f in event.fields
            }
            for image in ("before", "after")
        }
        before, after = images["before"], images["after"]
        key = None if event.key is None else json.dumps(event.key, default=str, sort_keys=True)
        if value["op"] == "t":
            rows.clear()
            unkeyed.clear()
        elif key is None:
            if before is not None:
                assert unkeyed[json.dumps(before)] > 0 or snapshot, f"the old row at {event.position} is unknown"
                unkeyed[json.dumps(before)] -= 1
            if after is not None:
                unkeyed[json.dumps(after)] += 1
        elif value["op"] == "d":
            assert key in rows or snapshot, f"delete of an unknown key {key}"
            gone = ((*event.position, value["source"]["lsn"]), rows.pop(key, {}))
        else:
            known = value["op"] == "u"
            assert value["op"] == "r" or known == (key in rows) or (known and snapshot), (
                f"{value['op']} of {key} at {event.position}"
            )
            assert after is not None
            for name in value["unchanged"]:
                (column,) = (f.get("pg_name", name) for f in event.fields if f["name"] == name)
                if value["op"] == "c":  # the second half of a key change: the event before it deleted the row
                    assert gone[0] == (event.position[0], event.position[1] - 1, value["source"]["lsn"])
                    after[column] = gone[1].get(column) if snapshot else gone[1][column]
                else:
                    after[column] = rows.get(key, {}).get(column) if snapshot else rows[key][column]
            rows[key] = after
    folded = Counter(tuple(row.get(c) for c in columns) for row in rows.values())
    for text, times in unkeyed.items():
        if times:
            folded[tuple(json.loads(text).get(c) for c in columns)] += times
    return folded


def text_of(value: Any, schema_field: dict[str, Any]) -> str | None:
    """`col::text` of a decoded value, by the PostgreSQL type that the schema's field carries."""
    if value is None:
        return None
    _, avro = schema_field["type"]
    if isinstance(avro, dict) and avro["type"] == "map":
        return _hstore(value)
    return _text(value, schema_field["pg_type"])


def _text(value: Any, pg_type: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, UUID)):
        return str(value)
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        return _float(value, pg_type)
    if isinstance(value, dt.datetime):
        fraction = f".{value.microsecond:06}".rstrip("0") if value.microsecond else ""
        zone = "" if value.tzinfo is None else "+00"
        return f"{value.year:04}-{value.month:02}-{value.day:02} {value:%H:%M:%S}{fraction}{zone}"
    if isinstance(value, dt.date):
        return f"{value.year:04}-{value.month:02}-{value.day:02}"
    if isinstance(value, dt.time):
        return f"{value:%H:%M:%S}" + (f".{value.microsecond:06}".rstrip("0") if value.microsecond else "")
    if isinstance(value, list) and pg_type.endswith("multirange"):
        return "{" + ",".join(_text(v, "") for v in value) + "}"
    if isinstance(value, list):
        return (
            "{"
            + ",".join(
                "NULL" if v is None else _element(_text(v, pg_type.removesuffix("[]").removeprefix("_"))) for v in value
            )
            + "}"
        )
    if isinstance(value, dict) and set(value) == {"months", "days", "micros"}:
        return _interval(**value)
    if isinstance(value, dict) and set(value) == {"lower", "upper", "lower_inc", "upper_inc", "empty"}:
        return _range(**value)
    if isinstance(value, dict):
        return "(" + ",".join("" if v is None else _quoted(_text(v, ""), '"\\(),') for v in value.values()) + ")"
    raise AssertionError(f"no text for {type(value).__name__} of {pg_type}")


def _float(value: float, pg_type: str) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if pg_type == "float4":  # decoded as the nearest double: the fewest digits that name the same float4
        single = struct.pack("f", value)
        value = next(short for p in range(1, 10) if struct.pack("f", short := float(f"{value:.{p}g}")) == single)
    return repr(value).removesuffix(".0")


def _element(text: str) -> str:
    if text == "" or text.lower() == "null" or any(c in text for c in '{}",\\ \t\n\r\v\f'):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


def _quoted(text: str, special: str) -> str:
    """A part of a composite or a range: quotes and backslashes inside are doubled."""
    if text == "" or any(c in special or c.isspace() for c in text):
        return '"' + text.replace("\\", "\\\\").replace('"', '""') + '"'
    return text


def _range(lower: Any, upper: Any, lower_inc: bool, upper_inc: bool, empty: bool) -> str:
    if empty:
        return "empty"
    low, high = ("" if bound is None else _quoted(_text(bound, ""), '"\\()[],') for bound in (lower, upper))
    return f"{'[' if lower_inc else '('}{low},{high}{']' if upper_inc else ')'}"


def _hstore(value: dict[str, str | None]) -> str:
    def quote(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    pairs = sorted(value.items(), key=lambda pair: (len(pair[0].encode()), pair[0].encode()))
    return ", ".join(f"{quote(key)}=>{'NULL' if v is None else quote(v)}" for key, v in pairs)


def _interval(months: int, days: int, micros: int) -> str:
    years, months = int(months / 12), months - 12 * int(months / 12)
    parts = []
    negative_before = False
    for number, unit in ((years, "year"), (months, "mon"), (days, "day")):
        if number:
            sign = "+" if negative_before and number > 0 else ""
            parts.append(f"{sign}{number} {unit}{'' if number == 1 else 's'}")
            negative_before = number < 0
    if micros or not parts:
        seconds, fraction = divmod(abs(micros), 1_000_000)
        sign = "-" if micros < 0 else "+" if negative_before else ""
        clock = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        parts.append(clock + (f".{fraction:06}".rstrip("0") if fraction else ""))
    return " ".join(parts)


def set_config(broker: str, topic: str, **config: str) -> None:
    """Set properties of a topic; `_` in a name stands for a dot."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker})
    admin.incremental_alter_configs([resource])[resource].result()
