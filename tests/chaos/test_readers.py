"""What the readers of a run take apart, and what they refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from chaos.connect_events import TABLE_FIELD, Debezium, Rows, SharedTopics, json_decoder
from chaos.masks import files_below
from chaos.reading import Record

SHARED = SharedTopics("p", {"p.together"})
DECODE = json_decoder(with_schemas=False)
ODD = 'p."odd one"."Ünï %"'


def record(topic: str, key: dict[str, Any] | None, value: dict[str, Any] | None, **headers: bytes) -> Record:
    texts = [None if document is None else json.dumps(document).encode() for document in (key, value)]
    return Record((topic, 0), 0, texts[0], texts[1], headers)


def debeziums(schema: str, table: str) -> dict[str, Any]:
    source = {"schema": schema, "table": table, "lsn": 7, "txId": 1, "sequence": '["5","7"]'}
    return {"op": "c", "source": source, "before": None, "after": {"id": 1}}


def flat(schema: str, table: str) -> dict[str, Any]:
    return {"id": 1, "__op": "c", "__source_schema": schema, "__source_table": table} | {
        "__source_lsn": 7, "__source_txId": 1, "__source_sequence": '["5","7"]', "__deleted": "false",
    }  # fmt: skip


def test_an_event_of_a_shared_topic_has_the_table_that_it_and_its_key_name() -> None:
    reader = Debezium(DECODE, SHARED, has_headers=False)
    event = reader.event(record("p.together", {"b": "x", TABLE_FIELD: ODD}, debeziums("odd one", "Ünï %")))
    assert (event.table, event.key) == ("odd one.Ünï %", {"b": "x"})
    assert reader.event(record("p.together", None, debeziums("public", "notes"))).table == "public.notes"
    assert reader.event(record("p.public.items", {"id": 1}, debeziums("public", "items"))).table == ""


def test_a_flat_row_does_so_and_a_delete_without_a_value_by_its_key() -> None:
    rows = Rows(DECODE, SHARED, has_headers=False, has_tombstones=False, has_flags=True)
    event = rows.event(record("p.together", {"id": 1, TABLE_FIELD: "p.public.items"}, flat("public", "items")))
    assert (event.table, event.key, event.after) == ("public.items", {"id": 1}, {"id": "1"})
    rows = Rows(DECODE, SHARED, has_headers=True, has_tombstones=False, has_flags=False)
    headers = {"__op": b"d", "__txid": b"1", "__lsn": b"7", "ce_id": b"9-0"}
    for identifier, table in ((ODD, "odd one.Ünï %"), ("p.public.items", "public.items")):
        event = rows.event(record("p.together", {"id": 1, TABLE_FIELD: identifier}, None, **headers))
        assert (event.table, event.key) == (table, {"id": 1})


@pytest.mark.parametrize(
    "key", [{"id": 1}, {"id": 1, TABLE_FIELD: "p.public.bulk"}, {TABLE_FIELD: "p.public.items", "id": 1}]
)
def test_a_key_that_does_not_end_with_the_table_is_refused(key: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        Debezium(DECODE, SHARED, has_headers=False).event(record("p.together", key, debeziums("public", "items")))


def test_folders_may_vanish_while_their_files_are_listed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    found = files_below(tmp_path)
    first = next(found)
    other = tmp_path / ("b" if first.parent.name == "a" else "a")
    shutil.rmtree(other)
    assert [*found] == []
