"""interval, by `interval.handling.mode`.

Before: `lookup` chooses the value by the column's type.
After: `field_writer` calls it once a value. `avro.codecs.interval` reads both forms.
Source: Debezium's `MicroDuration.durationMicros` and `Interval.toIsoString`; pgjdbc's PGInterval.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.avro.codecs.base import Transcoder
from cdcd.avro.codecs.interval import Interval as IntervalCodec
from cdcd.debezium.connect_schema import INT64
from cdcd.debezium.json_text import quoted
from cdcd.debezium.modes import IntervalMode
from cdcd.debezium.values.base import Ascii, Count, Value, named

_DAYS_PER_MONTH: Final = 365.25 / 12.0
_INT8_MAX: Final = 9223372036854775807


class Interval(Value):
    """interval -> microseconds, of months of 30.4375 days; or ISO text with every part."""

    def __init__(self, mode: IntervalMode, placeholder: str) -> None:
        self.is_text = mode == "string"
        if self.is_text:
            super().__init__(named("io.debezium.time.Interval"), b'"P0Y0M0DT0H0M0S"', quoted(placeholder))
        else:
            super().__init__(named("io.debezium.time.MicroDuration", INT64), b"0")
        self.codec = IntervalCodec()
        self.has_near = not self.is_text

    def avro(self) -> Transcoder:
        return Ascii(self) if self.is_text else Count(self)

    def lost(self) -> tuple[str, str]:
        if self.is_text:
            return "infinity", ""
        return "infinity, and which part of it is months or days", 'interval_handling_mode = "string"'

    def is_near(self, text: str) -> bool:
        if self.is_text:
            return False
        parts, shown = BytesWriter(), BytesWriter()
        raw = text.encode()
        if not self.codec.text(raw, 0, len(raw), parts):
            return True
        months, at = _read_long(parts.getvalue(), 0)
        days, at = _read_long(parts.getvalue(), at)
        micros, _ = _read_long(parts.getvalue(), at)
        self._write(parts.getvalue(), shown)
        return months != 0 or days != 0 or int(shown.getvalue()) != micros

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        parts = BytesWriter()
        return self.codec.text(data, at, size, parts) and self._write(parts.getvalue(), out)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        parts = BytesWriter()
        return self.codec.binary(data, at, size, parts) and self._write(parts.getvalue(), out)

    def _write(self, parts: bytes, out: BytesWriter) -> bool:
        months, at = _read_long(parts, 0)
        days, at = _read_long(parts, at)
        micros, _ = _read_long(parts, at)
        years = -(-months // 12) if months < 0 else months // 12
        months -= 12 * years
        sign = -1 if micros < 0 else 1
        seconds, fraction = divmod(abs(micros), 1_000_000)
        hours, minutes, seconds = sign * (seconds // 3600), sign * (seconds // 60 % 60), seconds % 60
        if self.is_text:
            shown = f"{seconds}.{fraction:06}".rstrip("0") if fraction else str(seconds)
            minus = "-" if sign < 0 and (seconds or fraction) else ""
            out.write(f'"P{years}Y{months}M{days}DT{hours}H{minutes}M{minus}{shown}S"'.encode())
            return True
        in_days = (years * 12 + months) * _DAYS_PER_MONTH + days
        in_seconds = ((in_days * 24 + hours) * 60 + minutes) * 60 + sign * (seconds + fraction / 1e6)
        whole = int(in_seconds * 1e6)
        out.write(str(min(max(whole, -_INT8_MAX - 1), _INT8_MAX)).encode())
        return True


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    """Avro's long at `at`, and where it ends."""
    zigzag, shift = 0, 0
    while True:
        byte = data[at]
        zigzag |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return (zigzag >> 1) ^ -(zigzag & 1), at
