"""A request names what is asked for and a table. A row that does not is no request."""

from __future__ import annotations

import pytest

from cdcd.progress.daemon_requests import DISCARD, MESSAGES, SNAPSHOT, UNPARK, Request, read_request


def row(action: str = SNAPSHOT, schema: str = "public", table: str = "t", **more: str) -> dict[str, str]:
    return {"action": action, "table_schema": schema, "table_name": table, **more}


def test_a_request_names_any_table() -> None:
    for table in (("public", "t"), ("a.b", 'c"d'), ("ñ", " ")):
        for action in (SNAPSHOT, UNPARK, DISCARD):
            assert read_request(row(action, *table)) == Request(action, table)
    assert read_request(row(requested_by="ann")).requested_by == "ann"


@pytest.mark.parametrize(
    "other",
    [{}, {"action": SNAPSHOT}, row("drop"), row(""), row(schema=""), row(table=""), row(UNPARK, "", ""),
     {name: value for name, value in row().items() if name != "table_name"}],
)  # fmt: skip
def test_a_row_that_asks_for_nothing_known_is_no_request(other: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"^it"):
        read_request(other)


def test_parked_logical_messages_can_be_unparked_and_discarded_but_have_no_snapshot() -> None:
    for action in (UNPARK, DISCARD):
        request = read_request(row(action, *MESSAGES))
        assert request.table == MESSAGES
        assert not request.wants_snapshot
    with pytest.raises(ValueError, match="no table"):
        read_request(row(SNAPSHOT, *MESSAGES))
    assert [read_request(row(action)).wants_snapshot for action in (SNAPSHOT, UNPARK, DISCARD)] == [True, False, True]
