"""One table under its name, and what tells that another one has it now, or that its rows are others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdcd.source.incarnations import Incarnation, Leaf, parse_incarnation

PLAIN = Incarnation(16_400, (7,), 16_400, 99)
ROOT = Incarnation(16_400, (7, 8), leaves=(Leaf(16_410, 16_410, 1), Leaf(16_420, 16_500, 2)))
MADE = Leaf(16_430, 16_430, 3)


@pytest.mark.parametrize(
    "seen",
    [
        replace(PLAIN, oid=16_401),
        replace(PLAIN, published_by=(9,)),
        replace(PLAIN, file_node=16_777, columns=98),
    ],
    ids=["another table", "another entry publishes it", "written again by ALTER TABLE"],
)
def test_a_table_with_other_rows_is_told(seen: Incarnation) -> None:
    assert PLAIN.contradiction(seen)


@pytest.mark.parametrize(
    "seen",
    [
        PLAIN,
        replace(PLAIN, published_by=(9, 7)),
        replace(PLAIN, file_node=16_777),
        replace(PLAIN, columns=98),
        Incarnation(16_400),
    ],
    ids=["the same", "one more entry", "VACUUM FULL or TRUNCATE", "a new column", "as the stream knows it"],
)
def test_a_table_whose_changes_all_came_is_the_same(seen: Incarnation) -> None:
    assert PLAIN.contradiction(seen) == ""
    assert Incarnation(16_400).contradiction(seen) == ""


@pytest.mark.parametrize(
    "leaves",
    [
        ROOT.leaves[:1] if ROOT.leaves else (),
        (Leaf(16_410, 16_411, 1), Leaf(16_420, 16_500, 2)),
        (Leaf(16_410, 16_410, 9), Leaf(16_420, 16_500, 2)),
        (*(ROOT.leaves or ()), MADE),
    ],
    ids=["one left", "one truncated", "one detached and attached again", "one attached"],
)
def test_a_root_whose_partitions_came_or_left_with_rows_is_told(leaves: tuple[Leaf, ...]) -> None:
    assert ROOT.contradiction(replace(ROOT, leaves=leaves))


def test_a_partition_that_was_made_as_one_had_no_rows_before() -> None:
    seen = replace(ROOT, leaves=(*(ROOT.leaves or ()), MADE), made_as_partitions=frozenset({MADE.oid}))
    assert ROOT.contradiction(seen) == ""
    assert seen != ROOT


@pytest.mark.parametrize("incarnation", [PLAIN, ROOT, Incarnation(0), Incarnation(5, leaves=())])
def test_the_document_reads_back(incarnation: Incarnation) -> None:
    assert parse_incarnation(incarnation.document()) == incarnation


@pytest.mark.parametrize("document", [None, [], {}, {"oid": "x"}, {"oid": 1, "leaves": [[1]]}, {"oid": 1, "leaves": 3}])
def test_a_malformed_document_is_refused(document: object) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        parse_incarnation(document)
