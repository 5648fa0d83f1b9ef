"""`cdcd slot` and its `--json`, shell completion, requests without a daemon, and the findings of `cdcd check`."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import Any

import psycopg
import pytest
import servers
from confluent_kafka.admin import AdminClient
from support.daemon import cdcd, command, environment
from support.stream import StreamFixture

from cdcd.cli.commands.daemon_wait import COMES_WITHIN_S


def test_a_slot_is_made_shown_and_dropped_but_not_where_changes_would_be_lost(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = stream.daemon()
    assert "does not exist, and Kafka holds nothing of it. cdcd slot create" in cdcd(daemon, "slot", "status", code=1)
    assert "there is no publication cdcd" in cdcd(daemon, "slot", "create", code=1)
    stream.sql("CREATE PUBLICATION cdcd FOR TABLE t")
    made = json.loads(cdcd(daemon, "slot", "create", "--two-phase", "--failover", "--json"))
    assert (made["name"], made["two_phase"], made["failover"], made["active"]) == (stream.slot, True, True, False)
    assert "already exists" in cdcd(daemon, "slot", "create", code=1)
    said = cdcd(daemon, "slot", "drop", code=1)
    assert f"Kafka holds nothing of the slot {stream.slot} (pgoutput, database" in said
    assert "add --force" in said
    assert cdcd(daemon, "slot", "drop", "--force").startswith(f"dropped the slot {stream.slot} (pgoutput, database")
    assert "does not exist" in cdcd(daemon, "slot", "drop", code=1)
    cdcd(daemon, "slot", "create")
    with daemon.start():
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t VALUES (1)")
        daemon.wait_until_confirmed()
        said = cdcd(daemon, "slot", "status")
        assert "in use by PostgreSQL's process" in said
        assert "Kafka holds      all up to" in said
        assert "is in use by" in cdcd(daemon, "slot", "drop", "--force", code=1)
        assert daemon.stop() == 0
    shown = json.loads(cdcd(daemon, "slot", "status", "--json"))
    assert shown["lost"] is False
    assert shown["kafka_lsn"]
    assert "later changes would be lost" in cdcd(daemon, "slot", "drop", code=1)
    assert cdcd(daemon, "slot", "drop", "--force", "--json") == json.dumps({"dropped": stream.slot}) + "\n"
    found = [json.loads(line) for line in cdcd(daemon, "check", "--json", code=1).splitlines()]
    [gone] = [finding for finding in found if finding["code"] == "slot-lost"]
    assert gone["level"] == "error"
    assert "does not exist any more" in gone["message"]
    for action in ("status", "create"):
        said = cdcd(daemon, "slot", action, code=1)
        assert f"{gone['message']}. {gone['hint']} [slot-lost]" in said
        assert "cdcd slot create" not in said
    assert stream.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{stream.slot}'") == []


def test_a_slot_that_was_lost_is_made_again_only_where_the_daemon_mends_the_loss(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION cdcd FOR TABLE t")
    daemon = stream.daemon()
    cdcd(daemon, "slot", "create")
    with daemon.start():
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t VALUES (1, 'old'), (2, 'old')")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    cdcd(daemon, "slot", "drop", "--force")
    stream.sql("UPDATE t SET v = 'new' WHERE id = 1")
    may_not = stream.daemon(source={"create": False})
    for action in ("check", "slot create"):
        said = cdcd(may_not, *action.split(), code=1)
        assert "[slot-lost]" in said
        assert "slot-missing" not in said
    assert "Run cdcd slot create" in cdcd(stream.daemon(source={"create": False}), "run", code=1)
    mends = stream.daemon(source={"create": False, "on_slot_lost": "repair"})
    assert "cdcd run makes it again, and publishes the rows in which" in cdcd(mends, "slot", "status", code=1)
    assert "[slot-missing]" in cdcd(mends, "check", code=1)
    made = subprocess.run(
        [*command(), "slot", "create", "--config", str(mends.config)],
        capture_output=True, text=True, check=True, env=environment(),
    )  # fmt: skip
    assert "the changes since then are gone. `cdcd run` publishes the rows in which tables and" in made.stderr
    assert "Kafka holds      all up to" in made.stdout
    with mends.start():
        mends.wait_for_log("going on")
        cdcd(mends, "verify")  # it waits for the repair, and ends with 1 if a row differs
        assert mends.stop() == 0


def test_no_slot_is_made_where_the_progress_is_lost(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION cdcd FOR TABLE t")
    daemon = stream.daemon()
    with daemon.start():
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t VALUES (1)")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    cdcd(daemon, "slot", "drop", "--force")
    admin = AdminClient({"bootstrap.servers": stream.broker})
    for deleted in admin.delete_topics([f"{stream.prefix}.progress"]).values():
        deleted.result(10)
    for action in ("slot status", "slot create", "check"):
        said = cdcd(daemon, *action.split(), code=1)
        assert f"Kafka has no progress of the slot {stream.slot}, but " in said
        assert "[progress-lost]" in said
    assert stream.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{stream.slot}'") == []


@pytest.mark.whole
def test_a_slot_that_is_missing_is_not_judged_without_kafka(stream: StreamFixture) -> None:
    away = stream.daemon()
    nowhere = f"127.0.0.1:{servers.free_port()}"
    away.config.write_text(away.config.read_text().replace(stream.broker, nowhere))
    for action in ("status", "create"):
        said = cdcd(away, "slot", action, code=1)
        assert f"there is no slot {stream.slot}, and Kafka does not say whether changes of it are lost: " in said
        assert "[kafka-" in said


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("kind", ["plugin", "database", "physical"])
def test_a_slot_of_another_program_is_told_for_what_it_is_and_stays(
    stream: StreamFixture, postgres: servers.PostgreSQL, kind: str
) -> None:
    name = stream.slot
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION cdcd FOR TABLE t")
    with psycopg.connect(postgres.dsn() if kind == "database" else stream.dsn, autocommit=True) as owner:
        if kind == "physical":
            owner.execute("SELECT pg_create_physical_replication_slot(%s, true)", [name])
        else:
            plugin = "test_decoding" if kind == "plugin" else "pgoutput"
            owner.execute("SELECT pg_create_logical_replication_slot(%s, %s)", [name, plugin])
        stream.sql("INSERT INTO t SELECT generate_series(1, 20000)")
        words = {"plugin": "of plugin test_decoding", "database": "of the database", "physical": "is physical"}[kind]
        try:
            daemon = stream.daemon()
            dropped = cdcd(daemon, "slot", "drop", code=1)
            assert words in dropped
            assert "MiB of WAL that nobody has read" in dropped
            assert words in cdcd(daemon, "check", code=1)
            done = stream.run()
            assert (done.returncode, words in done.stderr) == (1, True), done.stderr
            assert stream.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{name}'") == [(1,)]
        finally:
            cdcd(daemon, "slot", "drop", "--force")
    assert stream.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{name}'") == []


@pytest.mark.whole
def test_a_request_without_a_daemon_ends_with_a_hint_and_asks_for_nothing(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    stream.publish("cdcd", "t")
    daemon = stream.daemon()
    said = cdcd(daemon, "snapshot", "public.t", code=1)
    assert f"the slot {stream.slot} does not exist, so there is no daemon that takes the request" in said
    cdcd(daemon, "slot", "create")
    began = time.monotonic()
    said = cdcd(daemon, "snapshot", "public.t", code=1)
    assert COMES_WITHIN_S <= time.monotonic() - began < COMES_WITHIN_S + 20
    assert f"no daemon uses the slot {stream.slot}; waiting 10 s for one" in said
    assert f"no daemon uses the slot {stream.slot}, so nobody takes the request. Start the daemon: cdcd run" in said
    assert stream.sql("SELECT count(*) FROM cdcd.requests") == [(0,)]
    assert cdcd(daemon, "snapshot", "public.t", "--no-wait") == "requested public.t\n"
    daemon.start().wait_for_log("took a request")
    assert cdcd(daemon, "snapshot", "public.t") == "done public.t (0 rows)\n"
    assert daemon.stop() == 0


def test_a_daemon_that_is_slow_to_take_a_request_is_waited_for_with_words(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    daemon.signal(signal.SIGSTOP)
    arguments = [*command(), "snapshot", "public.t", "--config", str(daemon.config)]
    said: list[str] = []
    with subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment()
    ) as asking:
        assert asking.stderr is not None
        for line in asking.stderr:
            said.append(line)
            if "waiting until the daemon comes to the request in_kafka=0/" in line:
                daemon.signal(signal.SIGCONT)
    assert asking.returncode == 0, said
    assert any("waiting until the daemon comes to the request" in line for line in said)
    assert daemon.stop() == 0


def test_check_covers_everything_that_support_would_ask_for(stream: StreamFixture) -> None:
    stream.sql(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE blind (id int)",
        "CREATE TABLE nothing (id int PRIMARY KEY)",
        "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
        "CREATE PUBLICATION cdcd FOR ALL TABLES WITH (publish = 'insert, update, delete')",
    )
    with psycopg.connect(stream.dsn) as writing:
        writing.execute("INSERT INTO t VALUES (1)")
        writing.execute("SELECT pg_sleep(5.2)")  # check warns about a transaction that is some seconds old
        found = [json.loads(line) for line in cdcd(stream.daemon(), "check", "--json").splitlines()]
    about: dict[str, list[dict[str, Any]]] = {}
    for finding in found:
        assert finding.keys() == {"level", "about", "message", "hint", "code"}
        assert bool(finding["hint"]) == (finding["level"] != "ok")
        about.setdefault(finding["about"], []).append(finding)
    identities = about["replica identity"]
    assert {finding["level"] for finding in identities} == {"warning"}, "the daemon itself can stream these tables"
    assert {finding["message"].split()[0] for finding in identities} == {'"public"."blind"', '"public"."nothing"'}
    assert any("leaves out truncate" in finding["message"] for finding in about["publication"])
    assert any("waits for the write transaction" in finding["message"] for finding in about["slot"])
    assert {
        "server",
        "wal_level",
        "retention",
        "brokers",
        "transactions",
        "sizes",
        "topics",
        "progress",
    } <= about.keys()


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_commands(shell: str) -> None:
    done = subprocess.run([*command(), "completion", shell], capture_output=True, text=True, check=True)
    for word in ("unpark", "peek", "--from-beginning", "--two-phase"):
        assert word in done.stdout
    if shell == "bash":
        complete = f"{done.stdout}\nCOMP_WORDS=(cdcd un); COMP_CWORD=1; _shtab_cdcd; echo ${{COMPREPLY[@]}}"
        assert subprocess.run(["bash", "-c", complete], capture_output=True, text=True, check=True).stdout == "unpark\n"
