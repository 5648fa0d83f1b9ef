"""The commit LSN of an event is read without its schema, and of anything else it is not known."""

from __future__ import annotations

import pytest
from librt.strings import BytesWriter

from cdcd.avro.codecs.varint import write_long
from cdcd.avro.envelope_head import after_long, commit_lsn, read_long

SINGLE_OBJECT = b"\xc3\x01\x00\x01\x02\x03\x04\x05\x06\x07"
CONFLUENT = b"\x00\x00\x00\x00\x05"


def event(lsn: int, header: bytes = SINGLE_OBJECT, op: bytes = b"c") -> bytes:
    out = BytesWriter()
    out.write(header + b"\x02" + op)
    write_long(out, lsn)
    out.write(b"\x00the rest")
    return out.getvalue()


@pytest.mark.parametrize("header", [SINGLE_OBJECT, CONFLUENT])
@pytest.mark.parametrize("op", [b"c", b"r", b"u", b"d", b"t", b"m"])
@pytest.mark.parametrize("lsn", [0, 1, 63, 64, 0x16_B374_D848, (1 << 63) - 1])
def test_the_position_of_an_event_is_read(header: bytes, op: bytes, lsn: int) -> None:
    assert commit_lsn(event(lsn, header, op)) == lsn


@pytest.mark.parametrize(
    "value",
    [b"", b"{}", b"\x00", SINGLE_OBJECT, CONFLUENT + b"\x02", event(1, op=b"x"), event(1 << 60)[:14], b"\xff" * 40,
     SINGLE_OBJECT + b"\x02c" + b"\xff" * 20],
)  # fmt: skip
def test_of_what_does_not_begin_as_an_event_the_position_is_not_known(value: bytes) -> None:
    assert commit_lsn(value) is None


@pytest.mark.parametrize("number", [0, -1, 63, -64, 64, 1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63)])
def test_a_long_is_read_as_it_was_written(number: int) -> None:
    out = BytesWriter()
    out.write(b"?")
    write_long(out, number)
    data = out.getvalue()
    assert read_long(data + b"\x00", 1) == number
    assert after_long(data + b"\x00", 1) == len(data)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 20])
def test_a_long_that_does_not_end_is_refused(data: bytes) -> None:
    with pytest.raises(IndexError):
        read_long(data, 0)
