"""A table that has another key, or that another one replaces, is copied once, and said once."""

from __future__ import annotations

import pytest

from cdcd.daemon.recopies import Recopies
from cdcd.daemon.request_intake import RequestIntake
from cdcd.daemon.snapshot_requests import SnapshotRequests
from cdcd.errors import FatalError
from cdcd.progress.daemon_requests import SNAPSHOT, Request
from cdcd.progress.snapshot_records import RUNNING, TableSnapshot
from cdcd.sink.batches import AnnouncedTable
from cdcd.sink.topics import TopicNames
from cdcd.source.incarnations import Incarnation

T, ODD = ("public", "t"), ("A b", "c.d")
ID, BOTH, NONE = ("id",), ("tenant", "id"), ()
NAMES = TopicNames("p")
TOPIC = NAMES.topic(*T)


class Played:
    """Recopies whose tables all have a snapshot, or none, and of which one may be wanted."""

    def __init__(
        self, *, has_snapshot: bool = True, stops: bool = False, wanted: tuple[str, str] | None = None
    ) -> None:
        incarnations = {NAMES.topic(*table): Incarnation(7) for table in (T, ODD)}
        self.it = Recopies(NAMES, {T: ID, ODD: ID}, incarnations, stops_on_key_change=stops, stops_on_replaced=stops)
        self._has_snapshot = has_snapshot
        self._wanted = wanted

    def has_snapshot(self, schema: str, table: str) -> bool:
        return self._has_snapshot

    def is_wanted(self, schema: str, table: str) -> bool:
        return (schema, table) == self._wanted

    def take(self, *keys: tuple[tuple[str, str], tuple[str, ...]], oid: int = 7) -> list[tuple[str, str]]:
        return self.it.take([AnnouncedTable(*table, key, oid) for table, key in keys], self)

    def reach(self, table: tuple[str, str], key: tuple[str, ...], oid: int = 7) -> bool:
        topic = NAMES.topic(*table)
        return self.it.reach(
            TableSnapshot("s", topic, *table, RUNNING, 1, key_columns=key, incarnation=Incarnation(oid))
        )


recopies = Played


def test_a_table_with_another_key_is_copied_once(caplog: pytest.LogCaptureFixture) -> None:
    it = recopies()
    assert it.take((T, ID)) == []
    assert it.take((T, BOTH)) == [T]
    assert it.take((T, BOTH)) == []
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("the key of public.t changed from (id) to (tenant, id): ")


def test_a_lost_key_is_a_change(caplog: pytest.LogCaptureFixture) -> None:
    assert recopies().take((T, NONE)) == [T]
    assert "changed from (id) to none" in caplog.text


def test_a_key_that_goes_again_at_once_has_left_events() -> None:
    assert recopies().take((T, BOTH), (T, ID)) == [T]


def test_the_first_key_of_a_table_is_no_change() -> None:
    assert recopies().take((("public", "new"), ID)) == []


def test_the_key_of_a_copy_is_that_of_the_next_events() -> None:
    it = recopies()
    assert it.reach(T, BOTH), "the events before it have another key"
    assert not it.reach(T, BOTH)
    assert it.take((T, BOTH)) == []
    assert not recopies().reach(("public", "new"), ID)


def test_another_table_of_the_name_is_copied_once(caplog: pytest.LogCaptureFixture) -> None:
    it = recopies()
    assert it.take((T, ID)) == []
    assert it.take((T, BOTH), oid=8) == [T], "it has another key, too, and is said once"
    assert it.take((T, BOTH), oid=8) == []
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("public.t was replaced: another table has its name now")


def test_a_table_that_goes_again_at_once_has_left_events() -> None:
    it = recopies()
    old, new = AnnouncedTable(*T, ID, 7), AnnouncedTable(*T, ID, 8)
    assert it.it.take([new, old], it) == [T]


def test_a_copy_shows_another_table_than_the_events_before_it() -> None:
    it = recopies()
    assert it.reach(T, ID, 8)
    assert not it.reach(T, ID, 8)
    assert it.take((T, ID), oid=8) == []


@pytest.mark.parametrize("stops", [True, False])
def test_what_a_wanted_copy_will_have_asks_for_no_other_one(*, stops: bool) -> None:
    it = recopies(wanted=T, stops=stops)
    assert it.take((T, BOTH), (T, ID)) == []
    assert it.take((T, ID), oid=8) == []


def test_a_daemon_that_is_to_stop_names_the_table_that_was_replaced() -> None:
    with pytest.raises(FatalError, match=r"public\.t was replaced: another table has its name"):
        recopies(stops=True).take((T, ID), oid=8)


def test_what_has_no_snapshot_gets_none_and_the_log_names_the_command(caplog: pytest.LogCaptureFixture) -> None:
    assert recopies(has_snapshot=False).take((ODD, BOTH)) == []
    assert """run: cdcd snapshot '"A b"."c.d"'""" in caplog.text


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_a_daemon_that_is_to_stop_names_the_change(*, has_snapshot: bool) -> None:
    with pytest.raises(FatalError, match=r"of public.t changed from \(id\) to \(tenant, id\), and tables.on_key_chan"):
        recopies(has_snapshot=has_snapshot, stops=True).take((T, BOTH))


def test_the_intake_records_the_copy() -> None:
    of_stream = Recopies(NAMES, {T: ID}, {TOPIC: Incarnation(7)})
    it = SnapshotRequests("s", NAMES, {}, takes=lambda *_: True, recopies=of_stream)
    intake = RequestIntake("s", list, it.request, announce=it.announce)
    announced = [AnnouncedTable(*T, BOTH, 7)]
    assert intake.take([], announced) == [Request(SNAPSHOT, T)]
    assert it.has_requests
    assert intake.take([], announced) == []
