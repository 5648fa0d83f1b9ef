import io
import json

from cdcd.cli.commands.slot import show
from cdcd.errors import KafkaUnavailable
from cdcd.source.slot import SlotState

STATE = SlotState(
    name="cdcd",
    plugin="pgoutput",
    database="shop",
    temporary=False,
    active=False,
    active_pid=None,
    confirmed_flush_lsn=0x15,
    restart_lsn=0x10,
    wal_status="reserved",
    safe_wal_bytes=None,
    two_phase=False,
    failover=False,
    invalidation="",
    wal_lsn=0x20,
)

AWAY = KafkaUnavailable("Kafka (k:9092) did not answer in time", code="kafka-unavailable")


def test_what_kafka_holds_is_not_guessed_while_it_does_not_answer() -> None:
    out = io.StringIO()
    show(STATE, AWAY, as_json=False, out=out)
    assert "Kafka holds      not known: Kafka (k:9092) did not answer in time\n" in out.getvalue()


def test_a_script_can_tell_no_progress_from_a_kafka_that_does_not_answer() -> None:
    for last, said in ((None, None), (AWAY, "Kafka (k:9092) did not answer in time")):
        out = io.StringIO()
        show(STATE, last, as_json=True, out=out)
        shown = json.loads(out.getvalue())
        assert (shown["kafka_lsn"], shown["kafka_error"]) == (None, said)
