from __future__ import annotations

from dataclasses import replace

import pytest

from cdcd.daemon.sink_link import Commit
from cdcd.daemon.stream_report import StreamReport
from cdcd.monitoring.identity import Identity
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.status import Status
from cdcd.progress.records import ParkedTable
from cdcd.sink.kafka_transaction import CommitResult


def commit(end_lsn: int, transactions: int = 2) -> Commit:
    counts = {("public", "a"): {ord("c"): 3, ord("u"): 1}} if transactions else {}
    parked = {("public", "b"): ParkedTable("public", "b", "too large", 0, 0)}
    return Commit(
        CommitResult(end_lsn, end_lsn - 8, 9_000_000, 8_000_000, transactions, 4, 700, counts, {}, parked, 0.0),
        0.01,
        0.2,
    )


@pytest.fixture
def status() -> Status:
    return Status(Identity("1.0", "slot", "pub"), 1000.0)


def test_the_oldest_received_commit_is_pending_until_kafka_has_it(status: Status) -> None:
    report = StreamReport(status, Metrics("pure"))
    report.on_received(100, 1_000_000)
    report.on_received(200, 2_000_000)
    report.on_positions(200, 200, 0)
    assert status.positions.oldest_pending_us == 1_000_000
    report.on_durable(100)
    assert status.positions.oldest_pending_us == 2_000_000
    report.on_durable(300)
    assert status.positions.oldest_pending_us == 0


def test_a_commit_moves_the_position_the_counts_and_the_parked_tables(status: Status) -> None:
    metrics = Metrics("pure")
    report = StreamReport(status, metrics, lambda: 8_500_000)
    report.on_published(1001.0, commit(200))
    assert status.positions.durable_lsn == 200
    assert status.positions.last_commit_us == 9_000_000
    assert (status.published.transactions, status.published.rows) == (2, 4)
    table = status.published.tables["public.a"]
    assert (table.rows, table.last_commit_us, table.delay_s) == (4, 9_000_000, 0.5)
    assert status.parked == {"public.b": "too large"}
    value = metrics.registry.get_sample_value
    assert value("cdcd_event_latency_seconds_sum") == 0.5
    assert value("cdcd_kafka_transaction_seconds_sum") == 0.2
    assert value("cdcd_rows_total", {"relation": "public.a", "op": "c"}) == 3


def test_a_commit_without_transactions_moves_only_the_position(status: Status) -> None:
    metrics = Metrics("pure")
    StreamReport(status, metrics).on_published(1001.0, commit(200, transactions=0))
    assert status.positions.durable_lsn == 200
    assert status.positions.last_commit_us == 0
    assert status.published.transactions == 0
    assert metrics.registry.get_sample_value("cdcd_event_latency_seconds_count") == 0


def test_copied_rows_are_counted_apart_whether_changes_come_with_them_or_not(status: Status) -> None:
    report = StreamReport(status, Metrics("pure"))
    copied = commit(200, transactions=0)
    report.on_published(1001.0, replace(copied, result=replace(copied.result, counts={("public", "a"): {ord("r"): 7}})))
    assert (status.published.copied_rows, status.published.rows, status.published.transactions) == (7, 0, 0)
    mixed = commit(300)
    counts = {("public", "a"): {ord("r"): 7, ord("u"): 1}}
    report.on_published(1002.0, replace(mixed, result=replace(mixed.result, counts=counts)))
    assert (status.published.copied_rows, status.published.rows, status.published.transactions) == (14, 1, 2)


def test_the_last_line_of_the_log_tells_what_no_line_has_told(status: Status, caplog: pytest.LogCaptureFixture) -> None:
    report = StreamReport(status, Metrics("pure"), log_interval_s=60.0)
    with caplog.at_level("INFO", "cdcd.daemon.stream_report"):
        for second in range(3):
            report.on_published(1001.0 + second, commit(200 + second))
        report.flush(1059.0)
        assert [record.__dict__["rows"] for record in caplog.records] == [4]
        report.end()
    assert [record.__dict__["rows"] for record in caplog.records] == [4, 8]


def test_a_transaction_whose_rows_still_come_is_pending_from_its_commit_on(status: Status) -> None:
    report = StreamReport(status, Metrics("pure"))
    report.on_start(100)
    assert status.positions.lag_s(9_000_000) == 0
    report.on_positions(100, 500, 3_000_000)
    assert status.positions.lag_s(9_000_000) == 6
    report.on_received(400, 3_000_000)
    report.on_positions(400, 500, 0)
    assert status.positions.lag_s(9_000_000) == 6
    report.on_durable(400)
    assert status.positions.lag_s(9_000_000) == 0


def test_lag_in_bytes_counts_from_the_progress_before_anything_is_published(status: Status) -> None:
    status.positions.server_lsn = 5_000  # the slot monitor has seen the backlog
    StreamReport(status, Metrics("pure")).on_start(1_000)
    assert status.positions.lag_bytes == 4_000


def test_the_end_of_the_wal_never_goes_back(status: Status) -> None:
    report = StreamReport(status, Metrics("pure"))
    status.positions.server_lsn = 500  # the slot monitor has seen more
    report.on_positions(100, 400, 0)
    assert (status.positions.received_lsn, status.positions.server_lsn) == (100, 500)
    report.on_positions(600, 600, 0)
    assert status.positions.server_lsn == 600
