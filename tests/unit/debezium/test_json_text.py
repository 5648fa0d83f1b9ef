from __future__ import annotations

import base64
import json
import math
import random
import struct

import pytest
from librt.strings import BytesWriter

from cdcd.debezium import json_text


def written(write: object, *arguments: object) -> bytes:
    out = BytesWriter()
    write(out, *arguments)  # type: ignore[operator]
    return out.getvalue()


def test_every_character_of_a_string_is_read_back() -> None:
    characters = [chr(n) for n in range(0x110000) if not 0xD800 <= n < 0xE000 and (n < 0x3000 or n % 97 == 0)]
    for text in ("".join(characters), *characters[:300]):
        data = f"--{text}--".encode()
        assert json.loads(written(json_text.write_string, data, 2, len(data) - 4)) == text


@pytest.mark.parametrize("size", range(20))
def test_an_escape_is_found_at_every_place(size: int) -> None:
    for at in range(size):
        for special in '"\\\n\x1f\x7féÿ€😀':
            text = "a" * at + special + "b" * (size - at - 1)
            assert json.loads(json_text.quoted(text)) == text
            data = text.encode()
            assert json.loads(written(json_text.write_string, data, 0, len(data))) == text


def test_the_escapes_are_those_of_jackson() -> None:
    text = 'q"b\\s/\b\t\n\f\r\x00\x1f\x7fé\u2028😀'
    shown = r'"q\"b\\s/\b\t\n\f\r\u0000\u001F' + "\x7fé\u2028" + r'\uD83D\uDE00"'
    assert json_text.quoted(text) == shown.encode()


def test_integers_are_those_of_python() -> None:
    numbers = {n + d for e in range(64) for n in (2**e, 10 ** min(e, 18)) for d in (-1, 0, 1)}
    for n in sorted({sign * each for each in numbers for sign in (1, -1)} | {-(2**63)}):
        if -(2**63) <= n < 2**63:
            assert written(json_text.write_int, n) == str(n).encode()


def test_base64_and_hex_are_those_of_python() -> None:
    for size in [*range(12), 190, 191, 192, 193, 1000, 786_432, 786_433, 786_623, 786_624]:
        data = random.Random(size).randbytes(size + 2)
        part = data[1:-1]
        assert written(json_text.write_base64, data, 1, size) == b'"' + base64.b64encode(part) + b'"'
        assert written(json_text.write_hex, data, 1, size) == f'"{part.hex()}"'.encode()


JAVA_DOUBLES = {
    0.0: "0.0", 1.0: "1.0", 100.0: "100.0", 0.001: "0.001", 0.00099: "9.9E-4", 9999999.0: "9999999.0",
    1e7: "1.0E7", 1.5e10: "1.5E10", 1e-5: "1.0E-5", 2e23: "2.0E23", 5e-324: "4.9E-324", 1e21: "1.0E21",
    1.7976931348623157e308: "1.7976931348623157E308", 123456789.123456789: "1.2345678912345679E8",
    9007199254740993.0: "9.007199254740992E15", math.inf: '"Infinity"', -math.inf: '"-Infinity"',
}  # fmt: skip
JAVA_FLOATS = {
    0.1: "0.1", 1e10: "1.0E10", 1e-45: "1.4E-45", 3.4028235e38: "3.4028235E38", 16777216.0: "1.6777216E7",
    0.002: "0.002", 1e7: "1.0E7", -0.0: "-0.0", 123456.789: "123456.79", 8.41e21: "8.41E21", -1.5: "-1.5",
}  # fmt: skip


def test_doubles_and_floats_are_those_of_java() -> None:
    assert {each: written(json_text.write_double, each).decode() for each in JAVA_DOUBLES} == JAVA_DOUBLES
    assert written(json_text.write_double, math.nan) == written(json_text.write_float, math.nan) == b'"NaN"'
    assert {each: written(json_text.write_float, each).decode() for each in JAVA_FLOATS} == JAVA_FLOATS
    assert written(json_text.write_double, -0.0) == b"-0.0"


def test_doubles_of_few_decimals_are_those_of_python() -> None:
    chosen = random.Random(2)
    numbers = [chosen.randrange(10**13) / 10 ** chosen.randrange(6, 9) for _ in range(5000)]
    for number in (0.001, 0.0015, 0.000001 + 0.001, 1 / 3, 9999999.999999, *numbers):
        for value in (number, -number, math.nextafter(number, 1e9)):
            if 1e-3 <= abs(value) < 1e7:
                assert written(json_text.write_double, value) == repr(value).encode()


def test_every_float_is_read_back() -> None:
    chosen = random.Random(1)
    for _ in range(3000):
        [double] = struct.unpack(">d", chosen.randbytes(8))
        [single] = struct.unpack(">f", chosen.randbytes(4))
        if math.isfinite(double):
            assert float(written(json_text.write_double, double)) == double
        if math.isfinite(single):
            shown = written(json_text.write_float, single)
            assert struct.pack(">f", float(shown)) == struct.pack(">f", single)
            assert len(shown.strip(b"-").partition(b"E")[0]) <= 12
