"""The flow is one way: a room knows only the vocabulary of the rooms before it, and I/O stays in few, thin modules."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tree import ROOT, Module, modules

from cdcd import ROOMS

DOES_IO = {"shutil", "confluent_kafka", "http", "psycopg", "select", "socket", "sqlite3", "threading", "time"}
"""Whoever imports one of these talks to the world, waits, or reads the time."""

IO_MODULES = {
    "cdcd.avro.registry",
    "cdcd.clock",
    "cdcd.compiled",
    "cdcd.exporting",
    "cdcd.fold",
    "cdcd.health",
    "cdcd.slot_watch",
    "cdcd.taking_over",
    "cdcd.preflight_kafka",
    "cdcd.preflight_postgres",
    "cdcd.registry_client",
    "cdcd.schema_finder",
    "cdcd.sink.handover",
    "cdcd.sink.kafka_admin",
    "cdcd.sink.kafka_errors",
    "cdcd.sink.kafka_producer",
    "cdcd.sink.kafka_progress",
    "cdcd.sink.kafka_reading",
    "cdcd.sink.thread",
    "cdcd.snapshot.reader",
    "cdcd.snapshot_command",
    "cdcd.spark.cdc",
    "cdcd.spark.jobs",
    "cdcd.spark.mirror",
    "cdcd.spark.snapshot",
    "cdcd.spark.verify",
    "cdcd.source.catalogue",
    "cdcd.source.checksums",
    "cdcd.source.connection",
    "cdcd.source.publication",
    "cdcd.source.session",
    "cdcd.source.slot",
    "cdcd.source.walsender",
    "cdcd.tail",
    "cdcd.transaction.spool_file",
    "cdcd.verify",
    "cdcd.wake",
}
"""All of them. A new one is a decision: everything else is bytes in, values out, `now` as an argument."""

KNOW_ALL = {
    "cdcd.copying",
    "cdcd.exporting",
    "cdcd.opening",
    "cdcd.peek",
    "cdcd.pipeline",
    "cdcd.schemas",
    "cdcd.slot_command",
    "cdcd.snapshot_command",
    "cdcd.taking_over",
    "cdcd.unpark",
    "cdcd.verify",
}
"""They wire the rooms together; anything else beside the rooms looks into two at most."""

SPARK_KNOWS = {"cdcd.avro.names", "cdcd.avro.single_object", "cdcd.progress.record", "cdcd.sink.topics"}
"""Of the other rooms: the vocabulary of the wire format and of the progress record."""

FOR_EVERY_ROOM = {"cdcd", "cdcd.errors", "cdcd.lsn", "cdcd.clock", "cdcd.registry_client"}

ids = {"argvalues": modules(), "ids": lambda module: module.name}


def room_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if parts[0] == "cdcd" and len(parts) > 1 and parts[1] in ROOMS else ""


def test_every_package_is_a_room_in_the_order_of_the_flow() -> None:
    assert {module.room for module in modules()} - {""} == set(ROOMS)


@pytest.mark.parametrize("module", **ids)
def test_a_room_imports_only_pure_modules_of_rooms_before_it(module: Module) -> None:
    if not module.room:
        return
    here = ROOMS.index(module.room)
    for name in sorted(module.imports):
        if not name.startswith("cdcd"):
            continue
        room = room_of(name)
        if not room:
            if (module.name, name) == ("cdcd.spark.snapshot", "cdcd.schemas"):
                continue  # what the daemon would publish a table as is asked of the daemon's own wiring
            assert name in FOR_EVERY_ROOM, f"{module.name} is in a room and imports {name}, which is beside the rooms"
        elif room != module.room:
            assert ROOMS.index(room) < here, f"{module.name} imports {name}, against the flow"
            assert name not in IO_MODULES, f"{module.name} imports {name}, which does I/O"


def test_the_modules_that_do_io_are_the_ones_listed() -> None:
    found = {module.name for module in modules() if {name.partition(".")[0] for name in module.imports} & DOES_IO}
    assert found == IO_MODULES


def test_only_the_spark_room_imports_pyspark_and_it_knows_the_wire_format_alone() -> None:
    for module in modules():
        here = module.room == "spark"
        assert here or not [name for name in module.imports if name.startswith("pyspark")], module.name
        if here:
            foreign = {name for name in module.imports if room_of(name) not in ("", "spark")}
            assert foreign <= SPARK_KNOWS, module.name


@pytest.mark.parametrize("module", **ids)
def test_only_the_wiring_knows_more_than_two_rooms(module: Module) -> None:
    rooms = {room_of(name) for name in module.imports} - {"", module.room}
    if not module.room and module.name not in KNOW_ALL:
        assert len(rooms) <= 2, f"{module.name} looks into {sorted(rooms)}"


def test_no_hot_module_does_io() -> None:
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["hooks"]["custom"]
    hot = {path for glob in hook["compile"] for path in ROOT.glob(glob)}
    hot -= {path for glob in hook["exclude"] for path in ROOT.glob(glob)}
    assert hot
    assert {module.name for module in modules() if module.path in hot} & IO_MODULES == set()


@pytest.mark.parametrize("module", **ids)
def test_rooms_never_see_the_settings(module: Module) -> None:
    if module.room:
        assert not [name for name in module.imports if name.startswith("cdcd.settings")]
