"""Any value becomes the same Avro bytes from PostgreSQL's binary form and from its text form.

Both forms are written here, from the documentation. fastavro reads the bytes back as the value. Any other bytes give a
value or DecodeError.
"""

from __future__ import annotations

import decimal
import struct
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.avro_values import UNREPRESENTABLE, both, read_back, transcode

from cdcd.avro.codecs.arrays import Array
from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.composite_changes import CompositeDefinition
from cdcd.avro.codecs.composites import Composite
from cdcd.avro.codecs.datetimes import Date, Time, Timestamp, TimeTz
from cdcd.avro.codecs.extensions import Hstore, Vector
from cdcd.avro.codecs.floats import Float4, Float8, float8_text
from cdcd.avro.codecs.integers import Bool, Int2, Int4, Int8, Unsigned4, Xid8
from cdcd.avro.codecs.interval import Interval
from cdcd.avro.codecs.network import Bit, Inet, Macaddr, PgLsn, Tsvector
from cdcd.avro.codecs.numeric import Decimal, NumericText
from cdcd.avro.codecs.ranges import Multirange, Range
from cdcd.avro.codecs.text import Bytea, Char, Ewkb, Text, TextFallback, Uuid, VersionedText
from cdcd.errors import BinaryFormatUnsupported, DecodeError

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

#: One or more codecs of every class.
CODECS: list[Codec] = [
    *(Int2(), Int4(), Int8(), Unsigned4("oid"), Xid8(), Bool(), Float4(), Float8(), NumericText()),
    *(Decimal(12, 2), Decimal(18, 18), Decimal(38, 10), Decimal(5, -2), Text(), VersionedText("jsonb"), Char(), Uuid()),
    *(
        Bytea(),
        Ewkb("geometry"),
        TextFallback("point"),
        Date(),
        Time(),
        TimeTz(),
        Timestamp(True),
        Timestamp(False),
        Interval(),
    ),
    *(Inet("inet"), Macaddr("macaddr", 6), Bit(), PgLsn(), Tsvector(), Hstore(), Vector()),
    *(Array(Int4(), "_int4", ","), Array(Text(), "_text", ","), Array(Decimal(12, 2), "_numeric", ",")),
    Composite(
        "pair", ["a", "b"], [Int4(), Array(Text(), "_text", ",")], CompositeDefinition("public.pair", [23, 1009])
    ),
    *(Range("daterange", Date(), "daterange"), Range("textrange", Text(), "public.textrange")),
    Multirange(Range("int4range", Int4(), "int4range"), "int4multirange"),
]


