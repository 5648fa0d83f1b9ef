"""The stream goes on at another server only where the tables are what the topics have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdcd.config.settings import Settings, SinkSettings, SourceSettings
from cdcd.daemon.adoption import Adoption
from cdcd.daemon.adoption_proof import Compared, Proof, Seam, prove
from cdcd.daemon.kafka_session import KafkaSession
from cdcd.errors import RequestRejected
from cdcd.progress.records import DeferredTable, ParkedTable, SlotRecord
from cdcd.progress.snapshot_records import DONE, RUNNING, WANTED, TableSnapshot
from cdcd.source.incarnations import Incarnation

A, B, C, D = (("public", name) for name in "abcd")
HERE = {A: Incarnation(1), B: Incarnation(2)}


class PlayedPublisher:
    def __init__(self, last: SlotRecord) -> None:
        self.last = last
        self.adopted: list[tuple[Any, ...]] = []
        self.recorded = dict.fromkeys(["p.progress", "p.schemas", "p.public.a", "p.public.gone"])
        self.written_tables = ["p.public.a", "p.public.gone"]

    def adopt(
        self,
        lsn: int,
        tables: Collection[tuple[str, str]],
        incarnations: Mapping[tuple[str, str], Incarnation],
        now: float,
        gap_lsn: int,
        compared: Collection[tuple[str, str]],
    ) -> list[TableSnapshot]:
        assert incarnations == HERE
        self.adopted.append((lsn, tables, gap_lsn, set(compared)))
        return [TableSnapshot("s", f"p.{'.'.join(table)}", *table, WANTED, 0) for table in tables]


def played(*different: str, states: dict[tuple[str, str], str] | None = None, **last: Any) -> Any:
    """An adoption and Kafka, as a take-over has found it."""
    left_out: list[set[tuple[str, str]]] = []

    def compare(_: SlotRecord, leave_out: Collection[tuple[str, str]]) -> Compared:
        left_out.append(set(leave_out))
        return Compared(0x90, different)

    source, sink = SourceSettings(dsn="d", slot="s"), SinkSettings(bootstrap_servers="b", prefix="p")
    clients = cast("Any", SimpleNamespace(monotonic_s=lambda: 0.0))
    adoption = Adoption(Settings(source=source, sink=sink), clients, compare)
    snapshots = {
        f"p.{'.'.join(table)}": TableSnapshot("s", f"p.{'.'.join(table)}", *table, state, 0x10)
        for table, state in (states or {}).items()
    }
    publisher = PlayedPublisher(SlotRecord("s", 0x500, 0x480, 1, "1", 1, 1, 1, **last))
    kafka = KafkaSession(cast("Any", publisher), cast("Any", None), snapshots, True, 0, [], [], "", 1 << 32)
    return adoption, kafka, publisher, left_out


def proven(adoption: Adoption, kafka: KafkaSession, tables: Collection[tuple[str, str]], proof: Proof) -> Seam:
    return prove(proof, adoption._settings, kafka, tables, 0x80, adoption._compare)


def test_equal_tables_let_the_stream_go_on_where_they_were_compared() -> None:
    adoption, kafka, publisher, left_out = played(states={A: DONE})
    seam = proven(adoption, kafka, [A, B], Proof.COMPARED)
    assert (seam.server_lsn, seam.tables, left_out) == (0x90, frozenset(), [set()])
    server = cast("Any", SimpleNamespace(system_id="2"))
    adopted = adoption._record(kafka, server, HERE, Proof.COMPARED, seam)
    assert publisher.adopted == [((1 << 32) + 0x90, [], 0, set())]
    assert (adopted.before, adopted.system_id, adopted.server_lsn) == ("1", "2", 0x90)
    assert adopted.unpublished == ("p.public.gone",)


def test_tables_that_differ_are_named_and_nothing_is_recorded() -> None:
    adoption, kafka, publisher, _ = played("public.a", "public.b")
    with pytest.raises(RequestRejected, match=r"in 2 of 3 tables \(public.a, public.b\)") as refused:
        proven(adoption, kafka, [A, B, C], Proof.COMPARED)
    assert publisher.adopted == []
    for way_out in ("cdcd adopt --repair", "cdcd adopt --resnapshot"):
        assert way_out in refused.value.hint


@pytest.mark.parametrize("proof", [Proof.COMPARED, Proof.SAID])
def test_a_table_that_was_not_complete_gets_a_new_snapshot_and_is_not_compared(proof: Proof) -> None:
    """Its finished blocks are those of another server, and so are the xids that tell which rows are newer."""
    adoption, kafka, _, left_out = played(
        states={A: RUNNING, B: WANTED, ("public", "dropped"): RUNNING},
        parked=(ParkedTable(*C, "too large", 0x400, 7),),
        deferred=(DeferredTable(*A, 0x400, 7),),
    )
    seam = proven(adoption, kafka, [A, B, C, D], proof)
    assert seam.tables == {A, B, C}
    assert left_out == ([{A, B, C}] if proof is Proof.COMPARED else [])
    assert seam.server_lsn == (0x90 if proof is Proof.COMPARED else 0x80)


def test_replaced_tables_all_get_new_snapshots_and_a_gap_is_declared() -> None:
    adoption, kafka, publisher, left_out = played("public.a")
    seam = proven(adoption, kafka, [A, B], Proof.REPLACED)
    adoption._record(kafka, cast("Any", SimpleNamespace(system_id="2")), HERE, Proof.REPLACED, seam)
    assert publisher.adopted == [((1 << 32) + 0x80, [A, B], 0x500, set())]
    assert left_out == []


def test_tables_with_a_topic_are_compared_by_the_daemon_and_the_others_are_copied_and_a_gap_is_declared() -> None:
    adoption, kafka, publisher, left_out = played("public.a", states={A: DONE})
    seam = proven(adoption, kafka, [A, B], Proof.REPAIRED)
    adoption._record(kafka, cast("Any", SimpleNamespace(system_id="2")), HERE, Proof.REPAIRED, seam)
    assert publisher.adopted == [((1 << 32) + 0x80, [A, B], 0x500, {A})]
    assert left_out == []
