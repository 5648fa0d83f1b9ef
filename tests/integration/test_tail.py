"""`cdcd tail` as a process, against a real broker; the records are written by fastavro, not by cdcd."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

SOURCE = {"commit_lsn": 0x16B374D848, "seq": 0, "lsn": 1, "xid": 77, "commit_ts": 1_767_323_045_000_000}

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "op", "type": "string"},
            {
                "name": "source",
                "type": {
                    "type": "record",
                    "name": "Source",
                    "fields": [{"name": name, "type": "long"} for name in SOURCE],
                },
            },
            {"name": "before", "type": ["null", "string"]},
            {
                "name": "after",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "Row",
                        "fields": [
                            {"name": "id", "type": "int"},
                            {
                                "name": "total",
                                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
                            },
                            {"name": "note", "type": ["null", "string"]},
                        ],
                    },
                ],
            },
        ],
    }
)

FINGERPRINT = fastavro.schema.fingerprint(SCHEMA, "CRC-64-AVRO")


def value(number: int) -> bytes:
    row = {"id": number, "total": Decimal("1.50"), "note": "two words"}
    out = io.BytesIO(b"\xc3\x01" + bytes.fromhex(FINGERPRINT))
    out.seek(0, io.SEEK_END)
    event = {"op": "c", "source": SOURCE, "before": None, "after": row}
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(SCHEMA)), event)
    return out.getvalue()


class Topic:
    """A topic of events, with a schemas topic beside it, written in Kafka transactions."""

    def __init__(self, broker: str, prefix: str, partitions: int = 2) -> None:
        self.broker = broker
        self.prefix = prefix
        self.name = f"{prefix}.public.orders"
        admin = AdminClient({"bootstrap.servers": broker})
        topics = [NewTopic(self.name, partitions, 1), NewTopic(f"{prefix}.schemas", 2, 1)]
        for made in admin.create_topics(topics).values():
            made.result()
        self.producer = Producer({"bootstrap.servers": broker, "transactional.id": prefix})
        self.producer.init_transactions()

    def publish(self, numbers: Sequence[int], *, commit: bool = True, schema: bool = True) -> None:
        self.producer.begin_transaction()
        if schema:
            self.producer.produce(f"{self.prefix}.schemas", SCHEMA.encode(), FINGERPRINT, partition=1)
        for number in numbers:
            self.producer.produce(self.name, value(number), f"key-{number}")
        if commit:
            self.producer.commit_transaction()
        else:
            self.producer.flush()
            self.producer.abort_transaction()


class Tail:
    """The command as a process."""

    def __init__(self, broker: str, prefix: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            "CDCD_SOURCE__DSN": "host=nowhere",
            "CDCD_SINK__BOOTSTRAP_SERVERS": broker,
            "CDCD_SINK__PREFIX": prefix,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cdcd", "tail", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # What a script runs in the background ignores SIGINT, and whatever that starts, too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  # it takes no lock
        )

    def wait_until_reading(self) -> None:
        assert self.process.stderr is not None
        assert "tail: reading" in self.process.stderr.readline()

    def lines(self, count: int) -> list[str]:
        assert self.process.stdout is not None
        return [self.process.stdout.readline().rstrip("\n") for _ in range(count)]

    def end(self, how: signal.Signals = signal.SIGINT) -> tuple[int, str, str]:
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err

    def result(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=30)
        return self.process.returncode, err


@pytest.fixture
def tail(broker: str, prefix: str) -> Iterator[Callable[..., Tail]]:
    started: list[Tail] = []

    def start(*arguments: str) -> Tail:
        started.append(Tail(broker, prefix, *arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


@pytest.fixture
def topic(broker: str, prefix: str) -> Topic:
    return Topic(broker, prefix)


def test_from_the_beginning_every_committed_event_comes_once_and_decoded(
    topic: Topic, tail: Callable[..., Tail]
) -> None:
    topic.publish([1, 2, 3])
    topic.publish([99], commit=False)
    topic.publish([4])
    reading = tail(topic.name, "--from-beginning", "--json")
    events: list[dict[str, Any]] = [json.loads(line) for line in reading.lines(4)]
    assert sorted(event["value"]["after"]["id"] for event in events) == [1, 2, 3, 4]
    first = next(event for event in events if event["key"] == "key-1")
    assert first["topic"] == topic.name
    assert first["value"]["after"] == {"id": 1, "total": "1.50", "note": "two words"}
    code, rest, _ = reading.end()
    assert (code, rest) == (0, "")


def test_without_from_beginning_only_what_comes_after_the_start_is_shown(
    topic: Topic, tail: Callable[..., Tail]
) -> None:
    topic.publish([1, 2])
    reading = tail(topic.name, "--json")
    reading.wait_until_reading()
    topic.publish([3])
    assert json.loads(reading.lines(1)[0])["value"]["after"]["id"] == 3


def shown_ids(reading: Tail) -> list[int]:
    out, err = reading.process.communicate(timeout=30)
    assert reading.process.returncode == 0, err
    return [json.loads(line)["value"]["after"]["id"] for line in out.splitlines()]


def test_the_last_events_are_those_published_last_whatever_was_aborted_between_them(
    topic: Topic, tail: Callable[..., Tail]
) -> None:
    topic.publish(range(1, 11))
    for number in range(11, 31):
        topic.publish([1000 + number], commit=False)
        topic.publish([number])
    assert shown_ids(tail(topic.name, "-n", "5", "--no-follow", "--json")) == [26, 27, 28, 29, 30]
    assert len(shown_ids(tail(topic.name, "-n", "100", "--no-follow", "--json"))) == 30
    reading = tail(topic.name, "-n", "1", "--json")
    assert json.loads(reading.lines(1)[0])["value"]["after"]["id"] == 30
    topic.publish([31])
    assert json.loads(reading.lines(1)[0])["value"]["after"]["id"] == 31


def test_only_events_of_the_key_and_since_the_time_are_shown(topic: Topic, tail: Callable[..., Tail]) -> None:
    for number in (1, 2, 1, 3, 1):
        topic.publish([number])
    assert shown_ids(tail(topic.name, "--from-beginning", "--no-follow", "--json", "--key", "key-1")) == [1, 1, 1]
    assert shown_ids(tail(topic.name, "-n", "2", "--no-follow", "--json", "--key", "key-1")) == [1, 1]
    assert sorted(shown_ids(tail(topic.name, "--since", "10m", "--no-follow", "--json"))) == [1, 1, 1, 2, 3]
    assert shown_ids(tail(topic.name, "--since", "2200-01-01", "--no-follow", "--json")) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_cleanly_when_asked(topic: Topic, tail: Callable[..., Tail], how: signal.Signals) -> None:
    reading = tail(topic.name)
    reading.wait_until_reading()
    code, out, err = reading.end(how)
    assert (code, out, err) == (0, "", "")


def test_people_read_what_happened_when_and_the_row(topic: Topic, tail: Callable[..., Tail]) -> None:
    topic.publish([1])
    head, row = tail(topic.name, "--from-beginning").lines(2)
    assert f" {topic.name} insert key-1 (16/B374D848 #0 xid 77)" in head
    assert row.split() == ["after", "id=1", "total=1.50", 'note="two', 'words"']


def test_a_star_stands_for_any_characters(topic: Topic, prefix: str, tail: Callable[..., Tail]) -> None:
    topic.publish([1])
    assert json.loads(tail(f"{prefix}.pub*", "--from-beginning", "--json").lines(1)[0])["topic"] == topic.name


def test_a_topic_that_does_not_exist_is_named_with_the_nearest(topic: Topic, tail: Callable[..., Tail]) -> None:
    code, err = tail(topic.name + "s").result()
    assert code == 1
    assert f"cdcd: There is no topic {topic.name}s. Did you mean {topic.name}? [topic-missing]\n" in err
    assert "Traceback" not in err


def test_a_value_whose_schema_is_nowhere_is_named_with_its_place(topic: Topic, tail: Callable[..., Tail]) -> None:
    topic.publish([1], schema=False)
    code, err = tail(topic.name, "--from-beginning").result()
    assert code == 1
    assert f"{topic.name}, partition " in err
    assert f"There is no schema {FINGERPRINT} on {topic.prefix}.schemas" in err


def test_what_others_write_on_the_schemas_topic_is_passed_over(topic: Topic, tail: Callable[..., Tail]) -> None:
    other = SCHEMA.replace("two", "three").replace("total", "sum")
    topic.producer.begin_transaction()
    poison: list[tuple[str | bytes | None, str | bytes | None]] = [
        (b"\xff\xfe", SCHEMA), (FINGERPRINT, b"\xff\xfe"), (FINGERPRINT, other), (FINGERPRINT, "{" * 10_000), ("", ""),
        (FINGERPRINT, "x" * 900_000), (None, SCHEMA), (FINGERPRINT, None),
    ]  # fmt: skip
    for key, text in poison:
        topic.producer.produce(f"{topic.prefix}.schemas", text, key, partition=1)
    topic.producer.commit_transaction()
    topic.publish([1])
    assert json.loads(tail(topic.name, "--from-beginning", "--json").lines(1)[0])["value"]["after"]["id"] == 1


def test_a_broker_that_is_not_there_is_an_error_not_a_wait(tail: Callable[..., Tail], tmp_path: Path) -> None:
    config = tmp_path / "cdcd.toml"
    config.write_text('[source]\ndsn = ""\n[sink]\nbootstrap_servers = "127.0.0.1:1"\n')
    done = subprocess.run(
        [sys.executable, "-P", "-m", "cdcd", "tail", "--config", str(config), "topic"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "cdcd: Kafka (127.0.0.1:1) failed reading topics" in done.stderr
