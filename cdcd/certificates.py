"""Says from when until when the certificates in files are valid: an error of TLS names the file that has expired.

Before: `sink.kafka.tls_files` and `source.session` know which files the settings name.
After: messages and hints have the dates. A file that holds no certificate that can be read has none.
Source: RFC 5280, 4.1 (Certificate, Validity); RFC 7468 (PEM); X.690 (DER).
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

FILE_BYTES_MAX: Final = 4 << 20
"""The CAs of a system have a quarter of a megabyte."""

_PEM: Final = re.compile(
    rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END (?:X509 |TRUSTED )?CERTIFICATE-----"
)
_SEQUENCE, _UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x30, 0x17, 0x18, 0xA0


@dataclass(frozen=True)
class Validity:
    """From when until when a certificate is valid, UTC."""

    begin: datetime
    end: datetime

    def fault(self, now: datetime) -> str:
        """What is wrong with it at `now`, as the rest of a sentence; empty if nothing is."""
        if now > self.end:
            return f"expired on {_date(self.end)}"
        return f"is not valid before {_date(self.begin)}" if now < self.begin else ""

    def __str__(self) -> str:
        return f"valid from {_date(self.begin)} to {_date(self.end)}"


def of_file(path: str, *, is_ca: bool) -> Validity | None:
    """When a file is of use; None if nobody can tell.

    A client sends the first certificate of its file. Of a file with CAs (`is_ca`) each may be the one that is needed,
    so it is of use as long as the last of them is.
    """
    try:
        file = Path(path)
        if not file.is_file() or file.stat().st_size > FILE_BYTES_MAX:
            return None
        found = [validity(b64decode(text)) for text in _PEM.findall(file.read_bytes())]
    except (OSError, ValueError):  # also one that is being written
        return None
    if not found:
        return None
    return max(found, key=lambda each: each.end) if is_ca else found[0]


def faults(validities: Mapping[str, Validity], now: datetime) -> str:
    """What is wrong with certificates at `now`, by what names each; empty if nothing is."""
    return " and ".join(f"{name} {fault}" for name, each in validities.items() if (fault := each.fault(now)))


def validity(certificate: bytes) -> Validity:
    """Read a certificate in DER. Raises ValueError if it is none."""
    try:
        at, _ = _inside(certificate, 0, _SEQUENCE)
        at, _ = _inside(certificate, at, _SEQUENCE)  # tbsCertificate
        if certificate[at] == _VERSION:
            _, at = _inside(certificate, at)
        for _ in ("serialNumber", "signature", "issuer"):
            _, at = _inside(certificate, at)
        at, _ = _inside(certificate, at, _SEQUENCE)
        begin, at = _time(certificate, at)
        return Validity(begin, _time(certificate, at)[0])
    except IndexError:
        raise ValueError("the certificate ends too early") from None


def _inside(der: bytes, at: int, tag: int | None = None) -> tuple[int, int]:
    """Where the content of the element at `at` begins, and where it ends. Raises ValueError for another tag."""
    if tag is not None and der[at] != tag:
        raise ValueError(f"tag {der[at]:#x} at offset {at}, expected {tag:#x}")
    size, at = der[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        if not 0 < count <= 4:
            raise ValueError(f"a length of {count} bytes at offset {at}")
        size, at = int.from_bytes(der[at : at + count]), at + count
    return at, at + size


def _time(der: bytes, at: int) -> tuple[datetime, int]:
    """The time at `at`, and where it ends."""
    tag = der[at]
    begin, end = _inside(der, at)
    text = der[begin:end].decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text >= "50" else "20") + text  # RFC 5280, 4.1.2.5.1
    elif tag != _GENERALIZED_TIME:
        raise ValueError(f"tag {tag:#x} at offset {at}, expected a time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC), end


def _date(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
