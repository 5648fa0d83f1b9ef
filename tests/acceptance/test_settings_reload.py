"""Settings and secrets change while the daemon streams: it takes them, and every row comes once.

The files lie as the kubelet mounts a ConfigMap and a Secret: behind a symbolic link to a folder, which is replaced as a
whole.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import servers
from psycopg.conninfo import make_conninfo
from support.daemon import Daemon
from support.stream import StreamFixture, Writer, metric, port_of

from cdcd.file_watch import LOOK_EVERY_S

TAKEN = "the next stream begins with them"
REFUSED = "the new settings cannot be used, and the old ones stay in force"


class Volume:
    """A mounted ConfigMap or Secret."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._versions = 0
        folder.mkdir()

    def swap(self, **files: str) -> None:
        """Replace all files at once, as the kubelet does it."""
        self._versions += 1
        version = self.folder / f"..{self._versions}"
        version.mkdir()
        for name, content in files.items():
            (version / name).write_text(content)
        link = self.folder / "..data_tmp"
        link.symlink_to(version.name)
        link.rename(self.folder / "..data")
        for name in files:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(Path("..data") / name)


class Pod:
    """A daemon whose settings file is a ConfigMap, and whose DSN is a Secret."""

    def __init__(self, stream: StreamFixture, folder: Path, dsn: str) -> None:
        self._secret, self._config = Volume(folder / "secret"), Volume(folder / "config")
        self.daemon: Daemon = stream.daemon()
        text = re.sub(r"(?m)^dsn = .*\n", "", self.daemon.config.read_text())
        self._text = f"secrets_dir = {json.dumps(str(self._secret.folder))}\n{text}"
        self.give(dsn)
        self.configure()
        self.daemon.config = self._config.folder / "cdcd.toml"

    def give(self, dsn: str) -> None:
        """Replace the Secret."""
        self._secret.swap(source__dsn=dsn)

    def configure(self, **more: str) -> None:
        """Replace the ConfigMap; `more` has a line for a section."""
        text = self._text
        for section, line in more.items():
            text = re.sub(rf"(?m)^{line.partition(' ')[0]} = .*\n", "", text)
            head = f"[{section}]\n"
            text = text.replace(head, f"{head}{line}\n") if head in text else f"{text}{head}{line}\n"
        self._config.swap(**{"cdcd.toml": text})

    def reload(self) -> None:
        """Ask for what would come by itself some seconds later."""
        self.daemon.signal(signal.SIGHUP)

    def wait_for(self, text: str, times: int = 1) -> None:
        self.daemon.until(lambda: self.daemon.log.read_text().count(text) >= times, f"{times} of {text!r}", 40)

    @property
    def streams(self) -> int:
        return self.daemon.log.read_text().count("going on")


@pytest.fixture(scope="module")
def guarded() -> Iterator[servers.PostgreSQL]:
    """Start a PostgreSQL that wants a password of the role `cdcd`."""
    with servers.PostgreSQL(18, fsync=False) as server:
        hba = server.data / "pg_hba.conf"
        hba.write_text("host all cdcd 127.0.0.1/32 scram-sha-256\n" + hba.read_text())
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute("CREATE ROLE cdcd SUPERUSER LOGIN REPLICATION PASSWORD 'first'")
            admin.execute("SELECT pg_reload_conf()")
        yield server


@pytest.fixture
def guarded_stream(guarded: servers.PostgreSQL, broker: str, prefix: str, tmp_path: Path) -> Iterator[StreamFixture]:
    name = prefix.replace("-", "_")
    with psycopg.connect(guarded.dsn(), autocommit=True) as admin:
        admin.execute("ALTER ROLE cdcd PASSWORD 'first'")
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
    with StreamFixture(guarded.dsn(name), broker, prefix, tmp_path) as stream:
        stream.sql(Writer.TABLE)
        yield stream


@pytest.fixture
def pod(guarded_stream: StreamFixture, tmp_path: Path) -> Pod:
    pod = Pod(guarded_stream, tmp_path / "pod-volumes", with_password(guarded_stream.dsn, "first"))
    pod.daemon.start()
    pod.wait_for("going on")
    return pod


@pytest.fixture(autouse=True)
def _volumes(tmp_path: Path) -> None:
    (tmp_path / "pod-volumes").mkdir()


def with_password(dsn: str, password: str) -> str:
    return make_conninfo(dsn, user="cdcd", password=password)


