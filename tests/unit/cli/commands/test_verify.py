from __future__ import annotations

import json
from dataclasses import replace

from cdcd.cli.commands.verify import as_json, as_text
from cdcd.verify.comparison import CHANGED, EXTRA, MISSING, Difference, TableResult


def result(*differences: Difference, oldest_events_gone: bool = False) -> TableResult:
    return TableResult("public.t", "cdcd.public.t", 0x1_0000_0010, 1000, 1001, 5000, oldest_events_gone, differences)


FOUND = result(
    Difference("public.t", CHANGED, {"id": "1"}),
    Difference("public.t", MISSING, {"id": "2"}),
    Difference("public.t", EXTRA, {"id": "3", "memo": None}),
    Difference("public.t", EXTRA, {"id": "4"}),
)


def test_people_get_the_counts_then_each_key() -> None:
    assert as_text(FOUND) == [
        "public.t: 1 changed, 1 missing in Kafka, 2 extra in Kafka (PostgreSQL has 1,000 rows, Kafka 1,001)",
        "    changed  id=1",
        "    missing  id=2",
        "    extra    id=3 memo=null",
        "    extra    id=4",
    ]


def test_scripts_get_each_key_then_the_counts() -> None:
    *keys, summary = map(json.loads, as_json(FOUND))
    assert keys[2] == {"table": "public.t", "difference": "extra", "key": {"id": "3", "memo": None}}
    assert summary == {
        "table": "public.t", "topic": "cdcd.public.t", "rows": 1000, "rows_in_kafka": 1001, "events": 5000,
        "oldest_events_gone": False, "other_keys": [], "changed": 1, "missing": 1, "extra": 2, "equal": False,
        "lsn": "1/10",
    }  # fmt: skip


def test_events_under_another_key_are_said_with_what_to_run() -> None:
    assert as_text(replace(result(), other_keys=((), ("id",)))) == [
        (
            "public.t: 1,000 rows, equal; the key has changed, and the topic still has events without a key and under "
            "the key (id): run cdcd snapshot public.t"
        )
    ]
    assert json.loads(as_json(replace(result(), other_keys=(("id",),)))[-1])["other_keys"] == [["id"]]


def test_a_topic_that_has_lost_its_first_events_is_said() -> None:
    assert as_text(result()) == ["public.t: 1,000 rows, equal"]
    assert "retention has removed the topic's oldest events" in as_text(result(oldest_events_gone=True))[0]
