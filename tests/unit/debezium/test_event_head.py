from __future__ import annotations

import pytest
from golden.debezium.recorded import HERE, load

from cdcd.debezium.event_head import last_commit, row_lsn


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
