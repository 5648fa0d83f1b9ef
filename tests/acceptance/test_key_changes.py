"""A table gets another key while the daemon lags: each event has the key of its moment, and what is left is said."""

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


def test_the_log_and_verify_say_what_is_under_the_old_key_until_a_snapshot(stream: StreamFixture) -> None:
    stream.sql(TABLE, "INSERT INTO t SELECT n, 'v' FROM generate_series(1, 10) n")
    daemon = with_snapshot(stream)
    assert daemon.stop() == 0
    stream.sql(NEW_KEY, "UPDATE t SET v = 'w' WHERE id < 3")
    daemon.start()
    daemon.wait_until_confirmed()
    daemon.wait_for_log(
        "the key of public.t changed from (id) to (id, tenant): the rows that were not written since are in Kafka "
        "under the old key. Run: cdcd snapshot public.t"
    )
    text = cdcd(daemon, "verify", code=1)
    assert "the topic still has events under the key (id): run cdcd snapshot public.t" in text
    cdcd(daemon, "snapshot", "public.t")
    [line] = cdcd(daemon, "verify", "--json").splitlines()
    assert {"equal": True, "other_keys": []}.items() <= json.loads(line).items()
    assert daemon.log.read_text().count("the key of public.t changed") == 1
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
    assert "the key of public.t changed from (id) to (id, v)" in daemon.log.read_text()
    assert daemon.stop() == 0
