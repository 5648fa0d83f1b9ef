"""When a Kafka transaction ends."""

from __future__ import annotations

import pytest

from cdcd.errors import RequestRejected
from cdcd.sink.group_commit import GroupCommit, KafkaTransactionStats

POLICY = GroupCommit(rows_max=100, bytes_max=10_000, linger_ms=500, timeout_ms=60_000)


def opened(*, rows: int = 1, size: int = 10, inside: bool = False, end_lsn: int = 0x100) -> KafkaTransactionStats:
    return KafkaTransactionStats(opened_at=1000.0, rows=rows, bytes=size, inside=inside, end_lsn=end_lsn)


def test_a_lone_row_is_committed_at_once() -> None:
    assert POLICY.should_commit(1000.0, opened(), waiting=False)


def test_what_comes_while_the_client_waits_goes_along() -> None:
    policy = GroupCommit(rows_max=100, bytes_max=10_000, linger_ms=500, timeout_ms=60_000, gather_s=0.25)
    assert not policy.should_commit(1000.125, opened(), waiting=False)
    assert policy.gathers_s(1000.125, opened()) == 0.125
    assert policy.should_commit(1000.25, opened(), waiting=False)
    assert policy.gathers_s(1000.25, opened()) == 0
    assert policy.should_commit(1000.0, opened(rows=100), waiting=False), "the bounds hold meanwhile"


def test_a_position_without_rows_gathers_nothing() -> None:
    policy = GroupCommit(rows_max=100, bytes_max=10_000, linger_ms=500, timeout_ms=60_000, gather_s=0.25)
    assert policy.should_commit(1000.0, opened(rows=0), waiting=False)
    assert not policy.gathers_s(1000.0, opened(rows=0))


def test_a_backlog_gathers_until_a_bound_is_reached() -> None:
    assert not POLICY.should_commit(1000.499, opened(rows=99, size=9_999), waiting=True)
    assert POLICY.should_commit(1000.5, opened(rows=99, size=9_999), waiting=True)
    assert POLICY.should_commit(1000.0, opened(rows=100), waiting=True)
    assert POLICY.should_commit(1000.0, opened(size=10_000), waiting=True)


def test_the_first_transaction_after_a_start_is_not_kept_from_who_waits_for_it() -> None:
    first = KafkaTransactionStats(opened_at=1000.0, rows=1, bytes=10, inside=False, end_lsn=0x100, first=True)
    assert not POLICY.should_commit(1000.0, first, waiting=True)
    assert POLICY.should_commit(1000.03, first, waiting=True)
    hasty = GroupCommit(rows_max=100, bytes_max=10_000, linger_ms=5, timeout_ms=60_000)
    assert hasty.should_commit(1000.01, first, waiting=True)


@pytest.mark.parametrize("waiting", [True, False])
def test_half_a_postgresql_transaction_is_never_committed(waiting: bool) -> None:
    assert not POLICY.should_commit(1050.0, opened(rows=10**7, size=10**9, inside=True), waiting)


def test_a_transaction_that_outlasts_kafkas_patience_is_refused_with_its_figures_and_cure() -> None:
    assert not POLICY.should_commit(1053.9, opened(inside=True), waiting=True)
    with pytest.raises(RequestRejected) as caught:
        POLICY.should_commit(1054.0, opened(rows=1_234_567, inside=True, end_lsn=0x16_0000_00AB), waiting=True)
    assert "after 16/AB was not published within 54 s (1,234,567 rows" in caught.value.message
    assert "transaction.max.timeout.ms" in caught.value.hint
    assert "at_least_once" in caught.value.hint


def test_without_transactions_kafkas_patience_has_no_end() -> None:
    policy = GroupCommit(rows_max=100, bytes_max=10_000, linger_ms=500, timeout_ms=None)
    assert policy.patience_s(1e9, opened(inside=True)) == float("inf")
    assert not policy.should_commit(1e9, opened(inside=True), waiting=False)
    assert policy.should_commit(1e9, opened(), waiting=True)


def test_a_late_commit_between_two_transactions_is_tried_all_the_same() -> None:
    assert POLICY.should_commit(1059.0, opened(), waiting=True)


def test_patience_ends_before_the_broker_does() -> None:
    assert POLICY.patience_s(1000.0, opened()) == pytest.approx(54.0)
    assert POLICY.patience_s(1100.0, opened()) == 0
