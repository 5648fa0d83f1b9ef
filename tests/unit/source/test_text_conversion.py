from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from cdcd.source.session import Session, StatementRejected
from cdcd.source.text_conversion import TextConversion

CODECS = {"WIN1252": "cp1252", "EUC_JP": "euc_jp", "LATIN1": "latin1"}


class Server:
    """Plays a session: converts as Python does, one character a question."""

    def __init__(self, sqlstate: str = "22P05") -> None:
        self.asked: list[bytes] = []
        self._sqlstate = sqlstate

    def rows(self, query: str, values: Sequence[Any]) -> list[tuple[str]]:
        raw, encoding = values
        self.asked.append(raw)
        try:
            return [(raw.decode(CODECS[encoding]),)]
        except UnicodeDecodeError:
            raise StatementRejected("no equivalent", self._sqlstate) from None


def conversion(server: Server, encoding: str) -> TextConversion:
    return TextConversion(cast(Session, server), encoding)


def test_each_character_is_asked_for_once() -> None:
    server = Server()
    to_text = conversion(server, "WIN1252").text
    assert [to_text("a€bé€".encode("cp1252")), to_text("é".encode("cp1252"))] == ["a€bé€", "é"]
    assert server.asked == [b"\x80", b"\xe9"]


@pytest.mark.parametrize("sqlstate", ["22P05", "22021"])
def test_a_byte_without_an_equivalent_is_a_surrogate_and_the_rest_is_text(sqlstate: str) -> None:
    assert conversion(Server(sqlstate), "WIN1252").text(b"caf\xe9 \x81") == "café \udc81"


def test_bytes_that_look_like_utf8_are_not_taken_for_it() -> None:
    assert conversion(Server(), "LATIN1").text(b"\xc3\xa9") == "Ã©"


def test_characters_of_several_bytes_are_converted_whole() -> None:
    server = Server()
    assert conversion(server, "EUC_JP").text("日本\nｱ".encode("euc_jp") + b"\xff") == "日本\nｱ\udcff"
    assert server.asked == ["日".encode("euc_jp"), "本".encode("euc_jp"), "ｱ".encode("euc_jp"), b"\xff"]


def test_another_refusal_is_an_error() -> None:
    with pytest.raises(StatementRejected):
        conversion(Server("42883"), "WIN1252").text(b"\x81")
