"""Whoever may not ask PostgreSQL may not ask the daemon, and nothing that anybody writes stops the daemon for good."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import conninfo
from support.daemon import cdcd
from support.stream import StreamFixture, eventually

pytestmark = [pytest.mark.postgres_versions("oldest", "newest"), pytest.mark.in_turns(2)]

ASKS = "INSERT INTO cdcd.requests (slot, action, table_schema, table_name) VALUES ('{slot}', '{action}', '{0}', '{1}')"
FORGED = '{"snapshot": {"schema": "public", "table": "t"}}'


@pytest.fixture
def stranger(stream: StreamFixture) -> Iterator[psycopg.Connection]:
    """A role that may connect and make schemas, and has no right on any table."""
    role = f"stranger_{stream.slot}"
    database = conninfo.conninfo_to_dict(stream.dsn)["dbname"]
    stream.sql(f"CREATE ROLE {role} LOGIN", f"GRANT CREATE ON DATABASE {database} TO {role}")
    with psycopg.connect(conninfo.make_conninfo(stream.dsn, user=role), autocommit=True) as connection:
        yield connection
    stream.sql(f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


def topics(stream: StreamFixture) -> set[str]:
    return {name.removeprefix(f"{stream.prefix}.") for name in stream.topics.names()}


def truncates(stream: StreamFixture) -> int:
    """How many: each is in every partition."""
    return len({event.position for event in stream.events() if event.value is not None and event.value["op"] == "t"})


def test_a_role_without_the_right_asks_for_nothing(stream: StreamFixture, stranger: psycopg.Connection) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 100)")
    daemon = stream.daemon(source={"create": True, "tables": ["*.*"]}, snapshot={"mode": "initial"}).start()
    daemon.wait_for_log("the snapshot is complete")
    stranger.execute("SELECT pg_logical_emit_message(false, 'cdcd', %s)", [FORGED])
    stranger.execute("SELECT pg_logical_emit_message(true, 'cdcd', %s)", [FORGED])
    for name in ("secret", "public_t", "progress"):
        stranger.execute(
            "SELECT pg_logical_emit_message(false, 'cdcd', %s)",
            [FORGED.replace('"t"', f'"{name}"')],
        )
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        stranger.execute(ASKS.format("public", "t", slot=stream.slot, action="snapshot").encode())
    daemon.wait_until_confirmed()
    assert topics(stream) == {"public.t"}
    assert truncates(stream) == 0
    stream.check(("public", "t"))
    assert cdcd(daemon, "snapshot", "public.t") == "done public.t (100 rows)\n"
    assert daemon.stop() == 0


def test_a_table_of_requests_that_a_stranger_made_first_asks_for_nothing(
    stream: StreamFixture, stranger: psycopg.Connection
) -> None:
    stranger.execute("CREATE SCHEMA cdcd")
    stranger.execute("CREATE TABLE cdcd.requests (slot text, action text, table_schema text, table_name text)")
    stranger.execute("ALTER TABLE cdcd.requests REPLICA IDENTITY FULL")
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 100)")
    daemon = stream.daemon(source={"create": True, "tables": ["*.*"]}, snapshot={"mode": "initial"}).start()
    daemon.wait_for_log("the snapshot is complete")
    assert "takes no requests" in daemon.log.read_text()
    for action in ("snapshot", "discard"):
        stranger.execute(ASKS.format("public", "t", slot=stream.slot, action=action).encode())
    stranger.execute("TRUNCATE cdcd.requests")
    stream.sql("INSERT INTO t VALUES (101)")
    daemon.wait_until_confirmed()
    assert topics(stream) == {"public.t"}
    assert truncates(stream) == 0
    said = cdcd(daemon, "snapshot", "public.t", code=1)
    assert "takes no requests from the table cdcd.requests" in said
    assert "warning  The daemon takes no requests" in cdcd(daemon, "check")
    assert daemon.stop() == 0


def test_requests_that_make_no_sense_are_named_and_passed_over(stream: StreamFixture) -> None:
    stream.sql(
        "CREATE TABLE order_items (id int PRIMARY KEY)",
        "CREATE SCHEMA cdcd",
        "CREATE TABLE cdcd.requests (slot text, action text, table_schema text, table_name text)",
        "ALTER TABLE cdcd.requests REPLICA IDENTITY FULL",
    )
    daemon = stream.daemon(source={"create": True, "tables": ["public.*"]}, snapshot={"mode": "initial"}).start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO order_items VALUES (1)")
    daemon.wait_until_confirmed()
    for schema, name in [("public_order", "items"), ("..", ".."), ("", ""), ("public", "x" * 300), ("nobody", "n")]:
        for action in ("snapshot", "unpark", "discard", "drop"):
            stream.sql(ASKS.format(schema, name, slot=stream.slot, action=action))
    stream.sql(ASKS.format("public", "y" * 5_000_000, slot=stream.slot, action="snapshot"))
    stream.sql(f"INSERT INTO cdcd.requests (slot) VALUES ('{stream.slot}'), (NULL)", "DELETE FROM cdcd.requests")
    daemon.wait_until_confirmed()
    log = daemon.log.read_text()
    assert "passed over a request" in log
    assert "public_order.items" in log
    assert "starting again" not in log
    assert topics(stream) == {"public.order_items"}
    daemon.kill()
    daemon.start()
    assert cdcd(daemon, "snapshot", "public.order_items") == "done public.order_items (1 rows)\n"
    assert daemon.stop() == 0


def test_a_request_that_is_made_while_the_daemon_is_away_is_taken_once(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    daemon = stream.daemon(source={"create": True}).start()
    daemon.wait_for_log("going on")
    assert daemon.stop() == 0
    assert cdcd(daemon, "snapshot", "public.t", "--no-wait") == "requested public.t\n"
    daemon.start()
    daemon.wait_for_log("the snapshot is complete")
    daemon.wait_until_confirmed()
    daemon.kill()
    daemon.start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (2)")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    assert truncates(stream) == 1
    stream.check(("public", "t"))


def test_a_table_whose_topic_kafka_refuses_is_parked_and_the_others_go_on(
    stream: StreamFixture, stranger: psycopg.Connection
) -> None:
    stream.sql("CREATE TABLE order_items (id int PRIMARY KEY)", "INSERT INTO order_items VALUES (1)")
    daemon = stream.daemon(source={"create": True, "tables": ["*.*"]}, snapshot={"mode": "initial"}).start()
    daemon.wait_for_log("the snapshot is complete")
    stranger.execute("CREATE SCHEMA public_order")
    stranger.execute("CREATE TABLE public_order.items (id int PRIMARY KEY)")
    stranger.execute("INSERT INTO public_order.items VALUES (1)")
    stream.sql("INSERT INTO order_items VALUES (2)")
    daemon.wait_until_confirmed()
    eventually(lambda: stream.slot_records()[-1].get("parked"), "parked table")
    daemon.kill()
    daemon.start()
    stream.sql("INSERT INTO order_items VALUES (3)")
    daemon.wait_until_confirmed()
    assert "public_order.items stays parked" in cdcd(daemon, "unpark", "public_order.items", code=1)
    assert daemon.stop() == 0
    stream.check(("public", "order_items"))


def test_a_table_named_as_a_topic_of_cdcd_and_one_that_would_share_a_topic_stop_nothing(
    stream: StreamFixture, stranger: psycopg.Connection
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE progress (id int PRIMARY KEY)")
    daemon = stream.daemon(
        source={"create": True, "tables": ["*.*"]}, sink={"topic": "{prefix}.{table}"}, snapshot={"mode": "initial"}
    ).start()
    daemon.wait_for_log("going on")
    stranger.execute("CREATE SCHEMA other")
    stranger.execute("CREATE TABLE other.t (id int PRIMARY KEY)")
    stranger.execute("INSERT INTO other.t VALUES (7)")
    stream.sql("INSERT INTO t VALUES (1)", "INSERT INTO progress VALUES (2)")
    daemon.wait_until_confirmed()
    daemon.kill()
    daemon.start()
    stranger.execute("INSERT INTO other.t VALUES (8)")
    stream.sql("INSERT INTO t VALUES (3)")
    daemon.wait_until_confirmed()
    assert [(each["schema"], each["table"]) for each in stream.slot_records()[-1]["parked"]] == [("other", "t")]

    def are_copied() -> bool:
        newest = {value["table"]: value["snapshot"] for key, value in stream.topics.progress() if "/" in key}
        return all(newest[name] is not None and newest[name]["done"] for name in ("t", "progress"))

    eventually(are_copied, "the snapshots", 60)
    assert daemon.stop() == 0
    assert {"t", "progress--table"} <= topics(stream)
    stream.check(("public", "t"), ("public", "progress"))


EMIT = "SELECT pg_logical_emit_message(true, 'p', (SELECT string_agg(md5(n::text), '') FROM generate_series(1, {}) n))"
"""A logical message of 32 bytes for each n."""


def test_an_oversized_logical_message_is_parked_and_can_be_unparked_or_given_up(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = stream.daemon(source={"create": True}).start()
    daemon.wait_for_log("going on")
    stream.sql(EMIT.format(1), EMIT.format(150_000), "INSERT INTO t VALUES (1)", EMIT.format(2))
    daemon.wait_until_confirmed()
    assert "source.messages = false" in daemon.log.read_text()
    assert ".messages stays parked" in cdcd(daemon, "unpark", ".messages", code=1)
    assert cdcd(daemon, "unpark", "--discard", ".messages") == "discarded .messages\n"
    stream.sql(EMIT.format(3))
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    messages = [event.value["after"]["content"] for event in stream.topics.events(f"{stream.prefix}.messages")]
    assert [len(content) // 32 for content in messages] == [1, 3]


def test_with_stop_an_oversized_logical_message_names_the_way_out(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = stream.daemon(source={"create": True}, sink={"on_unpublishable": "stop"}).start()
    daemon.wait_for_log("going on")
    stream.sql(EMIT.format(150_000), "INSERT INTO t VALUES (1)")
    assert daemon.wait() == 1
    assert "source.messages = false" in daemon.log.read_text()
    without = stream.daemon(source={"create": True, "messages": False}, sink={"on_unpublishable": "stop"}).start()
    without.wait_until_confirmed()
    assert without.stop() == 0
    stream.check(("public", "t"))
