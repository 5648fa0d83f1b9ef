"""A slot's state as every version of the server tells it."""

from __future__ import annotations

import pytest
from support.fix_postgres import Database

from cdcd.errors import PostgresUnavailable
from cdcd.lsn import parse_lsn
from cdcd.source.replication_stream import ReplicationStream
from cdcd.source.server_errors import SlotActive
from cdcd.source.slot import Slot

both = pytest.mark.postgres_versions("oldest", "newest")


@both
def test_a_slot_that_is_not_there_has_no_state_and_nothing_to_drop(database: Database) -> None:
    with Slot(database.dsn, "nosuch") as slot:
        assert slot.state() is None
        assert not slot.drop()


@both
def test_the_state_is_what_the_server_shows(database: Database) -> None:
    with Slot(database.dsn, f"s_{database.name}") as slot, ReplicationStream(database.dsn) as walsender:
        created = walsender.create_slot(slot.name)
        state = slot.state()
        assert state is not None
        assert (state.name, state.plugin, state.database) == (slot.name, "pgoutput", database.name)
        assert (state.active, state.active_pid, state.temporary) == (False, None, False)
        assert state.confirmed_flush_lsn == created.consistent_lsn
        assert state.restart_lsn is not None
        assert state.restart_lsn <= created.consistent_lsn <= state.wal_lsn
        assert (state.wal_status, state.invalidation, state.lost) == ("reserved", "", False)
        assert (state.two_phase, state.failover) == (False, False)


@both
def test_retained_wal_grows_with_what_is_written(database: Database) -> None:
    with Slot(database.dsn, f"s_{database.name}") as slot, ReplicationStream(database.dsn) as walsender:
        walsender.create_slot(slot.name)
        before = slot.state()
        database.execute("CREATE TABLE t AS SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
        [(lsn,)] = database.execute("SELECT pg_current_wal_lsn()::text")
        after = slot.state()
        assert before is not None
        assert after is not None
        assert after.retained_bytes >= before.retained_bytes + 1_000_000
        assert after.lag_bytes >= parse_lsn(lsn) - (after.confirmed_flush_lsn or 0)


@both
def test_a_slot_in_use_is_shown_with_its_pid_and_not_dropped(database: Database) -> None:
    database.execute("CREATE PUBLICATION p")
    with Slot(database.dsn, f"s_{database.name}") as slot, ReplicationStream(database.dsn) as walsender:
        walsender.create_slot(slot.name)
        walsender.start(slot.name, 0, {"proto_version": "1", "publication_names": "p"})
        state = slot.state()
        assert state is not None
        assert (state.active, state.active_pid) == (True, walsender.backend_pid)
        with pytest.raises(SlotActive) as caught:
            slot.drop()
        assert caught.value.pid == walsender.backend_pid
        assert walsender.stop()
        assert slot.drop()
        assert slot.state() is None


@pytest.mark.postgres_versions("newest")
def test_two_phase_and_failover_are_as_they_were_made(database: Database) -> None:
    with Slot(database.dsn, f"s_{database.name}") as slot, ReplicationStream(database.dsn) as walsender:
        walsender.create_slot(slot.name, two_phase=True, failover=True)
        state = slot.state()
        assert state is not None
        assert (state.two_phase, state.failover) == (True, True)


@both
def test_writers_are_described_to_a_role_without_privileges(database: Database) -> None:
    database.execute("CREATE TABLE t (id int)", 'CREATE ROLE "nobody here" LOGIN')
    try:
        writer = database.connect(autocommit=False)
        writer.execute("INSERT INTO t VALUES (1)")
        with Slot(database.server.dsn(database.name, user="nobody here"), "s") as slot:
            assert any(f"session {writer.info.backend_pid} " in who for who in slot.writers())
            writer.execute(f"PREPARE TRANSACTION 'it''s {database.name}'")
            prepared = f"prepared transaction it's {database.name}, for 00:00"
            assert any(who.startswith(prepared) for who in slot.writers())
    finally:
        database.execute('DROP ROLE "nobody here"')


def test_writers_of_a_server_that_is_gone_are_nobody() -> None:
    with Slot("host=127.0.0.1 port=1 user=postgres", "s") as slot:
        assert slot.writers() == ()
        with pytest.raises(PostgresUnavailable):
            slot.state()