def test_settings_and_a_password_that_are_swapped_under_load_lose_and_double_nothing(
    guarded_stream: StreamFixture, pod: Pod
) -> None:
    stream = guarded_stream
    with Writer(stream.dsn):
        pod.configure(sink="transaction_rows_max = 50")
        pod.wait_for("going on", 2)
        stream.sql("ALTER ROLE cdcd PASSWORD 'hunter2'")
        pod.give(with_password(stream.dsn, "hunter2"))
        pod.wait_for("going on", 3)
        pod.configure(sink="transaction_rows_max = 70", snapshot="workers = 3")
        pod.reload()
        pod.wait_for("going on", 4)
    pod.daemon.wait_until_confirmed()
    log = pod.daemon.log.read_text()
    assert f"{TAKEN}: snapshot.workers, sink.transaction_rows_max\n" in log
    assert f"{TAKEN}: source.dsn\n" in log
    assert "hunter2" not in log
    assert "starting again" not in log, "a stream was cut, and did not end in order"
    assert pod.daemon.stop() == 0
    assert len(stream.check(("public", "t"))) > 100


def test_what_is_wrong_in_new_settings_is_said_once_and_the_old_ones_stay_in_force(
    guarded_stream: StreamFixture, pod: Pod
) -> None:
    stream = guarded_stream
    pod.configure(sink="partitons = 3")
    pod.wait_for(f"{REFUSED}: There is no setting sink.partitons")
    pod.configure(sink="queue_bytes_max = 1")
    pod.wait_for(f"{REFUSED}: sink.queue_bytes_max must be 1,048,576 or more")
    pod.configure(snapshot="workers = 3", monitoring="stalled_after_s = 77")
    pod.reload()
    pod.wait_for(f"{TAKEN}: snapshot.workers, monitoring.stalled_after_s")
    assert metric(pod.daemon, "cdcd_settings_refused") == 0
    pod.wait_for("going on", 2)
    pod.give(with_password(stream.dsn, "wrong"))
    pod.reload()
    pod.wait_for(f"{REFUSED}: PostgreSQL refused the login")
    stream.sql("INSERT INTO t VALUES (1)")
    pod.daemon.wait_until_confirmed()
    pod.give(with_password(stream.dsn, "first"))
    pod.configure(source='publication = "other"')
    pod.reload()
    pod.wait_for(f"{REFUSED}: source.publication has changed, which cdcd reads only at its start")
    assert pod.streams == 2, "nothing that is wrong ends a stream"
    assert metric(pod.daemon, "cdcd_settings_refused") == 1
    assert pod.daemon.log.read_text().count("partitons") == 1
    assert pod.daemon.stop() == 0
    stream.check(("public", "t"))


def test_a_password_that_is_changed_at_the_server_first_is_taken_from_the_secret_without_an_exit(
    guarded_stream: StreamFixture, pod: Pod
) -> None:
    stream = guarded_stream
    with Writer(stream.dsn):
        stream.sql("ALTER ROLE cdcd PASSWORD 'hunter2'", f"SELECT pg_terminate_backend({stream.walsender()})")
        pod.wait_for("PostgreSQL refused the login")
        pod.give(with_password(stream.dsn, "hunter2"))
        pod.wait_for("going on", 2)
    pod.daemon.wait_until_confirmed()
    assert pod.daemon.stop() == 0
    stream.check(("public", "t"))


def test_the_level_of_the_log_needs_no_new_stream(guarded_stream: StreamFixture, pod: Pod) -> None:
    port = port_of(pod.daemon)
    pod.configure(log='level = "debug"')
    pod.reload()
    pod.wait_for("the settings have changed, and are in force: log.level")
    pod.configure(log='level = "warning"')
    pod.daemon.until(lambda: quiet(guarded_stream, pod.daemon), "a quiet log", 3 * LOOK_EVERY_S)
    assert pod.streams == 1
    assert port_of(pod.daemon) == port
    assert pod.daemon.stop() == 0
    guarded_stream.check(("public", "t"))


def quiet(stream: StreamFixture, daemon: Daemon) -> bool:
    """Whether rows that are published leave no line in the log."""
    before = daemon.log.stat().st_size
    stream.sql("INSERT INTO t SELECT COALESCE(max(id), 0) + 1 FROM t")
    daemon.wait_until_confirmed()
    return daemon.log.stat().st_size == before
