from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from cdcd.avro.single_object import fingerprint, header
from cdcd.errors import DecodeError
from cdcd.verify.event_rows import EventReader, RowChange
from cdcd.verify.row_store import ABSENT, value_token

ROW = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": ["null", "int"], "pg_type": "int4", "pg_missing_value": "7"},
        {"name": "B_b", "type": ["null", "string"], "pg_type": "text", "pg_name": "B b"},
        {"name": "at", "type": ["null", {"type": "int", "logicalType": "date"}], "pg_type": "date"},
    ],
}
LOST = {
    "type": "record",
    "name": "Lost",
    "fields": [{"name": name, "type": "string"} for name in ("image", "column", "text")],
}
SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [{"name": name, "type": "long"} for name in ("commit_lsn", "seq", "lsn")],
}
EVENT = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "op", "type": "string"},
        {"name": "source", "type": SOURCE},
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Row"]},
        {"name": "unchanged", "type": {"type": "array", "items": "string"}},
        {"name": "unrepresentable", "type": {"type": "array", "items": LOST}},
    ],
}
TEXT = json.dumps(EVENT)
COLUMNS = ["id", "B b", "at", "added later"]


def event(op: str, before: Any = None, after: Any = None, **more: Any) -> bytes:
    content = {
        "op": op, "source": {"commit_lsn": 100, "seq": 3, "lsn": 90}, "before": before, "after": after,
        "unchanged": [], "unrepresentable": [], **more,
    }  # fmt: skip
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(EVENT), content)
    return header(fingerprint(TEXT)) + out.getvalue()


def row(number: int) -> dict[str, Any]:
    return {"id": number, "B_b": "b", "at": 0}


def tokens(number: int) -> list[str]:
    return [value_token(text) for text in (str(number), "b", "1970-01-01")] + [ABSENT]


def change(data: bytes, *, has_key: bool = True, before_lsn: int = 101) -> RowChange | None:
    found = EventReader(lambda _: TEXT).change(data, before_lsn, COLUMNS, (0,) if has_key else ())
    if found is None:
        return None
    assert found[0] == (100, 3)
    return found[1]


def test_an_event_that_was_committed_at_the_lsn_or_later_is_left_out() -> None:
    assert change(event("c", after=row(1)), before_lsn=100) is None
    assert change(event("c", after=row(1)), before_lsn=101) == RowChange("c", 90, None, [*tokens(1)])


def test_an_update_removes_the_old_row_only_where_no_key_names_it() -> None:
    update = event("u", before=row(1), after=row(2))
    assert change(update) == RowChange("u", 90, None, [*tokens(2)])
    assert change(update, has_key=False) == RowChange("u", 90, tokens(1), [*tokens(2)])
    assert change(event("d", before=row(1))) == RowChange("d", 90, tokens(1), None)


def test_an_unchanged_value_is_not_null_and_an_unrepresentable_one_is_its_text() -> None:
    lost = [{"image": "after", "column": "at", "text": "infinity"}]
    data = event("u", after={**row(1), "B_b": None, "at": None}, unchanged=["B_b"], unrepresentable=lost)
    found = change(data)
    assert found is not None
    assert found.new == [value_token("1"), None, value_token("infinity"), ABSENT]


def test_a_record_that_is_not_an_event_is_named() -> None:
    with pytest.raises(DecodeError, match="A record of 5 bytes is not an event of cdcd"):
        change(b"hello")


def test_an_event_tells_which_columns_it_knows_and_what_older_rows_hold_in_them() -> None:
    found = change(event("c", after=row(1)))
    assert found is not None
    assert found.known == {0: value_token("7"), 1: value_token(None), 2: value_token(None)}