def part(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else struct.pack(">i", len(value)) + value


def numeric_binary(value: decimal.Decimal, display_scale: int) -> bytes:
    """As `numeric_send`: digits in base 10,000 on both sides of the point, without zeros at either end."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    whole, fraction = (
        (text + "0" * exponent, "") if exponent >= 0 else (text[:exponent], text[exponent:].zfill(-exponent))
    )
    whole = whole.zfill(-(-len(whole) // 4) * 4)
    fraction = fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    groups = [int((whole + fraction)[i : i + 4]) for i in range(0, len(whole + fraction), 4)]
    weight = len(whole) // 4 - 1
    while groups and groups[0] == 0:
        groups.pop(0)
        weight -= 1
    while groups and groups[-1] == 0:
        groups.pop()
    if not groups:
        sign = weight = 0
    return struct.pack(f">hhHH{len(groups)}h", len(groups), weight, 0x4000 * sign, display_scale, *groups)


def numeric_text(value: decimal.Decimal, scale: int) -> str:
    return f"{value or abs(value):.{scale}f}"


@given(st.integers(-(2**63), 2**63 - 1))
def test_int8(n: int) -> None:
    assert both(Int8(), struct.pack(">q", n), str(n)) == n


@given(st.integers(-(2**31), 2**31 - 1))
def test_int4(n: int) -> None:
    assert both(Int4(), struct.pack(">i", n), str(n)) == n


@given(st.floats(allow_nan=False))
def test_float8(value: float) -> None:
    text = float8_text(value)
    assert float(text) == value
    assert repr(both(Float8(), struct.pack(">d", value), text)) == repr(value)


@given(st.floats(allow_nan=False, width=32))
def test_float4(value: float) -> None:
    binary = struct.pack(">f", value)
    codec = Float4()
    text = codec.render(binary, 0, 4)
    assert struct.pack(">f", float(text)) == binary
    assert both(codec, binary, text) == value


@given(st.data(), st.integers(1, 38))
def test_numeric_with_typmod(data: st.DataObject, precision: int) -> None:
    scale = data.draw(st.integers(0, precision))
    unscaled = data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    value = decimal.Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))
    assert both(Decimal(precision, scale), numeric_binary(value, scale), numeric_text(value, scale)) == value


@given(st.integers(-(10**40), 10**40), st.integers(0, 40), st.integers(0, 40))
def test_a_decimal_is_exact_or_unrepresentable(unscaled: int, scale: int, precision: int) -> None:
    value = decimal.Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))
    codec = Decimal(max(precision, 1), precision // 2)
    got = both(codec, numeric_binary(value, scale), numeric_text(value, scale))
    fits = abs(unscaled) * 10**38 < 10 ** (max(precision, 1) - precision // 2 + scale + 38)
    exact = unscaled * 10 ** (precision // 2) % 10**scale == 0
    assert got == value if fits and exact else got is UNREPRESENTABLE


@given(st.integers(-(10**60), 10**60), st.integers(0, 50), st.integers(0, 6))
def test_numeric_without_typmod(unscaled: int, scale: int, zeros: int) -> None:
    value = decimal.Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))
    text = ("-" if unscaled < 0 else "") + str(abs(unscaled)).rjust(scale + 1, "0")
    text = (text[:-scale] + "." + text[-scale:] if scale else text + "." * (zeros > 0)) + "0" * zeros
    assert both(NumericText(), numeric_binary(value, scale + zeros), text) == text


@given(st.text())
def test_text_jsonb_and_bytea(text: str) -> None:
    value = text.encode()
    assert both(Text(), value, text) == text
    assert both(VersionedText("jsonb"), b"\1" + value, text) == text
    assert both(Bytea(), value, "\\x" + value.hex()) == value


@given(st.uuids())
def test_uuid(value: uuid.UUID) -> None:
    assert both(Uuid(), value.bytes, str(value)) == value


@given(st.dates())
def test_date(value: date) -> None:
    assert both(Date(), struct.pack(">i", (value - date(2000, 1, 1)).days), value.isoformat()) == value


@given(st.times())
def test_time(value: time) -> None:
    micros = (datetime.combine(date.min, value) - datetime.min) // timedelta(microseconds=1)  # noqa: DTZ901
    text = value.isoformat().rstrip("0") if value.microsecond else value.isoformat()
    assert both(Time(), struct.pack(">q", micros), text) == value


@given(st.datetimes(timezones=st.just(UTC)))
def test_timestamps(value: datetime) -> None:
    binary = struct.pack(">q", (value - EPOCH) // timedelta(microseconds=1))
    plain = value.replace(tzinfo=None)
    text = plain.isoformat(" ").rstrip("0") if value.microsecond else plain.isoformat(" ")
    assert both(Timestamp(with_zone=True), binary, text + "+00") == value
    assert both(Timestamp(with_zone=False), binary, text) == plain


int4s = st.integers(-(2**31), 2**31 - 1)


@given(int4s, int4s, st.integers(-(2**63), 2**63 - 1))
def test_interval(months: int, days: int, micros: int) -> None:
    binary = struct.pack(">qii", micros, days, months)
    text = Interval().render(binary, 0, 16)
    assert both(Interval(), binary, text) == {"months": months, "days": days, "micros": micros}


def quoted(value: str | None, special: str, double: bool) -> str:
    if value is None:
        return "NULL"
    escaped = value.replace("\\", "\\\\").replace('"', '""' if double else '\\"')
    return f'"{escaped}"' if not value or value.upper() == "NULL" or any(c in special for c in value) else value


texts = st.text(
    st.sampled_from('ab,"\\{}() NUL=>[]\t\né🐘') | st.characters(exclude_characters="\0", exclude_categories=["Cs"])
)


@given(st.lists(st.none() | texts, max_size=30))
def test_array_of_text(values: list[str | None]) -> None:
    header = struct.pack(">iiI", 1, None in values, 25) + struct.pack(">ii", len(values), 1)
    binary = header + b"".join(part(None if value is None else value.encode()) for value in values)
    text = "{" + ",".join(quoted(value, '"\\{}, \t\n\r\v\f', double=False) for value in values) + "}"
    assert both(Array(Text(), "_text", ","), binary if values else struct.pack(">iiI", 0, 0, 25), text) == values


@given(st.none() | texts, st.lists(int4s, max_size=5))
def test_composite(name: str | None, numbers: list[int]) -> None:
    array = (
        struct.pack(">iiI", 1, 0, 23) + struct.pack(">ii", len(numbers), 1)
        if numbers
        else struct.pack(">iiI", 0, 0, 23)
    )
    array += b"".join(part(struct.pack(">i", n)) for n in numbers)
    fields = (None if name is None else name.encode(), array)
    binary = struct.pack(">i", 2) + b"".join(
        struct.pack(">I", oid) + part(field) for oid, field in zip((25, 1007), fields, strict=True)
    )
    listed = "{" + ",".join(map(str, numbers)) + "}"
    special = '"\\(), \t\n\r\v\f'
    first = "" if name is None else name if name.upper() == "NULL" else quoted(name, special, double=True)
    codec = Composite(
        "pair", ["name", "ns"], [Text(), Array(Int4(), "_int4", ",")], CompositeDefinition("pair", [25, 1007])
    )
    text = f"({first},{quoted(listed, special, double=True)})"
    assert both(codec, binary, text) == {"name": name, "ns": numbers}


@given(st.dictionaries(texts, st.none() | texts, max_size=6))
def test_hstore(pairs: dict[str, str | None]) -> None:
    binary = struct.pack(">i", len(pairs))
    items = []
    for key, value in pairs.items():
        binary += part(key.encode()) + part(None if value is None else value.encode())
        shown = "NULL" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        items.append('"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"=>' + shown)
    assert both(Hstore(), binary, ", ".join(items)) == pairs


@given(texts, texts, st.booleans())
def test_range_of_text(lower: str, upper: str, inclusive: bool) -> None:
    special = '"\\()[], \t\n\r\v\f'
    binary = bytes([6 * inclusive]) + part(lower.encode()) + part(upper.encode())
    bounds = [b if b.upper() == "NULL" else quoted(b, special, double=True) for b in (lower, upper)]
    text = ("[" if inclusive else "(") + ",".join(bounds) + ("]" if inclusive else ")")
    expected = {"lower": lower, "upper": upper, "lower_inc": inclusive, "upper_inc": inclusive, "empty": False}
    codec = Range("textrange", Text(), "textrange")
    assert both(codec, binary, text) == expected
    multirange = Multirange(codec, "textmultirange")
    assert both(multirange, struct.pack(">i", 2) + part(binary) * 2, "{" + text + "," + text + "}") == [expected] * 2


def survives(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (DecodeError, BinaryFormatUnsupported):
        return None


any_text = st.text(st.sampled_from('0123456789-+:. ,eE{}[]()"\\infityNaBCyearmonsd=>x'), max_size=40).map(str.encode)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: f"{type(codec).__name__}")
@given(value=st.binary(max_size=40) | any_text)
def test_any_bytes_give_a_value_or_a_decode_error(codec: Codec, value: bytes) -> None:
    for mode in ("binary", "text"):
        avro = survives(lambda mode=mode: transcode(codec, mode, value))  # type: ignore[misc]
        assert avro is not UNREPRESENTABLE or codec.is_fallible
        if avro is not None and avro is not UNREPRESENTABLE and codec.schema != "string":
            survives_reading(codec, avro)
    rendered = survives(lambda: codec.render(value, 0, len(value)))
    assert rendered is None or isinstance(rendered, str)


def survives_reading(codec: Codec, avro: bytes) -> None:
    """See that fastavro reads all that was written, unless a string in it is no UTF-8, or a UUID no UUID."""
    try:
        read_back(codec, avro)
    except (UnicodeDecodeError, ValueError):
        assert "string" in str(codec.schema)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: f"{type(codec).__name__}")
@given(data=st.data())
def test_the_text_of_any_binary_value_that_is_taken_gives_the_same_avro(codec: Codec, data: st.DataObject) -> None:
    value = data.draw(st.binary(max_size=24))
    avro = survives(lambda: transcode(codec, "binary", value))
    text = survives(lambda: codec.render(value, 0, len(value)))
    if avro is None or text is None:
        return
    assert transcode(codec, "text", text.encode("utf-8", "surrogateescape")) == avro
