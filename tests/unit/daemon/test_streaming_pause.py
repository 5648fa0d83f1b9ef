"""One transaction that cannot be spooled ends streaming for a while, and not until somebody restarts the daemon."""

from __future__ import annotations

import pytest

from cdcd.daemon.fallbacks import Fallbacks
from cdcd.daemon.streaming_pause import PAUSE_MIN_S, StreamingPause
from cdcd.errors import FatalError, KafkaUnavailable, SpoolFull, StreamingResumed, StreamingUnsupported


def test_the_pause_is_over_when_kafka_has_the_transaction() -> None:
    pause = StreamingPause(100.0, until_lsn=0x50)
    assert not pause.is_over(100.0 + PAUSE_MIN_S, 0x49)
    assert pause.is_over(100.0 + PAUSE_MIN_S, 0x50)


def test_a_pause_has_a_least_length_however_many_such_transactions_come() -> None:
    assert not StreamingPause(100.0, until_lsn=0x50).is_over(100.0 + PAUSE_MIN_S - 0.1, 0x60)


def test_a_stream_without_a_pause_does_not_end() -> None:
    assert not StreamingPause(100.0, until_lsn=0).is_over(1e9, 1 << 62)


def test_streaming_is_allowed_again_after_the_pause_and_only_then() -> None:
    fallbacks = Fallbacks()
    fallbacks.note(StreamingUnsupported("doubtful", "", until_lsn=0x50, code="stream-restarted"))
    assert (fallbacks.streaming_allowed, fallbacks.streaming_resumes_lsn) == (False, 0x50)
    fallbacks.note(KafkaUnavailable("away", "", code="kafka-unavailable"))
    assert not fallbacks.streaming_allowed
    fallbacks.note(StreamingResumed("back", code="stream-restarted"))
    assert fallbacks.streaming_allowed
    fallbacks.note(SpoolFull("full", ""))
    assert (fallbacks.streaming_allowed, fallbacks.streaming_resumes_lsn) == (False, 0)


def test_prepared_transactions_that_do_not_fit_end_the_daemon_with_what_to_set() -> None:
    fallbacks, full = Fallbacks(), SpoolFull("spool.bytes_max is 10", "Raise spool.bytes_max")
    fallbacks.note(full)
    with pytest.raises(FatalError, match=r"the prepared transactions do not fit: spool\.bytes_max is 10") as refused:
        fallbacks.note(full)
    assert refused.value.hint == "Raise spool.bytes_max"


def test_a_disk_that_may_have_room_again_is_tried_again() -> None:
    fallbacks, full = Fallbacks(), SpoolFull("No space left on device", "Use a larger disk", may_pass=True)
    for _ in range(3):
        fallbacks.note(full)
    assert not fallbacks.streaming_allowed
