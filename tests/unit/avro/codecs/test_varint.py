from __future__ import annotations

import io

import fastavro
import pytest
from librt.strings import BytesWriter

from cdcd.avro.codecs.varint import copy, write_bytes, write_long, write_text


def long(n: int) -> bytes:
    out = BytesWriter()
    write_long(out, n)
    return out.getvalue()


@pytest.mark.parametrize(
    ("n", "written"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-2, "03"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_a_long_is_zigzag_in_groups_of_seven_bits(n: int, written: str) -> None:
    assert long(n).hex() == written


def test_every_length_of_a_long_reads_back() -> None:
    for bits in range(64):
        for n in (2**bits - 1, -(2**bits), 2**bits - 2**bits // 3 - 1):
            assert fastavro.schemaless_reader(io.BytesIO(long(n)), "long") == n


def test_copy_appends_exactly_the_range_at_every_size() -> None:
    data = bytes(range(256)) * 2
    for size in (*range(40), 127, 128, 129, 300):
        out = BytesWriter()
        out.write(b"before")
        copy(out, data, 7, size)
        assert out.getvalue() == b"before" + data[7 : 7 + size]


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 131_072, 200_001])
def test_copy_appends_a_large_range_in_pieces(size: int) -> None:
    data = b"".join(n.to_bytes(4) for n in range(size // 4 + 10))
    out = BytesWriter()
    copy(out, data, 7, size)
    assert out.getvalue() == data[7 : 7 + size]


def test_bytes_and_text_have_their_length_in_bytes_before_them() -> None:
    out = BytesWriter()
    write_bytes(out, b"..abc..", 2, 3)
    write_text(out, "é")
    assert out.getvalue() == b"\x06abc\x04\xc3\xa9"
