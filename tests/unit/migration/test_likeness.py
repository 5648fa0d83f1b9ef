"""A take-over goes on only with the connector's topics and keys, and forgets nothing that cdcd has not done yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdcd.errors import RequestRejected
from cdcd.migration.likeness import check_finished, check_names
from cdcd.migration.transforms import Route
from cdcd.progress.snapshot_records import DONE, RUNNING, STOPPED, WANTED, TableSnapshot
from cdcd.sink.topics import TopicNames, TopicRule
from cdcd.source.table_selection import TablePattern

TENANTS = [(f"tenant_{number}", "orders") for number in range(3)]


def names(match: str, topic: str) -> TopicNames:
    return TopicNames("shop", rules=[TopicRule(TablePattern(match), topic)])


def test_tables_that_a_router_brings_together_have_the_same_topic_and_keys_or_are_refused() -> None:
    route = Route(r"shop\.tenant_.*\.(.*)", "shop.$1", names_table=True)
    shared = names("tenant_*.orders", "{prefix}.orders")
    check_names(shared, TENANTS, ".", [route], in_keys=True)
    check_names(shared, TENANTS, ".", [replace(route, names_table=False)], in_keys=False)
    with pytest.raises(RequestRejected, match="as the connector writes them, and as cdcd does they do not"):
        check_names(shared, TENANTS, ".", [route], in_keys=False)
    with pytest.raises(RequestRejected, match="as cdcd writes them, and as the connector does they do not"):
        check_names(shared, TENANTS, ".", [replace(route, names_table=False)], in_keys=True)
    with pytest.raises(RequestRejected, match=r"as the connector writes them"):
        check_names(names("tenant_0.orders", "{prefix}.orders"), TENANTS[:1], ".", [route], in_keys=True)
    of_two = replace(route, expression=r"shop\.tenant_[01]\.(.*)")
    with pytest.raises(
        RequestRejected, match=r"tenant_2\.orders has the topic shop\.orders in cdcd, and shop\.tenant_2"
    ):
        check_names(shared, TENANTS, ".", [of_two], in_keys=True)


def test_tables_of_one_topic_that_no_entry_shares_are_refused() -> None:
    found = names("a.t", "{prefix}.b.t")
    route = Route(r"shop\.a\.t", "shop.b.t", names_table=False)
    with pytest.raises(RequestRejected, match=r"a\.t and b\.t come to one topic"):
        check_names(found, [("a", "t"), ("b", "t")], ".", [route], in_keys=False)


@pytest.mark.parametrize("state", [WANTED, RUNNING, STOPPED])
def test_a_snapshot_that_cdcd_has_not_finished_is_not_declared_done(state: str) -> None:
    done = TableSnapshot("shop", "shop.public.a", "public", "a", DONE, 5)
    left = TableSnapshot("shop", "shop.public.b", "public", "b", state, 0)
    tables = [("public", "a"), ("public", "b")]
    with pytest.raises(RequestRejected, match=r"has not finished the snapshot of public\.b"):
        check_finished({each.topic: each for each in (done, left)}, tables)
    check_finished({each.topic: each for each in (done, replace(left, state=DONE))}, tables)
    check_finished({each.topic: each for each in (done, left)}, tables[:1])
