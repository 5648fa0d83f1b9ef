"""The flow is one way: a package knows only what stands before it, and I/O stays in few, thin modules."""

from __future__ import annotations

import tomllib

import pytest
from tidy.tree import ROOT, Module, modules

from cdcd import FLOW, RING

ORDER = ("terminal", "manual", *FLOW, *RING)
"""A package imports only packages before it."""

GROUND = {
    "cdcd",
    "cdcd.aws_iam",
    "cdcd.build_info",
    "cdcd.certificates",
    "cdcd.clock",
    "cdcd.error_codes",
    "cdcd.errors",
    "cdcd.file_watch",
    "cdcd.lsn",
    "cdcd.made_secret",
    "cdcd.schema_registry_client",
    "cdcd.wakeup",
}
"""What stands directly under `cdcd/`, and any package may import."""

DOES_IO = {"os", "confluent_kafka", "http", "psycopg", "select", "socket", "sqlite3", "threading", "time"}
"""Whoever imports one of these talks to the world, waits, or reads the time."""

IO_MODULES = {
    "cdcd.avro.registry_ids",
    "cdcd.avro.registry_requests",
    "cdcd.sink.batch_queue",
    "cdcd.sink.worker",
    "cdcd.snapshot.reader",
    "cdcd.source.catalog",
    "cdcd.source.connection",
    "cdcd.source.login",
    "cdcd.source.publication",
    "cdcd.source.replication_stream",
    "cdcd.source.session",
    "cdcd.source.slot",
    "cdcd.transaction.spool_file",
}
"""All of the flow's, besides `sink/kafka/`. A new one is a decision: the rest is bytes in, values out, `now` given."""

SPARK_KNOWS = {
    "cdcd.avro.avro_names",
    "cdcd.avro.envelope_fields",
    "cdcd.avro.schema_bounds",
    "cdcd.avro.single_object",
    "cdcd.avro.type_forms",
    "cdcd.progress.records",
    "cdcd.sink.topics",
    "cdcd.snapshot.reader",
    "cdcd.source.connection",
    "cdcd.source.exported_snapshot",
    "cdcd.source.identifiers",
    "cdcd.source.published_tables",
    "cdcd.source.query_runner",
    "cdcd.source.server_errors",
    "cdcd.source.session",
    "cdcd.source.slot_wait",
    "cdcd.source.table_selection",
}
"""Of the flow: the vocabulary of the wire format and of the progress record, and a snapshot at an exact LSN."""

each_module = pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)


def does_io(name: str) -> bool:
    return name in IO_MODULES or name.startswith("cdcd.sink.kafka.")


def test_every_package_has_its_place_in_the_order() -> None:
    assert {module.package for module in modules()} - {""} == set(ORDER)


def test_only_the_ground_lies_directly_under_cdcd() -> None:
    assert {module.name for module in modules() if not module.package} - {"cdcd.__main__"} == GROUND


@each_module
def test_a_module_imports_only_packages_before_its_own(module: Module) -> None:
    if not module.package:
        return
    here = ORDER.index(module.package)
    for name in sorted(module.ours):
        package = name.split(".")[1] if name.count(".") else ""
        if package in ORDER:
            assert ORDER.index(package) <= here, f"{module.name} imports {name}, against the flow"
        else:
            assert name in GROUND, f"{module.name} imports {name}"


@each_module
def test_a_module_of_the_flow_imports_no_io_of_another_package(module: Module) -> None:
    if module.package in FLOW:
        foreign = {name for name in module.ours if not name.startswith(f"cdcd.{module.package}")}
        assert [name for name in foreign if does_io(name)] == []


def test_the_modules_of_the_flow_that_do_io_are_the_ones_listed() -> None:
    flow = [module for module in modules() if module.package in FLOW]
    found = {module.name for module in flow if {name.partition(".")[0] for name in module.imports} & DOES_IO}
    assert {name for name in found if not name.startswith("cdcd.sink.kafka.")} == IO_MODULES


def test_only_sink_kafka_imports_confluent_kafka() -> None:
    found = {module.name for module in modules() if [n for n in module.imports if n.startswith("confluent_kafka")]}
    allowed = {
        "cdcd.avro.registry_requests", "cdcd.schema_registry_client",  # its client of the schema registry
        "cdcd.build_info",  # its version
        "cdcd.reading.consumer",  # the commands read topics with it
    }  # fmt: skip
    assert {name for name in found if not name.startswith("cdcd.sink.kafka.")} <= allowed


def test_only_spark_imports_pyspark_and_it_knows_the_wire_format_alone() -> None:
    for module in modules():
        here = module.package == "spark"
        assert here or not [name for name in module.imports if name.startswith("pyspark")], module.name
        if here:
            foreign = {name for name in module.ours if name.split(".")[1:2] and name.split(".")[1] in FLOW}
            assert foreign <= SPARK_KNOWS, module.name


def test_no_hot_module_does_io() -> None:
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["hooks"]["custom"]
    hot = {path for glob in hook["compile"] for path in ROOT.glob(glob)}
    hot -= {path for glob in hook["exclude"] for path in ROOT.glob(glob)}
    assert hot
    assert [module.name for module in modules() if module.path in hot and does_io(module.name)] == []


@each_module
def test_the_flow_never_sees_the_settings(module: Module) -> None:
    if module.package in FLOW:
        assert not [name for name in module.imports if name.startswith("cdcd.config")]


def test_no_consumer_gets_the_changes_of_a_relation_but_behind_its_masks() -> None:
    found = {module.name for module in modules() if ".open_relation(" in module.path.read_text()}
    assert found == {
        "cdcd.transaction.masked_changes",  # the one way
        "cdcd.transaction.headed_events",  # a consumer itself, which stands behind the masks
        "cdcd.outbox.outbox_events",  # the same
        "cdcd.transaction.spooled_transactions",  # a router's, which goes that way
        "cdcd.avro.event_encoder",  # its own, for logical messages
    }
