from __future__ import annotations

import pytest

from cdcd.avro.single_object import header
from cdcd.sink.kafka.committed_rows import position_of

JSON = b'{"op":"c","source":{"commit_lsn":200,"seq":0,"lsn":150,"xid":7},"after":{"s":",\\"sequence\\":\\"[\\"}}'


@pytest.mark.parametrize(
    ("value", "position"),
    [
        (header(b"\0" * 8) + b"\2c\x90\3\0", 200),
        (JSON, 200),
        (b'{"schema":{"type":"struct"},"payload":' + JSON + b"}", 200),
        (b'{"before":null,"after":{},"source":{"db":"d","sequence":"[\\"100\\",\\"150\\"]"}}', 100),
        (b'{"before":null,"after":{"v":",\\"payload\\":{\\"op\\":\\"c\\",\\"source\\":{\\"commit_lsn\\":1,"}}', None),
        (b"{}", None),
        (b"", None),
    ],
    ids=["avro", "json", "json-schema", "debezium", "hostile", "no event", "tombstone"],
)
def test_an_event_of_each_format_says_where_its_transaction_stands(value: bytes, position: int | None) -> None:
    assert position_of(value, "") == position


def test_a_flat_row_has_the_position_of_its_change() -> None:
    """Not one that its columns seem to have, and if it does not say it, none."""
    row = b'{"commit_lsn":300,"sequence":"[\\"100\\",\\"150\\"]","__op":"c","__lsn":150}'
    assert position_of(row, "row/json") == 150
    assert position_of(row.replace(b',"__lsn":150', b""), "row/json") is None
