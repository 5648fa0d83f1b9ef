"""A table gets another key: each event has the key of its moment, and the table gets a snapshot under the new one."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from support import topics
from support.daemon import Daemon, cdcd
from support.stream import StreamFixture

TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text)"
FULL = "ALTER TABLE t REPLICA IDENTITY FULL"
NEW_KEY = "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD COLUMN tenant int NOT NULL DEFAULT 1, ADD PRIMARY KEY (tenant, id)"
LATER = ["INSERT INTO t (id, v) VALUES (4, 'later')"]

ONE, TWO, FOUR = {"id": 1}, {"id": 2}, {"id": 4}

SCRIPTS: dict[str, tuple[list[str], list[str], Any]] = {
    # What the table is, what is altered, and the key of a row that is inserted after that.
    "a key over a new column": ([], [NEW_KEY, *LATER], {"tenant": 1, "id": 4}),
    "a key over other columns": (
        ["ALTER TABLE t ADD nr int NOT NULL DEFAULT 7"],
        ["ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (v, nr)", *LATER],
        {"v": "later", "nr": 7},
    ),
    "a larger key": (
        ["ALTER TABLE t ADD nr int NOT NULL DEFAULT 7"],
        ["ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, nr)", *LATER],
        {"id": 4, "nr": 7},
    ),
    "another index as the identity": (
        [],
        [
            "ALTER TABLE t ADD code uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000', ADD x int",
            "CREATE UNIQUE INDEX by_code ON t (code, id)",
            "ALTER TABLE t REPLICA IDENTITY USING INDEX by_code",
            *LATER,
        ],
        {"id": 4, "code": UUID(int=0)},
    ),
    "a renamed key": ([], ["ALTER TABLE t RENAME id TO nr", "INSERT INTO t VALUES (4, 'later')"], {"nr": 4}),
    "no constraint any more": ([], ["ALTER TABLE t DROP CONSTRAINT t_pkey"], None),
    "no table any more": ([], ["DROP TABLE t"], None),
    "FULL from now on": ([], [FULL, "ALTER TABLE t DROP CONSTRAINT t_pkey"], None),
    "FULL, a key over a new column": ([FULL], [NEW_KEY, *LATER], {"tenant": 1, "id": 4}),
    "FULL, a renamed key": ([FULL], ["ALTER TABLE t RENAME id TO nr", "INSERT INTO t VALUES (4, 'later')"], {"nr": 4}),
    "FULL, no constraint any more": ([FULL], ["ALTER TABLE t DROP CONSTRAINT t_pkey"], None),
    "FULL, no table any more": ([FULL], ["DROP TABLE t"], None),
}


def with_snapshot(stream: StreamFixture) -> Daemon:
    """A daemon that has published a snapshot of the tables, and streams."""
    daemon = stream.daemon(snapshot={"mode": "initial"}).start()
    daemon.wait_for_log("the snapshot is complete")
    daemon.wait_until_confirmed()
    return daemon


def keys(stream: StreamFixture) -> list[tuple[str, Any]]:
    """Op and key of each event of the stream, in order."""
    events: list[topics.Event] = sorted(stream.events(), key=lambda event: event.position)
    return [(event.value["op"], event.key) for event in events if event.value["op"] in "cud"]


@pytest.mark.in_turns(3)
@pytest.mark.postgres_versions("oldest", "newest")
@pytest.mark.parametrize("script", SCRIPTS)
def test_what_was_changed_before_the_key_was_altered_has_the_key_of_then(stream: StreamFixture, script: str) -> None:
    table, altered, key = SCRIPTS[script]
    stream.sql(TABLE, *table, "INSERT INTO t (id, v) VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    daemon = with_snapshot(stream)
    assert daemon.stop() == 0
    stream.sql("UPDATE t SET v = 'bb' WHERE id = 2", "DELETE FROM t WHERE id = 1", *altered)
    daemon.start()
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    assert keys(stream) == [("u", TWO), ("d", ONE), *([("c", key)] if key else [])]


def test_a_transaction_that_alters_the_key_has_both_keys(stream: StreamFixture) -> None:
    stream.sql(TABLE, "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    daemon = with_snapshot(stream)
    stream.sql(
        "BEGIN; UPDATE t SET v = 'x' WHERE id = 1; INSERT INTO t VALUES (4, 'later');"
        f"{NEW_KEY}; UPDATE t SET v = 'y' WHERE id = 2; COMMIT"
    )
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    assert keys(stream) == [("u", ONE), ("c", FOUR), ("u", {"tenant": 1, "id": 2})]


def test_with_full_the_new_key_holds_from_the_next_transaction_on_at_the_latest(stream: StreamFixture) -> None:
    stream.sql(TABLE, FULL, "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    daemon = with_snapshot(stream)
    stream.sql(
        f"BEGIN; UPDATE t SET v = 'x' WHERE id = 1; {NEW_KEY}; UPDATE t SET v = 'y' WHERE id = 2; COMMIT",
        "UPDATE t SET v = 'z' WHERE id = 2",
    )
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    [first, (op, altering), last] = keys(stream)
    assert (first, op, last) == (("u", ONE), "u", ("u", {"tenant": 1, "id": 2}))
    assert altering in (TWO, {"tenant": 1, "id": 2}), "other sessions do not see the commit before the stream has it"


def complete(daemon: Daemon, snapshots: int) -> None:
    """Wait for the end of so many snapshots."""
    daemon.until(
        lambda: daemon.log.read_text().count("the snapshot is complete") >= snapshots, f"{snapshots} snapshots", 30.0
    )


def check(stream: StreamFixture) -> None:
    """Every event comes once, and the events give the table; before the copy some name rows under a key that is new."""
    events = stream.events()
    topics.check_exactly_once(events)
    assert topics.fold(events, snapshot=True) == stream.content("public", "t")


def copied(stream: StreamFixture, daemon: Daemon, snapshots: int = 2) -> None:
    """Wait for the copy under the new key, and see that the topic has the table, and nothing under an old key."""
    complete(daemon, snapshots)
    [line] = cdcd(daemon, "verify", "--json").splitlines()
    assert {"equal": True, "other_keys": []}.items() <= json.loads(line).items()
    check(stream)
    assert daemon.log.read_text().count("took a snapshot") == snapshots


@pytest.mark.in_turns(2)
@pytest.mark.postgres_versions("oldest", "newest")
@pytest.mark.parametrize("lags", [True, False])
def test_a_table_with_another_key_is_copied_once_under_the_new_one(stream: StreamFixture, *, lags: bool) -> None:
    stream.sql(TABLE, "INSERT INTO t SELECT n, 'v' FROM generate_series(1, 10) n")
    daemon = with_snapshot(stream)
    if lags:
        assert daemon.stop() == 0
    stream.sql("UPDATE t SET v = 'w' WHERE id = 7", NEW_KEY, "UPDATE t SET v = 'w' WHERE id < 3")
    if lags:
        daemon.start()
    copied(stream, daemon)
    stream.sql("UPDATE t SET v = 'x' WHERE id < 3", "DELETE FROM t WHERE id = 9")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    daemon.start()
    copied(stream, daemon)
    assert daemon.log.read_text().count("the key of public.t changed from (id) to (id, tenant): ") == 1
    assert daemon.stop() == 0


@pytest.mark.in_turns(3)
@pytest.mark.parametrize(
    "altered",
    [
        [NEW_KEY, *LATER, "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (v)", "INSERT INTO t VALUES (5, 'e')"],
        [
            NEW_KEY,
            *LATER,
            "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id)",
            "INSERT INTO t VALUES (5, 'e')",
        ],
        ["ALTER TABLE t DROP CONSTRAINT t_pkey", *LATER],
        ["ALTER TABLE t RENAME id TO nr", "INSERT INTO t VALUES (4, 'd')"],
        [
            "CREATE UNIQUE INDEX i ON t (v)",
            "ALTER TABLE t ALTER v SET NOT NULL, REPLICA IDENTITY USING INDEX i",
            *LATER,
        ],
        [FULL, NEW_KEY, "INSERT INTO t VALUES (4, 'd')", "UPDATE t SET v = 'bb' WHERE id = 2"],
        [FULL, "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (v)", *LATER],
    ],
    ids=["twice", "to and fro", "none", "renamed", "index", "full, larger", "full, another"],
)
def test_keys_that_change_while_the_daemon_lags_need_one_copy(stream: StreamFixture, altered: list[str]) -> None:
    stream.sql(TABLE, "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    daemon = with_snapshot(stream)
    assert daemon.stop() == 0
    stream.sql(*altered)
    daemon.start()
    copied(stream, daemon)
    assert daemon.stop() == 0


def test_a_copy_under_a_new_key_survives_a_kill_at_once(stream: StreamFixture) -> None:
    stream.sql(TABLE, "INSERT INTO t SELECT n, 'v' FROM generate_series(1, 100) n")
    daemon = with_snapshot(stream)
    stream.sql(NEW_KEY, "UPDATE t SET v = 'w' WHERE id < 3")
    daemon.wait_for_log("the table gets a new snapshot")
    daemon.kill()
    daemon.start()
    daemon.wait_until_confirmed()
    complete(daemon, 2)
    cdcd(daemon, "verify")
    check(stream)
    assert daemon.stop() == 0


def test_a_daemon_that_is_to_stop_publishes_nothing_under_the_new_key(stream: StreamFixture) -> None:
    stream.sql(TABLE, "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    daemon = with_snapshot(stream)
    assert daemon.stop() == 0
    stream.sql(NEW_KEY, "UPDATE t SET v = 'w' WHERE id = 1")
    refused = stream.run(snapshot={"mode": "initial"}, tables={"on_key_change": "stop"})
    assert refused.returncode == 1
    assert "the key of public.t changed from (id) to (id, tenant)" in refused.stderr
    assert 'Set tables.on_key_change = "copy"' in refused.stderr
    assert keys(stream) == []
    daemon.start()
    copied(stream, daemon)
    assert daemon.stop() == 0


def test_verify_says_what_is_under_the_old_key_until_the_next_change_of_the_table(stream: StreamFixture) -> None:
    stream.sql(TABLE, "INSERT INTO t SELECT n, 'v' FROM generate_series(1, 10) n")
    daemon = with_snapshot(stream)
    stream.sql("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, v)")
    text = cdcd(daemon, "verify")
    assert "the topic still has events under the key (id): run cdcd snapshot public.t" in text
    stream.sql("DELETE FROM t WHERE id = 1")
    copied(stream, daemon)
    assert daemon.stop() == 0


def test_with_full_only_verify_finds_a_key_that_came_and_went_while_the_daemon_lagged(stream: StreamFixture) -> None:
    """Neither the stream nor the catalog tells of the key between: two rows had one key, and readers lose one."""
    stream.sql(TABLE, FULL, "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    daemon = with_snapshot(stream)
    assert daemon.stop() == 0
    stream.sql(
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (v)",
        "INSERT INTO t VALUES (1, 'other')",
        "DELETE FROM t WHERE v = 'other'",
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id)",
    )
    daemon.start()
    daemon.wait_until_confirmed()
    assert keys(stream) == [("c", ONE), ("d", ONE)]
    assert "the key of public.t changed" not in daemon.log.read_text()
    cdcd(daemon, "verify", code=1)
    cdcd(daemon, "snapshot", "public.t")
    cdcd(daemon, "verify")
    assert daemon.stop() == 0


def test_a_table_without_a_snapshot_keeps_the_key_of_then_over_a_restart(stream: StreamFixture) -> None:
    stream.sql(TABLE, FULL, "CREATE PUBLICATION cdcd FOR TABLE t")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1, 'a')")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    stream.sql(
        "INSERT INTO t VALUES (2, 'b')",
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (v)",
        "INSERT INTO t VALUES (2, 'c')",
    )
    daemon.start()
    daemon.wait_until_confirmed()
    both = [{"id": 2, "v": "b"}, {"id": 2, "v": "c"}]
    assert keys(stream) == [("c", ONE), *(("c", key) for key in both)]
    assert "the key of public.t changed from (id) to (id, v). The topic has no snapshot" in daemon.log.read_text()
    assert daemon.stop() == 0


@pytest.mark.postgres_versions("newest")
def test_a_compacted_topic_takes_the_truncate_that_ends_the_old_keys(stream: StreamFixture) -> None:
    stream.sql(TABLE, "INSERT INTO t SELECT n, 'v' FROM generate_series(1, 10) n")
    compacted = {"tombstones": True, "topic_config": {"cleanup.policy": "compact"}}
    daemon = stream.daemon(snapshot={"mode": "initial"}, sink=compacted).start()
    daemon.wait_for_log("the snapshot is complete")
    stream.sql("DELETE FROM t WHERE id = 9", NEW_KEY, "UPDATE t SET v = 'w' WHERE id < 3")
    complete(daemon, 2)
    cdcd(daemon, "verify")
    check(stream)
    assert "parked" not in daemon.log.read_text()
    stream.sql("TRUNCATE t", "INSERT INTO t VALUES (1, 'again')")
    daemon.wait_until_confirmed()
    cdcd(daemon, "verify")
    assert daemon.stop() == 0
