"""The replication connection against real servers, the oldest and the newest version."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql
from servers import PostgreSQL
from support.fix_postgres import Database

from cdcd.errors import CdcdError, GapError, PostgresUnavailable, RequestRejected, SettingsError
from cdcd.lsn import parse_lsn
from cdcd.source.replication_stream import ReplicationStream
from cdcd.source.server_errors import SlotActive, SlotWaits
from cdcd.source.slot import Slot
from cdcd.source.stream_messages import PrimaryKeepalive, XLogData, decode_server

both = pytest.mark.postgres_versions("oldest", "newest")
Message = XLogData | PrimaryKeepalive
OPTIONS = {"proto_version": "1", "publication_names": '"p"', "binary": "true"}


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR TABLE t")
    return database


def slot_of(database: Database) -> str:
    """Slots are the server's, not the database's: a name for each test."""
    return f"s_{database.name}"


@pytest.fixture
def stream(shop: Database) -> Iterator[ReplicationStream]:
    """A stream of `shop` from a slot that was just made."""
    with ReplicationStream(shop.dsn) as walsender:
        walsender.create_slot(slot_of(shop))
        walsender.start(slot_of(shop), 0, OPTIONS)
        yield walsender


def read_until(
    walsender: ReplicationStream, wanted: Callable[[Message], bool], timeout_s: float = 10, wait_s: float = 0.1
) -> list[Message]:
    """All messages up to the first one that is wanted."""
    found = []
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for frame in walsender.read(10_000, 1 << 20):
            found.append(decode_server(frame))
            if wanted(found[-1]):
                return found
        walsender.wait(wait_s)
    raise AssertionError(f"not seen within {timeout_s} s, but {found}")


def a_commit(message: Message) -> bool:
    return isinstance(message, XLogData) and message.data[:1] == b"C"


def read_until_error(walsender: ReplicationStream, timeout_s: float = 10) -> CdcdError:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            walsender.read(10_000, 1 << 20)
            walsender.wait(0.1)
        except CdcdError as error:
            return error
    raise AssertionError(f"the stream went on for {timeout_s} s")


def confirmed(database: Database) -> int | None:
    with Slot(database.dsn, slot_of(database)) as slot:
        state = slot.state()
        return state.confirmed_flush_lsn if state else None


@both
def test_identify_names_the_server_the_database_and_where_its_wal_is(shop: Database) -> None:
    with ReplicationStream(shop.dsn) as walsender:
        identity = walsender.identify()
        [(system_id, wal_lsn)] = shop.execute(
            "SELECT system_identifier::text, pg_current_wal_lsn()::text FROM pg_control_system()"
        )
        assert (identity.system_id, identity.dbname, identity.timeline) == (system_id, shop.name, 1)
        assert 0 < identity.wal_lsn <= parse_lsn(wal_lsn)
        assert walsender.server_version // 10_000 == shop.server.version
        assert walsender.encoding == "UTF8"


@both
def test_every_change_of_a_transaction_is_read_in_order(shop: Database, stream: ReplicationStream) -> None:
    shop.execute("INSERT INTO t SELECT g, repeat('x', g) FROM generate_series(1, 3000) g")
    messages = read_until(stream, a_commit)
    inserted = [m for m in messages if isinstance(m, XLogData) and m.data[:1] == b"I"]
    assert [int.from_bytes(m.data[13:17]) for m in inserted] == list(range(1, 3001))
    assert all(m.start for m in inserted)
    assert [m.start for m in inserted] == sorted(m.start for m in inserted)


@both
def test_the_bounds_of_a_read_hold_and_nothing_is_left_behind(shop: Database, stream: ReplicationStream) -> None:
    shop.execute("INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 500) g")
    time.sleep(0.3)
    rows, sizes = 0, []
    deadline = time.monotonic() + 10
    while rows < 500 and time.monotonic() < deadline:
        # What libpq holds is invisible to poll: `wait` must say so at once, or this takes 500 seconds.
        assert stream.wait(1.0)
        frames = stream.read(7, 1_000)
        assert len(frames) <= 7
        assert sum(map(len, frames[:-1])) < 1_000
        rows += sum(frame[25:26] == b"I" for frame in frames)
        sizes.append(len(frames))
    assert rows == 500
    assert max(sizes) > 1


@both
def test_settings_of_the_database_do_not_reach_the_text_of_values(shop: Database) -> None:
    shop.execute(
        f"ALTER DATABASE {shop.name} SET DateStyle = 'German'",
        f"ALTER DATABASE {shop.name} SET TimeZone = 'Asia/Seoul'",
        f"ALTER DATABASE {shop.name} SET bytea_output = 'escape'",
        f"ALTER DATABASE {shop.name} SET IntervalStyle = 'iso_8601'",
        f"ALTER DATABASE {shop.name} SET extra_float_digits = -3",
        "CREATE TABLE r (id int PRIMARY KEY, a timestamptz, b bytea, c interval, d double precision, e regclass)",
        "ALTER PUBLICATION p ADD TABLE r",
    )
    with ReplicationStream(shop.dsn) as walsender:
        walsender.create_slot(slot_of(shop))
        walsender.start(slot_of(shop), 0, {**OPTIONS, "binary": "false"})
        shop.execute(
            "INSERT INTO r VALUES (1, '2026-01-31 12:00+00', '\\xff00', '1 day 2 hours', 0.1::float8 + 0.2, 'r')"
        )
        messages = read_until(walsender, a_commit)
        [insert] = [m.data for m in messages if isinstance(m, XLogData) and m.data[:1] == b"I"]
    for text in (b"2026-01-31 12:00:00+00", b"\\xff00", b"1 day 02:00:00", b"0.30000000000000004", b"public.r"):
        assert text in insert


@both
def test_a_sql_ascii_database_streams_its_bytes_as_they_are(postgres: PostgreSQL) -> None:
    ascii_db = Database(f"ascii_{os.getpid()}", postgres)
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(
            f"CREATE DATABASE {ascii_db.name} TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    try:
        ascii_db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION p FOR TABLE t")
        with ReplicationStream(ascii_db.dsn) as walsender:
            assert walsender.encoding == "SQL_ASCII"
            walsender.create_slot(slot_of(ascii_db))
            walsender.start(slot_of(ascii_db), 0, OPTIONS)
            ascii_db.execute("INSERT INTO t VALUES (1, E'\\xff\\xfe')")
            messages = read_until(walsender, a_commit)
            assert any(m.data.endswith(b"\xff\xfe") for m in messages if isinstance(m, XLogData))
    finally:
        ascii_db.drop()


@both
def test_a_confirmed_position_reaches_the_slot(shop: Database, stream: ReplicationStream) -> None:
    shop.execute("INSERT INTO t VALUES (1, 'x')")
    commit = read_until(stream, a_commit)[-1]
    assert isinstance(commit, XLogData)
    end_lsn = int.from_bytes(commit.data[10:18])
    stream.send_status(end_lsn, end_lsn, end_lsn, reply=True)
    read_until(stream, lambda message: isinstance(message, PrimaryKeepalive))
    assert confirmed(shop) == end_lsn


def test_a_status_whose_positions_contradict_each_other_is_refused(shop: Database, stream: ReplicationStream) -> None:
    with pytest.raises(ValueError, match="applied"):
        stream.send_status(10, 11, 0)


@both
def test_silence_of_the_reader_is_survived_while_status_is_sent(shop: Database) -> None:
    dsn = psycopg.conninfo.make_conninfo(shop.dsn, options="-c wal_sender_timeout=1s")
    with ReplicationStream(dsn) as walsender:
        walsender.create_slot(slot_of(shop))
        # More than all socket buffers hold: the server stands still in the middle of it. Written before the stream
        # starts, because nobody sends status while the INSERT runs.
        shop.execute("INSERT INTO t SELECT g, repeat('x', 2000) FROM generate_series(1, 30000) g")
        walsender.start(slot_of(shop), 0, OPTIONS)
        until = time.monotonic() + 3.5
        while time.monotonic() < until:
            walsender.send_status(1, 1, 1)
            assert walsender.wait(0.3, reading=False) == []
        rows, deadline = 0, time.monotonic() + 60
        while rows < 30_000:
            assert time.monotonic() < deadline
            rows += sum(frame[25:26] == b"I" for frame in walsender.read(1_000, 1 << 20))
            walsender.send_status(1, 1, 1)
            walsender.wait(0.1)


@both
def test_wal_sender_timeout_is_a_lost_server(shop: Database) -> None:
    dsn = psycopg.conninfo.make_conninfo(shop.dsn, options="-c wal_sender_timeout=1s")
    with ReplicationStream(dsn) as walsender:
        walsender.create_slot(slot_of(shop))
        walsender.start(slot_of(shop), 0, OPTIONS)
        assert isinstance(read_until_error(walsender), PostgresUnavailable)


@both
def test_a_transaction_may_take_longer_to_decode_than_a_session_may_have_one_open(shop: Database) -> None:
    if shop.server.version < 17:
        pytest.skip("transaction_timeout is of PostgreSQL 17")
    shop.execute(f"ALTER DATABASE \"{shop.name}\" SET transaction_timeout TO '300ms'")
    with ReplicationStream(shop.dsn) as walsender:
        walsender.create_slot(slot_of(shop))
        walsender.start(slot_of(shop), 0, OPTIONS)
        with shop.connect() as connection:
            connection.execute("SET transaction_timeout TO 0")
            connection.execute("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 30000) g")
        walsender.wait(10)
        time.sleep(0.6)  # the socket is full, and the server waits in the middle of the transaction
        read_until(walsender, a_commit, 30)


def test_a_server_that_takes_nothing_does_not_block_the_sender(shop: Database, stream: ReplicationStream) -> None:
    stream.read(10, 1 << 20)  # what came with the answer to START_REPLICATION
    os.kill(stream.backend_pid, signal.SIGSTOP)
    try:
        took = []
        for position in range(1, 200_000):
            began = time.monotonic()
            stream.send_status(position, position, position)
            took.append(time.monotonic() - began)
        assert max(took) < 1
        assert stream.wait(0.05) == []
    finally:
        os.kill(stream.backend_pid, signal.SIGCONT)
    shop.execute("INSERT INTO t VALUES (1, 'x')")
    commit = read_until(stream, a_commit, 60)[-1]
    assert isinstance(commit, XLogData)
    end_lsn = int.from_bytes(commit.data[10:18])
    stream.send_status(end_lsn, end_lsn, end_lsn, reply=True)
    deadline = time.monotonic() + 60
    while confirmed(shop) != end_lsn:
        assert time.monotonic() < deadline
        stream.read(10_000, 1 << 20)
        stream.wait(0.1)


@both
def test_a_wake_descriptor_ends_a_wait(stream: ReplicationStream) -> None:
    read_end, write_end = os.pipe()
    try:
        timer = threading.Timer(0.2, os.write, (write_end, b"!"))
        timer.start()
        began = time.monotonic()
        while read_end not in stream.wait(10, read_end):
            stream.read(100, 1000)
        assert time.monotonic() - began < 5
        timer.join()
        assert stream.wait(10, read_end, reading=False) == [read_end]
    finally:
        os.close(read_end)
        os.close(write_end)


@both
def test_an_active_slot_is_told_apart_with_the_pid_that_has_it(shop: Database, stream: ReplicationStream) -> None:
    with ReplicationStream(shop.dsn) as second:
        with pytest.raises(SlotActive) as caught:
            second.start(slot_of(shop), 0, OPTIONS)
        assert caught.value.pid == stream.backend_pid
        # The same connection gets it as soon as it is free.
        assert stream.stop()
        stream.close()
        deadline = time.monotonic() + 10
        while True:
            try:
                second.start(slot_of(shop), 0, OPTIONS)
                break
            except SlotActive:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        shop.execute("INSERT INTO t VALUES (1, 'x')")
        read_until(second, a_commit)


@both
def test_commands_work_again_after_a_stop(shop: Database, stream: ReplicationStream) -> None:
    shop.execute("INSERT INTO t VALUES (1, 'x')")
    read_until(stream, a_commit)
    assert stream.stop()
    assert stream.identify().dbname == shop.name


@both
def test_a_terminated_walsender_is_a_lost_server(shop: Database, stream: ReplicationStream) -> None:
    shop.execute("INSERT INTO t VALUES (1, 'x')")
    read_until(stream, a_commit)
    shop.execute(f"SELECT pg_terminate_backend({stream.backend_pid})")
    error = read_until_error(stream)
    assert isinstance(error, PostgresUnavailable)
    assert "terminating connection" in error.message
    with pytest.raises(PostgresUnavailable):
        stream.read(1, 1)
    with pytest.raises(PostgresUnavailable):
        stream.send_status(1, 1, 1)


@both
def test_what_came_before_the_end_is_still_read(shop: Database, stream: ReplicationStream) -> None:
    shop.execute("INSERT INTO t VALUES (1, 'x')")
    deadline = time.monotonic() + 10
    sent = f"SELECT sent_lsn >= pg_current_wal_lsn() FROM pg_stat_replication WHERE pid = {stream.backend_pid}"
    while shop.execute(sent) != [(True,)]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    shop.execute(f"SELECT pg_terminate_backend({stream.backend_pid})")
    time.sleep(0.3)
    read_until(stream, a_commit)
    assert isinstance(read_until_error(stream), PostgresUnavailable)


@both
def test_a_publication_that_did_not_exist_stops_the_stream(shop: Database) -> None:
    with ReplicationStream(shop.dsn) as walsender:
        walsender.create_slot(slot_of(shop))
        walsender.start(slot_of(shop), 0, {**OPTIONS, "publication_names": '"p","nosuch"'})
        shop.execute("INSERT INTO t VALUES (1, 'x')")
        error = read_until_error(walsender)
        assert isinstance(error, RequestRejected), error
        assert "nosuch" in error.message
        assert "pg_replication_slot_advance" in error.hint


@both
def test_a_missing_slot_is_a_gap(shop: Database) -> None:
    with ReplicationStream(shop.dsn) as walsender, pytest.raises(GapError, match="does not exist"):
        walsender.start("nosuch", 0, OPTIONS)


@both
def test_a_slot_of_another_database_is_refused_by_name(shop: Database, postgres: PostgreSQL) -> None:
    with ReplicationStream(shop.dsn) as walsender:
        walsender.create_slot(slot_of(shop))
    with (
        ReplicationStream(postgres.dsn()) as other,
        pytest.raises(RequestRejected, match=f'belongs to the database "{shop.name}"'),
    ):
        other.start(slot_of(shop), 0, OPTIONS)


@both
def test_options_that_the_server_does_not_know_are_refused(shop: Database) -> None:
    with ReplicationStream(shop.dsn) as walsender:
        walsender.create_slot(slot_of(shop))
        with pytest.raises(RequestRejected, match="nosuch"):
            walsender.start(slot_of(shop), 0, {**OPTIONS, "nosuch": "it's \\ odd"})
        walsender.start(slot_of(shop), 0, OPTIONS)


@both
def test_an_existing_slot_is_not_made_again(shop: Database) -> None:
    with ReplicationStream(shop.dsn) as walsender:
        walsender.create_slot(slot_of(shop))
        with pytest.raises(RequestRejected, match="already exists"):
            walsender.create_slot(slot_of(shop))
        with pytest.raises(RequestRejected, match="no name for a slot"):
            walsender.create_slot('Bad"Näme')


@both
def test_an_exported_snapshot_shows_the_tables_at_the_consistent_point(shop: Database) -> None:
    shop.execute("INSERT INTO t VALUES (1, 'before')")
    with ReplicationStream(shop.dsn) as walsender:
        created = walsender.create_temporary_slot(slot_of(shop))
        assert created.snapshot
        shop.execute("INSERT INTO t VALUES (2, 'after')")
        with shop.connect(autocommit=False) as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(created.snapshot))
            assert reader.execute("SELECT v FROM t").fetchall() == [("before",)]
        walsender.start(slot_of(shop), created.consistent_lsn, OPTIONS)
        inserts = [m.data for m in read_until(walsender, a_commit) if isinstance(m, XLogData) and m.data[:1] == b"I"]
        assert len(inserts) == 1
        assert inserts[0].endswith(b"after")


@both
def test_a_slot_that_waits_for_a_writer_names_it_and_leaves_nothing(shop: Database) -> None:
    writer = shop.connect(autocommit=False, application_name="slow one")
    writer.execute("INSERT INTO t VALUES (1, 'x')")
    with ReplicationStream(shop.dsn) as walsender, Slot(shop.dsn, slot_of(shop)) as slot:
        with pytest.raises(SlotWaits) as caught:
            walsender.create_slot(slot.name, timeout_s=0.7, blockers=slot.writers)
        [who] = [who for who in caught.value.blockers if f"session {writer.info.backend_pid} (slow one)" in who]
        assert ", for 00:00:0" in who
        assert who.endswith(", idle in transaction: INSERT INTO t VALUES (1, '...')")
        assert slot.state() is None
        writer.rollback()
        assert walsender.create_slot(slot_of(shop)).consistent_lsn


@both
def test_a_slot_whose_making_is_interrupted_is_not_made_later(shop: Database) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    writer = shop.connect(autocommit=False)
    writer.execute("INSERT INTO t VALUES (1, 'x')")
    with Slot(shop.dsn, slot_of(shop)) as slot:
        with ReplicationStream(shop.dsn) as walsender, pytest.raises(KeyboardInterrupt):
            walsender.create_slot(slot.name, meanwhile=interrupt)
        assert slot.state() is None
        writer.commit()
        time.sleep(0.5)
        assert slot.state() is None


@both
def test_fast_shutdown_ends_promptly_once_all_is_confirmed(
    postgres: PostgreSQL, start_postgres: Callable[..., PostgreSQL]
) -> None:
    server = start_postgres(postgres.version)
    with psycopg.connect(server.dsn(), autocommit=True) as inside:
        inside.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        inside.execute("CREATE PUBLICATION p FOR TABLE t")
    with ReplicationStream(server.dsn()) as walsender:
        walsender.create_slot("s")
        walsender.start("s", 0, OPTIONS)
        with psycopg.connect(server.dsn(), autocommit=True) as inside:
            inside.execute("INSERT INTO t VALUES (1, 'x')")
        read_until(walsender, a_commit)
        began = time.monotonic()
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        time.sleep(1)
        assert stopping.is_alive(), "the server did not wait for the confirmation"
        error = None
        while error is None:
            try:
                for frame in walsender.read(1000, 1 << 20):
                    if isinstance(message := decode_server(frame), PrimaryKeepalive):
                        walsender.send_status(message.wal_end, message.wal_end, message.wal_end)
                walsender.wait(0.1)
            except PostgresUnavailable as lost:
                error = lost
        stopping.join()
        assert time.monotonic() - began < 10
    with pytest.raises(PostgresUnavailable):
        ReplicationStream(server.dsn())


@both
def test_wal_level_replica_is_refused_with_its_cure(
    postgres: PostgreSQL, start_postgres: Callable[..., PostgreSQL]
) -> None:
    server = start_postgres(postgres.version, settings={"wal_level": "replica"})
    with ReplicationStream(server.dsn()) as walsender, pytest.raises(RequestRejected) as caught:
        walsender.create_slot("s")
    assert "ALTER SYSTEM SET wal_level = logical" in caught.value.hint


@both
def test_a_role_that_may_not_replicate_is_refused_with_its_cure(shop: Database) -> None:
    shop.execute('CREATE ROLE "no repl" LOGIN')
    try:
        with pytest.raises(RequestRejected) as caught:
            ReplicationStream(shop.server.dsn(shop.name, user="no repl"))
        assert caught.value.hint.endswith('ALTER ROLE "no repl" REPLICATION')
    finally:
        shop.execute('DROP ROLE "no repl"')


@both
def test_a_slot_that_lost_wal_is_a_gap(postgres: PostgreSQL, start_postgres: Callable[..., PostgreSQL]) -> None:
    server = start_postgres(
        postgres.version,
        settings={"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"},
    )
    dsn = server.dsn()
    with ReplicationStream(dsn) as walsender, psycopg.connect(dsn, autocommit=True) as inside, Slot(dsn, "s") as slot:
        walsender.create_slot("s")
        inside.execute("CREATE TABLE big (v text)")
        for _ in range(4):
            inside.execute("INSERT INTO big SELECT repeat('x', 1000) FROM generate_series(1, 20000)")
            inside.execute("SELECT pg_switch_wal()")
            inside.execute("CHECKPOINT")
        state = slot.state()
        assert state is not None
        assert state.lost
        assert state.restart_lsn is None
        with pytest.raises(GapError, match="lost WAL"):
            walsender.start("s", 0, OPTIONS)
        assert slot.drop()


def test_the_first_host_that_answers_is_taken(shop: Database) -> None:
    dsn = f"host=127.0.0.1,127.0.0.1 port=1,{shop.server.port} user=postgres dbname={shop.name}"
    with ReplicationStream(dsn) as walsender:
        assert walsender.identify().dbname == shop.name


def test_a_server_that_is_not_there_is_lost() -> None:
    with pytest.raises(PostgresUnavailable, match="cannot be reached"):
        ReplicationStream("host=127.0.0.1 port=1 user=postgres")


def test_a_dsn_that_cannot_be_read_is_refused_without_its_password() -> None:
    with pytest.raises(SettingsError) as caught:
        ReplicationStream("host=127.0.0.1 password=secret nosuch=1")
    assert "secret" not in str(caught.value)


def test_an_enlarged_read_buffer_takes_more_at_once(shop: Database) -> None:
    shop.execute("INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 0) g")

    def largest(size_bytes: int) -> int:
        with ReplicationStream(shop.dsn) as walsender:
            if size_bytes:
                walsender.enlarge_read_buffer(size_bytes)
            slot = f"{slot_of(shop)}_{size_bytes}"
            walsender.create_temporary_slot(slot)
            walsender.start(slot, 0, OPTIONS)
            shop.execute("DELETE FROM t", "INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 5000) g")
            time.sleep(0.5)
            return sum(map(len, walsender.read(100_000, 1 << 24)))

    assert largest(1 << 20) > 100_000 > largest(0)


@pytest.fixture
def tls_server(start_postgres: Callable[..., PostgreSQL]) -> PostgreSQL:
    """A server of its own that speaks TLS, with a table `t` and its publication."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    server = start_postgres()
    make = "openssl req -new -x509 -days 2 -nodes -subj /CN=localhost -keyout server.key -out server.crt"
    subprocess.run(make.split(), cwd=server.data, check=True, capture_output=True)
    for name in ("server.key", "server.crt"):
        (server.data / name).chmod(0o600)
        shutil.chown(server.data / name, server.data.stat().st_uid)
    with psycopg.connect(server.dsn(), autocommit=True) as inside:
        inside.execute("ALTER SYSTEM SET ssl = on")
        inside.execute("SELECT pg_reload_conf()")
        inside.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        inside.execute("CREATE PUBLICATION p FOR TABLE t")
    time.sleep(0.2)
    return server


