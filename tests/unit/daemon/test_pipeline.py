"""What the pipeline says of what waits, without servers."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import pytest

from cdcd.daemon.pipeline import SHUTDOWN_WAITS_FOR_KAFKA_S, Pipeline
from cdcd.errors import PostgresUnavailable
from cdcd.progress.ack_tracker import AckTracker
from cdcd.sink.batch_queue import BatchQueue


class Noting:
    """A stage that remembers what it was told last."""

    waits = False

    def note(self, now: float, waits: bool, mark: object = None) -> None:
        assert now >= 0
        assert mark is not None
        self.waits = waits


@pytest.fixture
def pipeline() -> Pipeline:
    """Behind it a Kafka that never answers, before it a server that lets nobody in any more."""

    def refuse(_: str) -> None:
        raise PostgresUnavailable("the database system is shutting down")

    made = object.__new__(Pipeline)
    made._status = SimpleNamespace(stages=SimpleNamespace(last_loop_s=0.0), synchronous=False)  # type: ignore[assignment]
    made._server_stage = Noting()  # type: ignore[assignment]
    made._sink_stage = Noting()  # type: ignore[assignment]
    made._silence = SimpleNamespace(has_unanswered_probe=False, last_data_s=0.0)  # type: ignore[assignment]
    made._tracker = AckTracker(100, 100)
    made._handover = BatchQueue(64, 1 << 20, lambda: None)
    made._pending = None
    made._sink = SimpleNamespace(published=0)  # type: ignore[assignment]
    made._handed_over = made._idle_lsn = 0
    made._idled_s, made._status_interval_s = -inf, 10.0
    made._assembler = SimpleNamespace(reply_requested=True)  # type: ignore[assignment]
    made._session = SimpleNamespace(rows=refuse)  # type: ignore[assignment]
    made._left_s = 0.0
    return made


def test_a_shutdown_does_not_wait_for_an_idle_position_that_kafka_does_not_take(pipeline: Pipeline) -> None:
    pipeline._tracker.on_keepalive(200)
    pipeline._offer_idle(1.0)
    assert pipeline._handover.take(0) is not None, "the sink has it"
    pipeline._note_progress(1.0)
    assert pipeline._sink_stage.waits, "and health sees that it does not move"  # type: ignore[attr-defined]
    pipeline._left_s = 1.0
    pipeline._note_progress(1.0 + SHUTDOWN_WAITS_FOR_KAFKA_S / 2)
    with pytest.raises(PostgresUnavailable, match="shutting down"):
        pipeline._note_progress(1.1 + SHUTDOWN_WAITS_FOR_KAFKA_S)


def test_nothing_waits_once_the_idle_position_is_durable(pipeline: Pipeline) -> None:
    pipeline._tracker.on_keepalive(200)
    pipeline._offer_idle(1.0)
    assert pipeline._handover.take(0) is not None
    pipeline._tracker.on_durable(200)
    pipeline._left_s = 1.0
    pipeline._note_progress(1000.0)
    assert not pipeline._sink_stage.waits  # type: ignore[attr-defined]
