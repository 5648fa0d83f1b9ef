from __future__ import annotations

from typing import get_args

import pytest

from cdcd.avro.single_object import header
from cdcd.config.settings import SinkSettings
from cdcd.sink.kafka.committed_rows import POSITIONS

JSON = b'{"op":"c","source":{"commit_lsn":200,"seq":0,"lsn":150,"xid":7},"after":{"s":",\\"sequence\\":\\"[\\"}}'


DEBEZIUM = b'{"before":null,"after":{},"source":{"db":"d","sequence":"[\\"100\\",\\"150\\"]"}}'
HOSTILE = b'{"before":null,"after":{"v":",\\"payload\\":{\\"op\\":\\"c\\",\\"source\\":{\\"commit_lsn\\":1,"}}'


@pytest.mark.parametrize(
    ("event_format", "value", "position"),
    [
        ("", header(b"\0" * 8) + b"\2c\x90\3\0", 200),
        ("cdcd/json", JSON, 200),
        ("cdcd/json-schema", b'{"schema":{"type":"struct"},"payload":' + JSON + b"}", 200),
        ("cdcd/json", HOSTILE, None),
        ("debezium/json", DEBEZIUM, 100),
        ("debezium/json-schema", b'{"schema":{"type":"struct"},"payload":' + DEBEZIUM + b"}", 100),
        ("debezium/json", HOSTILE, None),
        ("debezium/avro", b"\0\0\0\0\7\2c\x90\3\0", None),
        ("row/avro", b"\0\0\0\0\7\2c\x90\3\0", None),
    ],
)
def test_an_event_of_each_format_says_where_its_transaction_stands(
    event_format: str, value: bytes, position: int | None
) -> None:
    assert POSITIONS[event_format](value) == position
    assert POSITIONS[event_format](b"") is None


def test_every_format_is_known() -> None:
    formats, encodings = (get_args(SinkSettings.model_fields[name].annotation) for name in ("format", "encoding"))
    chosen = {f"{name}/{encoding}" for name in formats for encoding in encodings} - {"cdcd/avro"}
    assert POSITIONS.keys() == {"", *chosen}


def test_a_flat_row_has_the_position_of_its_change() -> None:
    """Not one that its columns seem to have, and if it does not say it, none."""
    row = b'{"commit_lsn":300,"sequence":"[\\"100\\",\\"150\\"]","__op":"c","__lsn":150}'
    assert POSITIONS["row/json"](row) == 150
    assert POSITIONS["row/json"](row.replace(b',"__lsn":150', b"")) is None
