from __future__ import annotations

import ipaddress
import struct

import pytest
from support.avro_values import both, transcode

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.network import Bit, Inet, Macaddr, PgLsn, Tsvector
from cdcd.errors import DecodeError


def inet(address: str, bits: int, is_cidr: int = 0) -> bytes:
    packed = ipaddress.ip_address(address).packed
    return bytes([2 if len(packed) == 4 else 3, bits, is_cidr, len(packed)]) + packed


@pytest.mark.parametrize(
    ("address", "bits", "text"),
    [
        *(("10.1.2.3", 32, "10.1.2.3"), ("10.1.2.3", 8, "10.1.2.3/8"), ("0.0.0.0", 0, "0.0.0.0/0")),
        *(("::", 128, "::"), ("::1", 128, "::1"), ("1::", 64, "1::/64"), ("1:0:0:2::3", 128, "1:0:0:2::3")),
        *(("::ffff:1.2.3.4", 128, "::ffff:1.2.3.4"), ("::1.2.3.4", 128, "::1.2.3.4")),
        *(("1:2:3:4:5:6:7:0", 128, "1:2:3:4:5:6:7:0"), ("1:0:0:2:0:0:3:4", 128, "1::2:0:0:3:4")),
    ],
)
def test_inet_is_its_text_without_a_full_prefix(address: str, bits: int, text: str) -> None:
    assert both(Inet("inet"), inet(address, bits), text) == text


def test_cidr_always_has_its_prefix() -> None:
    assert both(Inet("cidr"), inet("10.1.2.3", 32, 1), "10.1.2.3/32") == "10.1.2.3/32"


@pytest.mark.parametrize(
    ("codec", "value", "text"),
    [
        (Macaddr("macaddr", 6), bytes.fromhex("08002b010203"), "08:00:2b:01:02:03"),
        (Macaddr("macaddr8", 8), bytes.fromhex("08002b0102030405"), "08:00:2b:01:02:03:04:05"),
        (Bit(), struct.pack(">i", 0), ""),
        (Bit(), struct.pack(">iB", 3, 0b10100000), "101"),
        (Bit(), struct.pack(">iBB", 9, 0b10101010, 0x80), "101010101"),
        (PgLsn(), struct.pack(">II", 0x16, 0xB374D848), "16/B374D848"),
        (PgLsn(), b"\xff" * 8, "FFFFFFFF/FFFFFFFF"),
        (Tsvector(), struct.pack(">i", 0), ""),
        (
            Tsvector(),
            struct.pack(">i", 2) + b"a'\\\0\0\0" + "é".encode() + b"\0" + struct.pack(">HHH", 2, 3, 0xC000 | 16383),
            "'a''\\\\' 'é':3,16383A",
        ),
    ],
)
def test_a_packed_type_is_its_text(codec: Codec, value: bytes, text: str) -> None:
    assert both(codec, value, text) == text


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        *(
            (Inet("inet"), value)
            for value in (b"", b"\4\0\0\4abcd", b"\2\x21\0\4abcd", b"\2\x20\0\4abc", b"\3\x20\0\4abcd")
        ),
        *((Macaddr("macaddr", 6), bytes(size)) for size in (0, 5, 8)),
        *((Bit(), value) for value in (b"", b"\0\0\0\1", b"\0\0\0\1ab", b"\xff\xff\xff\xff")),
        *((PgLsn(), bytes(size)) for size in (0, 7, 9)),
        *((Tsvector(), value) for value in (b"", b"\0\0\0\1", b"\0\0\0\1a\0\0\1", b"\0\0\0\0x", b"\xff\xff\xff\xff")),
    ],
)
def test_a_malformed_packed_value_is_a_decode_error(codec: Codec, value: bytes) -> None:
    with pytest.raises(DecodeError):
        transcode(codec, "binary", value)
