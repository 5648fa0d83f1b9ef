"""The judge of rows that count can say no: each fault of a reader's kind is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chaos.counts import AGGREGATES, COPIED, STOPPED, TOLD, Counts
from chaos.events import Json
from chaos.masks import Masks
from chaos.reading import Record

OUTBOX = "p.outbox.Told-20one"


def change(table: str, row: int, v: int, lsn: int, op: str = "u", **more: Any) -> Record:
    """A change of a row, or a row of a snapshot, as cdcd writes it in JSON. `offset` is a place of its own."""
    source = {"commit_lsn": lsn, "seq": 0, "lsn": lsn, "xid": 1}
    after = {"id": row, "v": v, "secret": f"secret of {v}"} | more
    value: Any = {"op": op, "source": source, "before": None, "after": after, "unchanged": [], "unrepresentable": []}
    return Record((f"p.counted.{table}", 0), 0, json.dumps({"id": row}).encode(), json.dumps(value).encode(), {})


def told(row: int, v: int, partition: int = 0) -> Record:
    """An event of the outbox."""
    headers = {"id": b"%d-%d" % (row, v), "type": b"Counted"}
    return Record((OUTBOX, partition), 0, b"%d" % row, json.dumps({"v": v}).encode(), headers)


def judged(*cuts: list[Record], wanted: dict[tuple[str, int], int]) -> list[str]:
    """What is wrong with these records, each list in a Kafka transaction of its own."""
    counts = Counts("p", Json(with_schemas=False), Masks(on=False))
    for cut in cuts:
        for record in cut:
            counts.take(record)
        counts.close({record.place: 1 for record in cut})
    every = {(TOLD, row): 0 for row in range(1, AGGREGATES + 1)}
    counts._wanted = every | wanted
    counts.finish()
    return counts.problems


def test_a_run_without_a_fault_is_clean() -> None:
    first, second = [change(TOLD, 1, 1, 10), told(1, 1)], [told(1, 2), change(TOLD, 1, 2, 20)]
    copied = [change(COPIED, 1, 1, 5), change(COPIED, 1, 1, 7, "r"), change(COPIED, 1, 2, 9)]
    assert judged(first, second, copied, wanted={(TOLD, 1): 2, (COPIED, 1): 2, (STOPPED, 1): 0}) == []


@pytest.mark.parametrize(
    ("cuts", "wanted", "problem"),
    [
        ([[change(STOPPED, 1, 1, 5), change(STOPPED, 1, 1, 5)]], {(STOPPED, 1): 1}, "order"),
        ([[change(STOPPED, 1, 2, 6), change(STOPPED, 1, 1, 5)]], {(STOPPED, 1): 2}, "order"),
        ([[change(STOPPED, 1, 1, 5)]], {(STOPPED, 1): 2}, "lost"),
        ([[change(TOLD, 1, 1, 10)], [told(1, 1)]], {(TOLD, 1): 1}, "torn"),
        ([[change(TOLD, 1, 1, 10), told(1, 1), told(1, 1)]], {(TOLD, 1): 1}, "outbox"),
        ([[change(TOLD, 1, 1, 10), told(1, 1)], [change(TOLD, 1, 2, 20), told(1, 2, 1)]], {(TOLD, 1): 2}, "order"),
        ([[]], {(COPIED, 1): 0}, "lost: no snapshot"),
        ([[change(COPIED, 3, 0, 7, "r")]], {(COPIED, 3): 0}, "snapshot"),
        ([[change(COPIED, 1, 1, 7, "r"), change(COPIED, 1, 1, 9)]], {(COPIED, 1): 1}, "snapshot"),
        ([[change(COPIED, 1, 0, 7, "r"), change(COPIED, 1, 1, 5)]], {(COPIED, 1): 1}, "snapshot"),
        ([[change(COPIED, 1, 0, 7, "r"), change(COPIED, 1, 0, 7, "r")]], {(COPIED, 1): 0}, "doubled"),
        ([[change(STOPPED, 1, 1, 5, secret="other")]], {(STOPPED, 1): 1}, "content"),
    ],
)
def test_a_fault_is_named(cuts: list[list[Record]], wanted: dict[tuple[str, int], int], problem: str) -> None:
    assert any(each.startswith(problem) for each in judged(*cuts, wanted=wanted))


def test_what_must_be_hidden_is_found() -> None:
    assert Masks(on=True).leak(b"the secret of 7") == b"secret of "
    assert Masks(on=True).leak("mémo, memo ñ".encode()) == "memo ñ".encode()
    assert not Masks(on=False).leak(b"the secret of 7")
