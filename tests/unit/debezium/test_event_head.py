from __future__ import annotations

import pytest
from golden.debezium.recorded import HERE, Connector, load

from cdcd.debezium.avro_form import SOURCE_BEGIN
from cdcd.debezium.event_head import last_commit, last_commit_in_avro, row_lsn


def test_an_event_of_debezium_says_where_the_transaction_before_ends() -> None:
    found = [
        last_commit(record.value)
        for record in load(HERE / "defaults.jsonl.xz")[0].records
        if record.topic.endswith(".basic") and record.value and b'"op":"r"' not in record.value
    ]
    first, *others = found
    assert first is None  # before the first commit that the connector saw
    assert others == sorted(filter(None, others))
    assert len(set(others)) > 3


@pytest.mark.parametrize(
    ("value", "lsn"),
    [
        (
            b'{"after":{"a":1,"sequence":"[\\"7\\",x"},"source":{"db":"d","sequence":"[\\"16\\",\\"20\\"]"},"op":"c"}',
            16,
        ),
        (b'{"after":{"a":1},"source":{"db":"d","sequence":"[null,\\"20\\"]"},"op":"r"}', None),
        (b'{"a":1}', None),
        (b'{"source":{"db":"d","sequence":"[\\"1', 1),
        (b'{"source":{"db":"d","sequence":"[\\"x\\"', None),
        (b"", None),
    ],
)
def test_it_is_that_of_the_source(value: bytes, lsn: int | None) -> None:
    assert last_commit(value) == lsn


@pytest.mark.parametrize(
    ("value", "lsn"),
    [
        (b'{"a":"\\",\\"__lsn\\":9,","__op":"c","__lsn":16}', 16),
        (b'{"schema":{"fields":[{"type":"int64","field":"__lsn"}]},"payload":{"__lsn":16,"__op":"c"}}', 16),
        (b'{"a":1,"__lsn":"7"}', None),
        (b'{"a":1}', None),
        (b"", None),
    ],
)
def test_a_flat_row_says_the_lsn_of_its_change_if_it_has_the_field(value: bytes, lsn: int | None) -> None:
    assert row_lsn(value) == lsn


def _recorded(encoding: str, name: str = "defaults") -> Connector:
    return next(each for each in load(HERE / f"{name}.jsonl.xz") if each.encoding == encoding)


@pytest.mark.parametrize("name", ["defaults", "double"])
def test_in_avro_it_is_what_it_is_in_json(name: str) -> None:
    """Without metadata of transactions, and with it."""
    in_json, in_avro = (
        [record.value for record in _recorded(encoding, name).records if ".public." in record.topic and record.value]
        for encoding in ("json", "avro")
    )
    wanted = [last_commit(value) for value in in_json]
    assert [last_commit_in_avro(value) for value in in_avro] == wanted
    assert len(set(wanted)) > 50


def test_bytes_that_look_like_a_source_are_not_taken_for_it() -> None:
    event = next(
        record.value
        for record in _recorded("avro").records
        if record.topic.endswith(".the_end") and record.value and last_commit_in_avro(record.value)
    )
    lsn = last_commit_in_avro(event)
    source = event.rfind(SOURCE_BEGIN)
    assert last_commit_in_avro(event[:source] + event[source:] * 2) == lsn  # the first one is a value
    named = event.replace(b"\x0cpublic", b"\x2e" + SOURCE_BEGIN)  # the name of the table's schema
    assert last_commit_in_avro(named) == lsn
    for end in range(len(event)):
        assert last_commit_in_avro(event[:end]) is None