@pytest.mark.parametrize("buffer_bytes", [0, 1 << 20])
def test_a_stream_over_tls_does_not_stall_on_bytes_that_poll_cannot_see(
    tls_server: PostgreSQL, buffer_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdcd.source.connection.TLS_WAIT_S", 5.0)
    with (
        psycopg.connect(tls_server.dsn(), autocommit=True) as inside,
        ReplicationStream(tls_server.dsn(sslmode="require")) as walsender,
    ):
        if buffer_bytes:
            walsender.enlarge_read_buffer(buffer_bytes)
        walsender.create_slot("s")
        walsender.start("s", 0, OPTIONS)
        began = time.monotonic()
        for rows in range(100):
            inside.execute("INSERT INTO t VALUES (%s, repeat('x', %s))", [rows, 30_000 + 137 * rows])
            read_until(walsender, a_commit, wait_s=5.0)
        assert time.monotonic() - began < 60, "some rows waited for the timeout"


def test_one_read_over_tls_takes_many_frames_but_no_more_than_it_may(tls_server: PostgreSQL) -> None:
    with (
        psycopg.connect(tls_server.dsn(), autocommit=True) as inside,
        ReplicationStream(tls_server.dsn(sslmode="require")) as walsender,
    ):
        walsender.enlarge_read_buffer()
        walsender.create_slot("s")
        walsender.start("s", 0, OPTIONS)
        inside.execute("INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 2000) g")
        time.sleep(0.5)
        frames = walsender.read(700, 1 << 20)
        assert len(frames) == 700
        assert walsender.read_bytes == sum(map(len, frames))
        frames = walsender.read(10_000, 20_000)
        assert 20_000 <= walsender.read_bytes <= 20_000 + max(map(len, frames))
        assert len(walsender.read(10_000, 1 << 20)) > 500


def test_a_unix_socket_is_told_from_tcp(start_postgres: Callable[..., PostgreSQL]) -> None:
    server = start_postgres(settings={"unix_socket_directories": "/tmp"})
    with ReplicationStream(server.dsn()) as over_tcp, ReplicationStream(server.dsn(host="/tmp")) as over_unix:
        assert not over_tcp.local
        assert over_unix.local
