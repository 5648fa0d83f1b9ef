"""The first rule that matches a table and has a property decides it."""

from __future__ import annotations

from cdcd.snapshot.copy_hours import CopyHours
from cdcd.snapshot.table_rules import NO_SNAPSHOT_RULES, SnapshotRule, SnapshotRules
from cdcd.source.snapshot_conditions import condition


def test_the_first_rule_with_a_property_decides_it() -> None:
    rules = SnapshotRules(
        [
            SnapshotRule("public.huge", is_taken=False),
            SnapshotRule("public.h*", is_taken=True, where="id > 1"),
            SnapshotRule("public.*", where="true", order=-1),
        ]
    )
    assert not rules.takes("public", "huge")
    assert rules.forbids("public", "huge")
    assert not rules.forbids("public", "here")
    assert rules.where("public", "huge") == "id > 1"
    assert rules.where("public", "other") == "true"
    assert rules.order("public", "huge") == -1
    assert rules.takes("public", "other")
    assert (rules.where("audit", "huge"), rules.order("audit", "huge")) == ("", 0)


def test_a_rule_may_name_the_only_tables_that_are_copied() -> None:
    rules = SnapshotRules([SnapshotRule("public.small", is_taken=True)], takes_others=False)
    assert rules.takes_any
    assert rules.takes("public", "small")
    assert not rules.takes("public", "huge")
    assert not rules.forbids("public", "huge"), "only an entry for the table forbids a copy after a gap"
    assert not SnapshotRules([SnapshotRule("public.small", order=1)], takes_others=False).takes_any
    assert NO_SNAPSHOT_RULES.takes("public", "huge")


def test_a_rule_may_say_hours_without_their_time_zone_and_one_rate_without_the_other() -> None:
    rules = SnapshotRules(
        [
            SnapshotRule("public.huge", rows_per_second=10, time_zone="Asia/Tokyo"),
            SnapshotRule("public.h*", hours="", bytes_per_second=500),
            SnapshotRule("public.*", rows_per_second=0, hours="01:00-02:00"),
        ],
        hours=CopyHours("22:00-06:00", "Europe/Berlin"),
    )
    assert rules.rate("public", "huge") == (10, 500)
    assert rules.rate("public", "here") == (0, 500)
    assert rules.rate("audit", "huge") == (0, 0)
    assert rules.hours("public", "huge") == CopyHours("", "Asia/Tokyo")
    assert rules.hours("public", "other") == CopyHours("01:00-02:00", "Europe/Berlin")
    assert rules.hours("audit", "huge") == CopyHours("22:00-06:00", "Europe/Berlin")


def test_a_comment_at_the_end_of_a_condition_hides_nothing() -> None:
    assert condition("id > 1 -- new ones").splitlines() == ["CASE WHEN id > 1 -- new ones", "THEN true ELSE false END"]
