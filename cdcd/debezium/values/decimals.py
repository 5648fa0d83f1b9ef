"""numeric and money, by `decimal.handling.mode`.

Before: `lookup` chooses the value by the column's type and typmod.
After: `field_writer` calls it once a value.
Source: Debezium's `JdbcValueConverters.toDecimal` and `VariableScaleDecimal`; Java's BigDecimal and BigInteger.

NaN and the infinities are null in the mode "precise": Connect's Decimal cannot hold them.
"""

from __future__ import annotations

from decimal import Decimal as DecimalNumber
from typing import Final

from librt.strings import BytesWriter, read_i64_be
from mypy_extensions import i64

from cdcd.avro.codecs.base import Codec, Transcoder
from cdcd.avro.codecs.errors import wrong_size, wrong_text
from cdcd.avro.codecs.numeric import Decimal as DecimalCodec
from cdcd.avro.codecs.numeric import numeric_text, typmod_precision, typmod_scale
from cdcd.debezium.connect_schema import BYTES, DOUBLE, INT32, STRING, Schema
from cdcd.debezium.json_text import quoted, write_base64, write_double, write_int
from cdcd.debezium.modes import DecimalMode
from cdcd.debezium.values.base import Ascii, Value

_SPECIAL: Final = (b"NaN", b"Infinity", b"-Infinity")
_SPECIAL_NAMES: Final = {
    b"NaN": b'"NAN"', b"Infinity": b'"POSITIVE_INFINITY"', b"-Infinity": b'"NEGATIVE_INFINITY"'
}  # fmt: skip
_MINUS: Final = 45
_MONEY_SCALE: Final = 2
_DIGITS_AT_ONCE: Final = 4_000
"""Python's int takes 4,300 digits."""
_NOT_NUMBERS: Final = ("NaN and infinity", 'decimal_handling_mode = "string"')
_DIGITS: Final = ("digits behind the 15th", 'decimal_handling_mode = "string"')
"""What the modes lose."""

VARIABLE: Final = Schema(
    "struct",
    "io.debezium.data.VariableScaleDecimal",
    1,
    "Variable scaled decimal",
    fields=(("scale", INT32), ("value", BYTES)),
)


class Precise(Value):
    """numeric(p,s) -> Decimal: the unscaled integer, big-endian, in as few bytes as hold it."""

    def __init__(self, precision: int, scale: int) -> None:
        parameters = (("scale", str(scale)), ("connect.decimal.precision", str(precision)))
        super().__init__(Schema("bytes", "org.apache.kafka.connect.data.Decimal", 1, parameters=parameters), b'"AA=="')
        self.codec: Codec = DecimalCodec(precision, scale)
        self.scratch = BytesWriter()

    def avro(self) -> Transcoder:
        return self.codec

    def lost(self) -> tuple[str, str]:
        return _NOT_NUMBERS

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        self.scratch.truncate(0)
        if not self.codec.text(data, at, size, self.scratch):
            return False
        self._write(out)
        return True

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        self.scratch.truncate(0)
        if not self.codec.binary(data, at, size, self.scratch):
            return False
        self._write(out)
        return True

    def _write(self, out: BytesWriter) -> None:
        unscaled = self.scratch.getvalue()  # behind its length
        start: i64 = 0
        while unscaled[start] >= 128:
            start += 1
        write_base64(out, unscaled, start + 1, len(unscaled) - start - 1)


class NumericByText(Value):
    """A numeric that is made from PostgreSQL's text."""

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        raw = numeric_text(data, at, size).encode()
        return self.text(raw, 0, len(raw), out)


class Variable(NumericByText):
    """numeric without precision -> VariableScaleDecimal."""

    def __init__(self) -> None:
        super().__init__(VARIABLE, b'{"scale":0,"value":"AA=="}')

    def lost(self) -> tuple[str, str]:
        return _NOT_NUMBERS

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        raw = data[at : at + size]
        if raw in _SPECIAL:
            return False
        check_number(raw)
        whole, _, fraction = raw.removeprefix(b"-").partition(b".")
        fraction = fraction.rstrip(b"0")
        unscaled = parsed(whole + fraction)
        out.write(b'{"scale":')
        write_int(out, len(fraction))
        out.write(b',"value":')
        write_unscaled(out, -unscaled if raw[0] == _MINUS else unscaled)
        out.write(b"}")
        return True


