from __future__ import annotations

from cdcd.debezium.connect_schema import BYTES, INT32, INT64, STRING, Schema
from cdcd.debezium.header_text import struct_text

DECIMAL = Schema("bytes", "org.apache.kafka.connect.data.Decimal", 1, parameters=(("scale", "2"),))
DATE = Schema("int32", "org.apache.kafka.connect.data.Date", 1)
TIMESTAMP = Schema("int64", "org.apache.kafka.connect.data.Timestamp", 1)


def test_values_are_shown_as_connect_shows_them() -> None:
    shown = struct_text([
        ("n", INT32, b"7"),
        ("s", STRING, b'"a\\"\\\\\\u0001"'),
        ("raw", BYTES, b'"AQI="'),
        ("d", DECIMAL, b'"+g=="'),
        ("day", DATE, b"18262"),
        ("at", TIMESTAMP, b"1577880000123"),
        ("clock", TIMESTAMP, b"1500"),
        ("far", INT64, b"-5"),
    ])  # fmt: skip
    assert shown == (
        b'{"n":7,"s":"a\\"\\\\\x01","raw":"AQI=","d":-0.06,"day":2020-01-01,"at":2020-01-01T12:00:00.123Z,'
        b'"clock":00:00:01.500Z,"far":-5}'
    )
