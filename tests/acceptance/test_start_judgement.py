"""`cdcd check` and `cdcd run` judge alike: what one refuses the other refuses, before anything is made."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from support.stream import StreamFixture

from cdcd.cli.commands.check import check
from cdcd.config.loading import load
from cdcd.terminal.progress_bar import ProgressBar
from cdcd.verify.comparison import Comparison

pytestmark = [pytest.mark.postgres_versions("oldest", "newest"), pytest.mark.in_turns(2)]


def said_by_check(stream: StreamFixture, **settings: Any) -> tuple[bool, list[dict[str, str]]]:
    """Whether `cdcd check` is content, and what it says that is not ok."""
    given = load(str(stream.daemon(**settings).config)).settings
    out = io.StringIO()
    good = check(given, out, as_json=True)
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    return good, [finding for finding in found if finding["level"] != "ok"]


def refused_by_both(stream: StreamFixture, **settings: Any) -> dict[str, str]:
    """Check that both refuse for the same reason and that nothing is made; return what `cdcd check` says."""
    good, found = said_by_check(stream, **settings)
    assert not good
    [error] = [finding for finding in found if finding["level"] == "error"]
    run = stream.run(**settings)
    assert run.returncode == 1
    assert f"cdcd: {error['message']}. {error['hint']}" in run.stderr
    assert stream.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{stream.slot}'") == []
    return error


def warned_by_both(stream: StreamFixture, words: str, **settings: Any) -> None:
    """Check that both say so, and that the daemon streams."""
    good, found = said_by_check(stream, **settings)
    assert good
    [warning] = [finding for finding in found if words in finding["message"]]
    with stream.daemon(**settings).start() as daemon:
        daemon.wait_for_log("going on")
        assert daemon.stop() == 0
        assert f"{warning['message']}. {warning['hint']}" in daemon.log.read_text()


def test_a_root_whose_deletes_name_no_row_is_refused_until_the_hint_is_run(stream: StreamFixture) -> None:
    stream.sql(
        "CREATE TABLE r (id int, d int, v text) PARTITION BY RANGE (d)",
        "CREATE TABLE r1 PARTITION OF r (PRIMARY KEY (id)) FOR VALUES FROM (0) TO (10)",
        "CREATE PUBLICATION cdcd FOR TABLE r WITH (publish_via_partition_root = true)",
        "INSERT INTO r VALUES (1, 1, 'a')",
    )
    error = refused_by_both(stream)
    stream.sql(*error["hint"].removeprefix("Run: ").split(". Or ")[0].split("; "))
    with stream.daemon(snapshot={"mode": "initial"}).start() as daemon:
        daemon.wait_for_log("the snapshot is complete")
        stream.sql(
            "INSERT INTO r VALUES (2, 2, 'b'), (3, 3, 'c')",
            "UPDATE r SET v = 'x' WHERE id = 2",
            "DELETE FROM r WHERE id < 2",
        )
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    stream.check(("public", "r"))


def test_a_root_that_turns_out_so_in_the_stream_ends_it_before_a_delete_that_names_no_row(
    stream: StreamFixture,
) -> None:
    stream.sql("CREATE PUBLICATION cdcd FOR ALL TABLES WITH (publish_via_partition_root = true)")
    with stream.daemon().start() as daemon:
        daemon.wait_for_log("going on")
        stream.sql(
            "CREATE TABLE r (id int, d int) PARTITION BY RANGE (d)",
            "CREATE TABLE r1 PARTITION OF r (PRIMARY KEY (id)) FOR VALUES FROM (0) TO (10)",
            "INSERT INTO r VALUES (1, 1)",
            "DELETE FROM r",
        )
        assert daemon.wait() == 1
        assert "an old row of public.r came with its key only" in daemon.log.read_text()
    assert {event.value["op"] for event in stream.events() if event.value is not None} <= {"c"}


def test_a_name_without_a_table_is_refused_with_the_nearest(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE customers (id int PRIMARY KEY)", "CREATE TABLE orders (id int PRIMARY KEY)")
    error = refused_by_both(stream, source={"tables": ["public.customers", "public.ordres"]})
    assert error["hint"] == "Did you mean public.orders?"
    assert stream.sql("SELECT 1 FROM pg_publication") == []


def test_a_foreign_plugin_of_the_slot_is_refused(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION cdcd FOR ALL TABLES")
    stream.sql(f"SELECT pg_create_logical_replication_slot('{stream.slot}', 'test_decoding')")
    good, found = said_by_check(stream)
    run = stream.run()
    assert not good
    [error] = [finding for finding in found if finding["level"] == "error"]
    assert f"cdcd: {error['message']}. {error['hint']}" in run.stderr


def test_a_table_of_an_existing_publication_without_identity_is_said_and_the_stream_goes_on(
    stream: StreamFixture,
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION cdcd FOR ALL TABLES")
    with stream.daemon().start() as daemon:
        daemon.wait_for_log("going on")
        stream.sql(
            "CREATE SCHEMA stranger", "CREATE TABLE stranger.heap (id int)", "INSERT INTO stranger.heap VALUES (1)"
        )
        stream.sql("INSERT INTO t VALUES (1)")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    warned_by_both(stream, '"stranger"."heap" has no replica identity')
    stream.check(("public", "t"), ("stranger", "heap"))


def test_an_empty_publication_is_said(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION cdcd")
    warned_by_both(stream, "The publication cdcd has no tables: nothing is streamed")


def test_what_the_settings_ask_and_an_existing_publication_lacks_is_said(stream: StreamFixture) -> None:
    stream.sql(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE u (id int PRIMARY KEY)",
        "CREATE PUBLICATION cdcd FOR TABLE t",
    )
    warned_by_both(stream, "source.tables asks for public.u, which the publication cdcd lacks")


def test_an_unlogged_partition_is_said_and_its_rows_stay_out_of_copy_stream_and_verify(stream: StreamFixture) -> None:
    stream.sql(
        "CREATE TABLE r (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (0) TO (10)",
        "CREATE UNLOGGED TABLE r2 PARTITION OF r FOR VALUES FROM (10) TO (20)",
        "CREATE PUBLICATION cdcd FOR TABLE r WITH (publish_via_partition_root = true)",
        "INSERT INTO r VALUES (1), (11)",
    )
    warned_by_both(stream, 'The partition "public"."r2" is unlogged')
    with stream.daemon(snapshot={"mode": "initial"}).start() as daemon:
        daemon.wait_for_log("the snapshot is complete")
        stream.sql("INSERT INTO r VALUES (2), (12)")
        daemon.wait_until_confirmed()
        [table] = list(Comparison(load(str(daemon.config)).settings, ProgressBar(io.StringIO())).run((), 30.0))
        assert daemon.stop() == 0
    assert table.is_equal
    assert table.rows == 2