class Plain(NumericByText):
    """numeric -> string."""

    def __init__(self, fallback: bytes, placeholder: str) -> None:
        super().__init__(STRING, fallback, quoted(placeholder))
        self.has_near = True

    def avro(self) -> Transcoder:
        return Ascii(self)

    def is_near(self, text: str) -> bool:
        return text.encode() in _SPECIAL

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        raw = data[at : at + size]
        if raw in _SPECIAL:
            out.write(_SPECIAL_NAMES[raw])
        else:
            check_number(raw)
            out.write(b'"' + raw + b'"')
        return True


class Double(NumericByText):
    """numeric -> double."""

    def __init__(self) -> None:
        super().__init__(DOUBLE, b"0.0")
        self.has_near = True

    def lost(self) -> tuple[str, str]:
        return _DIGITS

    def is_near(self, text: str) -> bool:
        return text.encode() not in _SPECIAL and _is_rounded(text)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        raw = data[at : at + size]
        if raw not in _SPECIAL:
            check_number(raw)
        write_double(out, float(raw))
        return True


class Money(Value):
    """money, whose binary form is a count of cents; its text depends on `lc_monetary`."""

    def __init__(self, mode: DecimalMode) -> None:
        self.mode = mode
        schema, fallback = DOUBLE, b"0.0"
        if mode == "precise":
            parameters = (("scale", str(_MONEY_SCALE)),)
            schema = Schema("bytes", "org.apache.kafka.connect.data.Decimal", 1, parameters=parameters)
            fallback = b'"AA=="'
        elif mode == "string":
            schema, fallback = STRING, b'"0.00"'
        super().__init__(schema, fallback)
        self.has_near = mode == "double"

    def lost(self) -> tuple[str, str]:
        return _DIGITS if self.mode == "double" else ("", "")

    def is_near(self, text: str) -> bool:
        digits = "".join(char for char in text if "0" <= char <= "9")
        return self.mode == "double" and _is_rounded(f"{digits[:-_MONEY_SCALE]}.{digits[-_MONEY_SCALE:]}")

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        raw = data[at : at + size]
        digits = bytes(byte for byte in raw if 48 <= byte <= 57)
        if len(digits) < 3:
            raise wrong_text("money", "an amount with two decimals", size)
        self._write(-int(digits) if b"-" in raw or b"(" in raw else int(digits), out)
        return True

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 8:
            raise wrong_size("money", 8, size)
        self._write(int(read_i64_be(data, at)), out)
        return True

    def _write(self, cents: int, out: BytesWriter) -> None:
        if self.mode == "precise":
            write_unscaled(out, cents)
            return
        plain = f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02}"
        if self.mode == "double":
            write_double(out, float(plain))
        else:
            out.write(b'"' + plain.encode() + b'"')


def _is_rounded(text: str) -> bool:
    """Whether the double that is nearest to this number is another one, by its shortest digits."""
    return DecimalNumber(text) != DecimalNumber(repr(float(text)))


def check_number(raw: bytes) -> None:
    """Raise DecodeError (the server's fault) unless these are digits, with or without a sign `-` and a point."""
    if not raw.removeprefix(b"-").replace(b".", b"", 1).isdigit():
        raise wrong_text("numeric", "a decimal number", len(raw))


def parsed(digits: bytes) -> int:
    """The integer of these digits, of which a numeric has up to 147,455."""
    if len(digits) <= _DIGITS_AT_ONCE:
        return int(digits)
    half = len(digits) // 2
    scale: int = 10**half
    return parsed(digits[:-half]) * scale + parsed(digits[-half:])


def write_unscaled(out: BytesWriter, n: int) -> None:
    """Append base64 of `n` in two's complement, big-endian, in as few bytes as hold it."""
    raw = n.to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, "big", signed=True)
    write_base64(out, raw, 0, len(raw))


def decimal_value(mode: DecimalMode, typmod: int, placeholder: str) -> Value:
    """The value of numeric with this typmod; -1: without precision and scale."""
    if mode == "double":
        return Double()
    scale = typmod_scale(typmod) if typmod >= 0 else 0
    if mode == "string":
        return Plain(quoted(f"{0:.{max(scale, 0)}f}"), placeholder)
    return Variable() if typmod < 0 else Precise(typmod_precision(typmod), scale)
