import io
import json
from dataclasses import replace

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


def shown(state: SlotState) -> dict[str, str]:
    """What `cdcd slot status` says of each thing, if Kafka does not answer."""
    out = io.StringIO()
    show(state, AWAY, as_json=False, out=out)
    return {line[:16].rstrip(): line[17:] for line in out.getvalue().splitlines()}


def test_a_process_is_told_to_be_one_of_postgresql() -> None:
    said = shown(replace(STATE, active=True, active_pid=8488, used_by="cdcd"))["state"]
    assert said == 'in use by PostgreSQL\'s process 8488 with the application_name "cdcd", reserved'
    assert (
        shown(replace(STATE, active=True, active_pid=8488))["state"] == "in use by PostgreSQL's process 8488, reserved"
    )
    assert shown(STATE)["state"] == "not in use, reserved"


def test_a_lost_slot_keeps_no_wal_and_is_in_no_danger_any_more() -> None:
    said = shown(replace(STATE, restart_lsn=None, wal_status="lost", invalidation="wal_removed"))
    assert said["state"] == "lost: it has lost WAL that it still needed"
    assert said["WAL kept"] == "none: the changes behind the confirmed position are lost"
    assert said["what to do"] == "cdcd explain slot-lost"
    assert "what to do" not in shown(STATE)


def test_a_slot_without_a_position_says_so() -> None:
    said = shown(replace(STATE, confirmed_flush_lsn=None, restart_lsn=None))
    assert (said["confirmed up to"], said["WAL kept"]) == ("nowhere yet", "none")
