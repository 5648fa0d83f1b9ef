"""A codec that loses a value says that it may: else such a value in a key would stop the daemon."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from support.avro_values import UNREPRESENTABLE, transcode

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.lookup import REGISTRY, TypeOptions, codec_for
from cdcd.avro.type_forms import FALLIBLE_KINDS, kind_of
from cdcd.errors import BinaryFormatUnsupported, DecodeError
from cdcd.source.pg_types import PgType

NUMERIC_12_2 = (12 << 16 | 2) + 4

OPTIONS = {
    "UTF8": TypeOptions(),
    "UTF8, decimals as strings": TypeOptions(numeric="string"),
    "SQL_ASCII": TypeOptions(any_encoding=True),
    "LATIN1": TypeOptions(converted=True),
    "EUC_JIS_2004, as it is stored": TypeOptions(
        converted=True, to_text=lambda raw: raw.decode("euc_jis_2004", "surrogateescape")
    ),
}

NAMED = [
    *(PgType(oid, "pg_catalog", name) for oid, name in REGISTRY.built_in_names.items()),
    *(PgType(70_000 + n, "public", name) for n, name in enumerate(REGISTRY.extension_names)),
    PgType(71_000, "public", "unheard_of"),
    PgType(71_001, "public", "mood", "e"),
]


def around(inner: PgType) -> Iterator[PgType]:
    """The types that are made of one."""
    of = f"of_{inner.name}"
    typmod = NUMERIC_12_2 if inner.name == "numeric" else -1
    domain = PgType(80_000, "public", of, "d", base=inner, base_typmod=typmod)
    ranges = PgType(80_001, "public", of, "r", element=domain)
    yield domain
    yield PgType(80_002, "public", of, "d", base=domain)
    yield PgType(80_003, "public", of, element=domain, is_array=True)
    yield PgType(80_004, "public", of, "c", fields=(("v", domain, -1),))
    yield ranges
    yield PgType(80_005, "public", of, "m", element=ranges)


TYPES = [*NAMED, *(made for inner in NAMED for made in around(inner))]

TEXTS = [
    b"", b"0", b"-1", *(str(2**bits + more).encode() for bits in (15, 16, 31, 32, 63, 64) for more in (-1, 0)),
    str(-(2**63)).encode(), b"9" * 20, b"9" * 39, b"1." + b"9" * 40, b"1e400", b"-1e-400",
    b"NaN", b"Infinity", b"-Infinity", b"infinity", b"-infinity", b"0044-03-15 BC", b"4714-11-24 BC", b"5874897-12-31",
    b"0044-03-15 12:00:00 BC", b"294276-12-31 23:59:59.999999", b"10000-01-01 00:00:00+00",
    b"0044-03-15 12:00:00+00 BC", b"24:00:00", b"24:00:00+15:59:59", b"-178000000 years", b"2562047788:00:54.775807",
    b"{}", b"{{1,2},{3,4}}", b"[0:1]={1,2}", b"{NULL}", b"()", b"(1,2,3)", b"empty", b"(,)", b"[a,b]", b"{(,)}",
    b'{"\xe9"}', b"(\xe9)", b"[\xe9,)", b"{[\xe9,)}", b'"\xe9"=>"\xff"', b"'\xe9'", b"\xe9", b"\xff\xff\xff\xff",
    b"\xa3\x41", b"\\351", b"t", b"\\x", b"00" * 16, b"ffffffff-ffff-ffff-ffff-ffffffffffff", b"255.255.255.255/0",
    b"ff:ff:ff:ff:ff:ff:ff:ff", b"FFFFFFFF/FFFFFFFF", b"[3e38,-3e38]", b"[NaN]", b"{infinity}", b"[infinity,)",
    b"{[infinity,)}", b"(infinity)", b"(24:00:00)", b"{24:00:00}", b"{NaN}", b"(NaN)", b"{9223372036854775808}",
]  # fmt: skip
"""Texts at the bounds of some type, and texts in no encoding. Each goes to each type: most answer with DecodeError."""


def part(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def binaries() -> Iterator[bytes]:
    """Binary forms at the bounds of some type, and the same inside arrays, composites, ranges and multiranges."""
    inner = [TEXT for TEXT in TEXTS if len(TEXT) < 24]
    for size in (*range(9), 12, 16, 20):
        inner += [fill * size for fill in (b"\0", b"\x01", b"\x7f", b"\x80", b"\xff")]
    for form in (">h", ">i", ">q"):
        size = struct.calcsize(form) * 8
        inner += [struct.pack(form, n) for n in (2 ** (size - 1) - 1, -(2 ** (size - 1)), 1, -1)]
    inner += [struct.pack(">q", 86_400_000_000), struct.pack(">qi", 86_400_000_000, 0)]
    inner += [struct.pack(">qii", 2**63 - 1, 2**31 - 1, 2**31 - 1), struct.pack(">qii", -(2**63), -(2**31), -(2**31))]
    inner += [struct.pack(">hhHH", 0, 0, sign, 0) for sign in (0, 0xC000, 0xD000, 0xF000)]
    inner += [struct.pack(">hhHHh", 1, 30, 0, 0, 9999), struct.pack(">hhHHh", 1, -2, 0, 8, 1)]
    inner += [b"\1" + text for text in TEXTS]
    inner += [struct.pack(">i", 1) + part(b"k") + part(b"\xe9"), struct.pack(">i", 1) + b"\xe9\0\0\0"]
    for value in inner:
        yield value
        ranges = b"\2" + part(value) + part(value)
        yield struct.pack(">iiIii", 1, 0, 25, 1, 1) + part(value)
        yield struct.pack(">iI", 1, 80_000) + part(value)
        yield ranges
        yield struct.pack(">i", 1) + part(ranges)
    yield struct.pack(">iiIiiii", 2, 0, 23, 1, 1, 1, 1) + part(b"\0\0\0\1")
    yield struct.pack(">iiIii", 1, 0, 23, 1, 0) + part(b"\0\0\0\1")
    yield struct.pack(">iI", 1, 99) + part(b"")


BINARIES = [*binaries()]


def lost(codec: Codec) -> list[tuple[str, bytes]]:
    """The mode and the value of what the codec says that Avro cannot hold."""
    found = []
    for mode, values in (("text", TEXTS), ("binary", BINARIES)):
        for value in values:
            try:
                if transcode(codec, mode, value) is UNREPRESENTABLE:
                    found.append((mode, value))
            except (DecodeError, BinaryFormatUnsupported):
                pass
    return found


def codec_of(pgtype: PgType, options: TypeOptions) -> Codec:
    return codec_for(pgtype, NUMERIC_12_2 if pgtype.name == "numeric" else -1, options)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_codec_that_loses_a_value_is_fallible_and_readers_know_it_from_the_schema(options: TypeOptions) -> None:
    for pgtype in TYPES:
        codec = codec_of(pgtype, options)
        assert not isinstance(codec.schema, list)
        assert codec.is_fallible or not lost(codec), f"{pgtype.kind} {pgtype.name} loses {lost(codec)[:1]}"
        assert not codec.is_fallible or kind_of(codec.schema) in FALLIBLE_KINDS, f"{pgtype.kind} {pgtype.name}"


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_values_of_this_file_find_each_type_by_name_that_loses_values(options: TypeOptions) -> None:
    for pgtype in NAMED:
        codec = codec_of(pgtype, options)
        never = pgtype.name == "vector" or (pgtype.name == "hstore" and not (options.any_encoding or options.to_text))
        assert bool(lost(codec)) == (codec.is_fallible and not never), f"{pgtype.kind} {pgtype.name}"
