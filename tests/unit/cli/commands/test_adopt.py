"""`cdcd adopt` says where the stream goes on, and what was not proven."""

from __future__ import annotations

import io
import json
from argparse import Namespace
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cdcd.cli.commands.adopt import as_json, as_text, execute
from cdcd.config.settings import Settings
from cdcd.daemon.adoption import Adopted
from cdcd.daemon.adoption_proof import Proof
from cdcd.errors import SettingsError

ADOPTED = Adopted("2", "1", 0x17A42F0, (1 << 32) + 0x17A42F0, Proof.COMPARED)


def test_both_lsns_are_shown() -> None:
    assert as_text(ADOPTED) == (
        "The stream goes on at 0/17A42F0 of the server 2, to whose LSNs the daemon adds 1/0; "
        "the tables are equal to the topics"
    )
    shown = json.loads(as_json(ADOPTED))
    assert (shown["lsn"], shown["server_lsn"], shown["lsn_base"]) == ("1/17A42F0", "0/17A42F0", "1/0")


def test_what_was_not_proven_is_said() -> None:
    said = as_text(replace(ADOPTED, lsn=ADOPTED.server_lsn, proof=Proof.SAID, snapshots=("p.a",), unpublished=("p.b",)))
    assert "were not compared: run cdcd verify" in said
    assert "adds" not in said
    assert said.splitlines()[1:] == [
        "The daemon takes new snapshots for these topics: p.a",
        "No published table here writes to these topics: p.b",
    ]


def test_what_is_to_be_repaired_is_said_with_the_command() -> None:
    assert "the daemon compares the tables with the topics" in as_text(replace(ADOPTED, proof=Proof.REPAIRED))


def test_a_server_that_kafka_knows_is_not_recorded_again() -> None:
    assert as_text(replace(ADOPTED, is_new=False)) == (
        "Kafka knows this server already, so nothing was recorded. Run: cdcd run"
    )


@pytest.mark.parametrize("repair", [False, True])
def test_events_that_cannot_be_compared_leave_the_other_ways(repair: bool) -> None:
    sink = {"bootstrap_servers": "k", "format": "debezium", "encoding": "json"}
    loaded: Any = SimpleNamespace(settings=Settings(source={"dsn": "host=db"}, sink=sink))
    with pytest.raises(SettingsError) as refused:
        execute(Namespace(drained=False, resnapshot=False, repair=repair), lambda: loaded, io.StringIO())
    assert "--resnapshot" in refused.value.hint
    assert "--drained" in refused.value.hint
