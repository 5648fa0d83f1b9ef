"""Which tables are compared after a gap, and which are copied."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import pytest

from cdcd.config.settings import Settings, SinkSettings, SnapshotSettings, SourceSettings, TableSettings
from cdcd.daemon.gap_declaration import declare_gap
from cdcd.daemon.kafka_session import KafkaSession
from cdcd.progress.continuity import Server
from cdcd.progress.records import DeferredTable, SlotRecord
from cdcd.progress.snapshot_records import COMPARE, DONE, RUNNING, TableSnapshot

LAST = SlotRecord("s", 0x500, 0x480, 1, "1", 1, 1, 1, deferred=(DeferredTable("public", "deferred", 0x400, 0),))
NAMES = ("done", "unknown", "running", "compared", "deferred", "without")
TABLES = [("public", name) for name in NAMES]


def table(name: str, state: str, repair: str = "") -> TableSnapshot:
    return TableSnapshot("s", f"p.public.{name}", "public", name, state, 0, repair=repair)


SNAPSHOTS = [
    table("done", DONE),
    table("running", RUNNING),
    table("compared", "wanted", COMPARE),
    table("deferred", DONE),
    table("without", DONE),
]


class PlayedPublisher:
    def __init__(self, last: SlotRecord | None) -> None:
        self.last = last
        self.written_tables = {f"p.public.{name}": None for name in NAMES if name != "without"}
        self.declared: tuple[Any, ...] = ()
        self.parked = {("public", "deferred"): None}

    def declare_gap(self, *arguments: Any) -> list[TableSnapshot]:
        self.declared = arguments
        return []


def declared(
    on_slot_lost: str,
    last: SlotRecord | None = LAST,
    confirmed_lsn: int = 0x900,
    mode: str = "initial",
    never: str = "",
) -> tuple[int, int, Collection[Any], KafkaSession]:
    publisher = PlayedPublisher(last)
    source = SourceSettings(dsn="d", slot="s").model_copy(update={"on_slot_lost": on_slot_lost})
    snapshot = SnapshotSettings().model_copy(update={"mode": mode})
    entries = (TableSettings(match=never, snapshot="never"),) if never else ()
    sink = SinkSettings(bootstrap_servers="b", prefix="p")
    settings = Settings(source=source, snapshot=snapshot, sink=sink, table=entries)
    kafka = KafkaSession(
        cast("Any", publisher), cast("Any", None), {each.topic: each for each in SNAPSHOTS}, False, 0, (), [], "c"
    )
    made = declare_gap(settings, kafka, Server("1", 1, "", 0xA00, confirmed_lsn), TABLES, 0.0)
    begin, end, tables, _, compared = publisher.declared
    assert tables == TABLES
    return begin, end, compared, made


def test_a_table_is_compared_if_its_topic_was_complete() -> None:
    begin, end, compared, made = declared("repair")
    assert (begin, end, made.begins_at) == (0x500, 0x900, 0x900)
    assert compared == {("public", name) for name in ("done", "unknown", "compared")}


def test_a_table_that_is_never_copied_is_compared_only_if_its_topic_has_all_rows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert declared("repair", never="public.*")[2] == {("public", name) for name in ("done", "compared")}
    [record] = caplog.records
    assert record.__dict__["lacking_rows"] == "4 (public.deferred, public.running, public.unknown, public.without)"
    assert (record.__dict__["snapshots"], record.__dict__["snapshots_after_unpark"]) == ("0", "0")


def test_without_repair_every_table_is_copied() -> None:
    assert declared("resnapshot")[2] == set()


@pytest.mark.parametrize(("last", "confirmed_lsn", "begin"), [(None, 0x900, 0x900), (LAST, 0x500, 0x500)])
def test_a_lost_progress_tells_nothing_to_compare_with(last: SlotRecord | None, confirmed_lsn: int, begin: int) -> None:
    assert declared("repair", last, confirmed_lsn)[:3] == (begin, 0xA00, set())


def test_a_stream_with_nothing_but_snapshots_copies() -> None:
    assert declared("repair", mode="only")[2] == set()


def test_the_log_names_each_table_once_and_which_of_them_wait_because_they_are_parked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    declared("repair")
    [record] = caplog.records
    assert record.__dict__["snapshots"] == "2 (public.running, public.without)"
    assert record.__dict__["compared"] == "3 (public.compared, public.done, public.unknown)"
    assert record.__dict__["snapshots_after_unpark"] == "1 (public.deferred)"
