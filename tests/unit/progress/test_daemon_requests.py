"""A request reaches every slot of the database, and is for one of them."""

from __future__ import annotations

from cdcd.progress.daemon_requests import SNAPSHOT, UNPARK, is_for, request, table_of


def test_a_request_is_for_the_slot_that_it_names() -> None:
    content = request(SNAPSHOT, "public", "t", "a").encode()
    assert table_of(SNAPSHOT, content) == ("public", "t")
    assert is_for("a", content)
    assert not is_for("b", content)


def test_a_request_that_names_no_slot_is_for_all() -> None:
    assert is_for("a", request(SNAPSHOT, "public", "t").encode())
    assert is_for("a", b"no JSON")
    assert is_for("a", b"[]")


def test_a_request_names_any_table() -> None:
    for table in (("public", "t"), ("a.b", 'c"d'), ("ñ", " ")):
        assert table_of(UNPARK, request(UNPARK, *table).encode()) == table
    for other in (b"", b"{}", b'{"unpark": 5}', b'{"snapshot": {}}', b"\xff"):
        assert table_of(UNPARK, other) is None
