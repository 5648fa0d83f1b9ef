from __future__ import annotations

import pytest

from cdcd.errors import RequestRejected
from cdcd.source.start_options import start_options, streaming_mode


@pytest.mark.parametrize(
    ("wanted", "version", "mode"),
    [
        ("auto", 150_010, "on"),
        ("auto", 160_000, "parallel"),
        ("on", 180_001, "on"),
        ("parallel", 160_000, "parallel"),
        ("off", 180_001, "off"),
    ],
)
def test_auto_is_the_best_that_the_server_has(wanted: str, version: int, mode: str) -> None:
    assert streaming_mode(wanted, version) == mode


@pytest.mark.parametrize(
    ("streaming", "two_phase", "protocol"),
    [("off", False, "1"), ("on", False, "2"), ("off", True, "3"), ("on", True, "3"), ("parallel", True, "4")],
)
def test_the_protocol_is_the_lowest_that_has_what_is_asked_for(streaming: str, two_phase: bool, protocol: str) -> None:
    options = start_options("p", 180_000, binary=True, messages=True, streaming=streaming, two_phase=two_phase)
    assert options["proto_version"] == protocol
    assert options.get("streaming", "off") == streaming
    assert options.get("two_phase") == ("on" if two_phase else None)


def test_what_is_not_asked_for_is_not_named() -> None:
    assert start_options('One, "two"', 140_000, binary=False, messages=True) == {
        "proto_version": "1",
        "publication_names": '"One, ""two"""',
        "binary": "false",
        "messages": "true",
    }


def test_an_old_server_is_refused_with_the_setting_to_change() -> None:
    with pytest.raises(RequestRejected, match=r"source\.streaming = parallel needs PostgreSQL 16, this is 15"):
        streaming_mode("parallel", 150_000)
    with pytest.raises(RequestRejected, match=r"source\.two_phase needs PostgreSQL 15, this is 14"):
        start_options("p", 140_000, binary=True, messages=True, two_phase=True)
    with pytest.raises(RequestRejected, match=r"source\.origin = none needs PostgreSQL 16, this is 15"):
        start_options("p", 150_000, binary=True, messages=True, origin="none")
