"""Converts text from the encoding of a database to UTF-8, as the server does it, but for one character after the other.

Before: the server could not convert a value, and has ended a stream or a snapshot. So it sends text as it is stored.
After: `avro.codecs` encode the text; `pgoutput` decodes the names.
Source: PostgreSQL, "Character Set Support"; wchar.c (how long a character is).

A byte that belongs to no character of UTF-8 becomes a surrogate, as Python's "surrogateescape" has it. The server
converts each character once.
"""

from __future__ import annotations

import re
from typing import Final

from cdcd.source.server_errors import UNCONVERTIBLE
from cdcd.source.session import Session, StatementRejected

_EUC: Final = rb"[\x80-\xff]."
_CHARACTERS: Final = {
    "EUC_JP": rb"\x8f..|" + _EUC,
    "EUC_JIS_2004": rb"\x8f..|" + _EUC,
    "EUC_CN": _EUC,
    "EUC_KR": _EUC,
    "EUC_TW": rb"\x8e...|\x8f..|" + _EUC,
}
"""The characters of several bytes, by encoding. All other encodings of a server have one byte a character, but
MULE_INTERNAL, which PostgreSQL does not convert to UTF-8 at all: it refuses the login."""


class TextConversion:
    """Converts the text of one database."""

    def __init__(self, session: Session, encoding: str) -> None:
        """`session` asks the server. `encoding` is the database's, by PostgreSQL's name."""
        self._session = session
        self._encoding = encoding
        several = _CHARACTERS.get(encoding)
        alternatives = [rb"[\x00-\x7f]+", *([several] if several else []), rb"[\x80-\xff]"]
        self._pieces = re.compile(b"|".join(alternatives), re.DOTALL)
        self._known: dict[bytes, str] = {}

    def text(self, raw: bytes) -> str:
        """The text in UTF-8, with surrogates for bytes that have no equivalent. Raises as the session does."""
        if raw.isascii():
            return raw.decode("ascii")
        return "".join(self._piece(piece) for piece in self._pieces.findall(raw))

    def characters(self, raw: bytes) -> list[bytes]:
        """The bytes, one character after the other."""
        pieces: list[bytes] = self._pieces.findall(raw)
        return [each for piece in pieces for each in (_single(piece) if piece.isascii() else [piece])]

    def _piece(self, piece: bytes) -> str:
        known = self._known.get(piece)
        if known is None:
            if piece.isascii():
                return piece.decode("ascii")
            known = self._known[piece] = self._asked(piece)
        return known

    def _asked(self, character: bytes) -> str:
        try:
            [(text,)] = self._session.rows("SELECT pg_catalog.convert_from(%s, %s)", [character, self._encoding])
        except StatementRejected as error:
            if error.sqlstate not in UNCONVERTIBLE:
                raise
            return character.decode("ascii", "surrogateescape")
        return str(text)


def _single(text: bytes) -> list[bytes]:
    return [text[at : at + 1] for at in range(len(text))]
