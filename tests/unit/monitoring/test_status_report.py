from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cdcd.errors import AccessDenied, KafkaUnavailable
from cdcd.monitoring.identity import Identity
from cdcd.monitoring.reachability import KAFKA, POSTGRESQL, Reachability
from cdcd.monitoring.status import State, Status
from cdcd.monitoring.status_report import Document, as_json, report
from cdcd.monitoring.status_sections import flow, slot
from cdcd.source.slot import SlotState

SLOT = SlotState("s", "pgoutput", "d", False, True, 7, 16, 16, "reserved", None, False, False, "", 64)


def status() -> Status:
    it = Status(Identity("1.0", "slot", "pub"), 1000.0)
    it.reachability = Reachability((KAFKA,), it.errors.add)
    return it


def problems(it: Status, now_s: float = 1002.0) -> list[str]:
    return [each["problem"] for each in report(it, now_s, 0)["next"]]


def test_the_document_is_one_line_of_json_that_reads_back() -> None:
    document = report(status(), 1002.0, 1_000_000)
    assert "\n" not in as_json(document)
    assert json.loads(as_json(document)) == document
    assert document["time"] == "1970-01-01T00:00:01Z"


def test_the_stream_never_seems_to_have_received_less_than_kafka_holds() -> None:
    it = status()
    it.positions.received_lsn, it.positions.durable_lsn = 0x10, 0x20
    flow = report(it, 1002.0, 0)["flow"]
    assert flow["received_lsn"] == flow["durable_lsn"] == "0/20"


def test_a_lag_that_nobody_knows_is_not_0() -> None:
    it = status()
    assert report(it, 1002.0, 0)["flow"]["lag_s"] is None
    assert ("Lag", "not known before the first stream") in flow(report(it, 1002.0, 0))
    it.positions.durable_lsn = it.positions.received_lsn = it.positions.server_lsn = 16
    assert ("Lag", "0 s, 0 B of WAL") in flow(report(it, 1002.0, 0))
    it.stand_by(1002.0)
    assert ("Lag", "-") in flow(report(it, 1002.0, 0))


def test_an_error_is_something_to_do_while_its_stream_is_down_and_history_afterwards() -> None:
    it = status()
    it.errors.add(1000.0, KafkaUnavailable("no broker", "look", code="kafka-unavailable"))
    it.state = State.RESTARTING
    assert problems(it) == ["no broker"]
    it.begin_stream(1001.0)
    assert problems(it) == []
    assert [each["message"] for each in report(it, 1002.0, 0)["errors"]] == ["no broker"]


def test_a_service_that_is_lost_is_said_once_with_the_time_and_the_hint() -> None:
    it = status()
    it.state = State.RESTARTING
    it.reachability.failed(KAFKA, 1000.0, KafkaUnavailable("no broker", "look", code="kafka-unavailable"))
    it.reachability.judge(1010.0)
    document = report(it, 1012.0, 0)
    assert document["next"] == [
        {"problem": "Kafka lost for 12 s: no broker", "hint": "look", "code": "kafka-unavailable"}
    ]
    assert document["state"]["text"] == "restarting; Kafka lost"


@pytest.mark.parametrize(
    ("slot", "said"),
    [
        (replace(SLOT, wal_status="lost"), "PostgreSQL has invalidated the slot: lost"),
        (replace(SLOT, invalidation="idle_timeout"), "PostgreSQL has invalidated the slot: idle_timeout"),
        (
            replace(SLOT, wal_status="unreserved"),
            "the next checkpoint of PostgreSQL may remove WAL that the slot needs",
        ),
        (replace(SLOT, waits_for_standby=True), "PostgreSQL sends nothing, because it waits for a standby"),
    ],
)
def test_a_slot_in_danger_is_something_to_do(slot: SlotState, said: str) -> None:
    it = status()
    it.begin_stream(1001.0)
    it.slot_state = SLOT
    assert problems(it) == []
    it.slot_state = slot
    [problem] = problems(it)
    assert problem.startswith(said)
    assert all(each["hint"] for each in report(it, 1002.0, 0)["next"])


def test_a_stage_that_stalls_is_something_to_do_and_the_state_says_so() -> None:
    it = status()
    it.begin_stream(1000.0)
    document: Document = report(it, 1300.0, 0)
    assert document["next"][0]["problem"] == "nothing has moved at the loop for 5 min 0 s"
    assert (document["state"]["text"], document["state"]["is_alive"]) == ("stalled: nothing moves at the loop", False)


def test_what_only_postgresql_tells_is_not_shown_while_it_is_lost() -> None:
    it = status()
    it.reachability = Reachability((POSTGRESQL,))
    it.positions.durable_lsn = it.positions.received_lsn = it.positions.server_lsn = 16
    it.positions.oldest_pending_us, it.slot_state = 1_000_000, SLOT
    assert report(it, 1002.0, 27_000_000)["slot"] is not None
    it.reachability.failed(POSTGRESQL, 990.0, AccessDenied("refused", code="login-refused"))
    it.reachability.judge(1000.0)
    document = report(it, 1002.0, 27_000_000)
    assert ("Lag", "at least 26 s, WAL not known") in flow(document)
    assert ("State", "not known") in slot(document)
