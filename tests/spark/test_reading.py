"""Events, cuts and rows in Spark equal PostgreSQL's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg
import pytest
from support import workload
from support.daemon import cdcd as run_cdcd
from support.fix_spark import jobs
from support.rendering import content
from support.stream import StreamFixture

from cdcd.errors import GapError, RequestRejected
from cdcd.source.table_selection import qualified_name

if TYPE_CHECKING:
    from cdcd.spark import Cdc


def test_rows_at_any_lsn_equal_the_tables(stream: StreamFixture, cdc: Cdc) -> None:
    stream.sql(workload.SCHEMA)
    daemon = stream.daemon(sink={"transaction_linger_ms": 20}).start()
    daemon.wait_for_log("going on")
    wanted = {}
    with psycopg.connect(stream.dsn, autocommit=True) as connection:
        for part in range(3):
            workload.mix(connection, 1 + part * 1000, 60)
            if part == 1:
                connection.execute("TRUNCATE documents")
                connection.execute("ALTER TABLE orders ALTER customer TYPE bigint, ADD vip boolean")
            [(lsn,)] = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
            names = {qualified_name(schema, table): stream.content(schema, table) for schema, table in workload.TABLES}
            wanted[lsn] = names
        connection.execute("INSERT INTO ledger VALUES (1, 2, 'after the last moment', now())")
    daemon.wait_until_confirmed()
    for lsn, tables in wanted.items():
        found = cdc.as_of(lsn)
        assert set(found) == set(tables)
        for name, rows in tables.items():
            columns = found[name].columns[:-4]
            if name == "public.orders" and len(next(iter(rows))) < len(columns):
                columns.remove("vip")  # added later
            folded = content(found[name], columns)
            assert folded - rows == rows - folded == Counter(), f"{name} at {lsn}"


def test_cuts_are_the_slot_records(stream: StreamFixture, cdc: Cdc) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    for number in range(5):
        stream.sql(f"INSERT INTO t VALUES ({number})")
        daemon.wait_until_confirmed()
    daemon.stop()  # else it adds a slot record for the WAL of an idle server
    topic = f"{stream.prefix}.public.t"
    records = stream.slot_records()
    cuts = cdc.cuts().collect()
    assert [cut["rows"] for cut in cuts] == [record["rows"] for record in records]
    newest = cdc.cut()
    assert newest.tables[topic].offsets == tuple(next(c["touched"][topic] for c in reversed(cuts) if c["touched"]))
    assert cdc.changes("public.t").count() == 5
    third = [cut for cut in cuts if cut["rows"]][2]
    assert {row["after"]["id"] for row in cdc.changes("public.t", until=third["lsn"]).collect()} == {0, 1, 2}
    assert {row["after"]["id"] for row in cdc.changes("public.t", since=third["lsn"]).collect()} == {3, 4}
    assert cdc.cut(third["commit_ts"]).lsn == third["lsn"]
    with pytest.raises(GapError, match="the topics do not hold FFFF/0"):
        cdc.as_of("FFFF/0")
    with pytest.raises(RequestRejected, match=r"there is no topic of a table public\.u"):
        cdc.changes("public.u")


def test_schemas_are_read_only_if_their_topic_has_grown(
    stream: StreamFixture, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")

    def found() -> tuple[int, int]:
        """How many schemas of events there are, and how many Spark jobs found them."""
        daemon.wait_until_confirmed()
        began = jobs(cdc.spark)
        writers = cdc.topics.writers.of("public", "t", cdc.topics.names.topic("public", "t"), "value")
        return len(writers), jobs(cdc.spark) - began

    stream.sql("INSERT INTO t VALUES (1)")
    assert [found(), found()] == [(1, 1), (1, 0)]
    stream.sql("ALTER TABLE t ADD v int", "INSERT INTO t VALUES (2, 3)")
    assert [found(), found()] == [(2, 1), (2, 0)]
    monkeypatch.setattr(cdc.topics.kafka, "_asks", False)  # only Spark can ask
    stream.sql("ALTER TABLE t ADD w int", "INSERT INTO t VALUES (4, 5, 6)")
    assert [found(), found()] == [(3, 1), (3, 1)]


@pytest.mark.whole
def test_rows_under_two_keys_are_refused_until_a_snapshot(stream: StreamFixture, cdc: Cdc) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = stream.daemon().start()  # with snapshot.mode = "initial" it would copy the table again by itself
    daemon.wait_for_log("going on")
    stream.sql(
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD tenant int NOT NULL DEFAULT 1, ADD PRIMARY KEY (tenant, id)",
        "UPDATE t SET v = 'c' WHERE id = 2",
    )
    daemon.wait_until_confirmed()
    with pytest.raises(GapError, match=r"has events under \(id\) and \(id, tenant\)") as refused:
        cdc.as_of(tables=["public.t"])
    assert refused.value.hint == "Run cdcd snapshot public.t, and ask for a later position"
    run_cdcd(daemon, "snapshot", "public.t")
    rows = cdc.as_of(tables=["public.t"])["public.t"].select("tenant", "id", "v").collect()
    assert {tuple(row) for row in rows} == {(1, 1, "a"), (1, 2, "c")}


def test_four_versions_of_a_table_in_one_topic_come_out_as_one_type(stream: StreamFixture, cdc: Cdc) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, amount numeric(10,2), n int, note text)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql(
        "INSERT INTO t VALUES (1, 1.23, 7, 'a')",
        "ALTER TABLE t ALTER amount TYPE numeric(12,4), ADD extra date",
        "INSERT INTO t VALUES (2, 1.2345, 8, 'b', '2026-11-21')",
        "ALTER TABLE t ALTER n TYPE bigint, DROP note",
        "INSERT INTO t VALUES (3, 2, 5000000000, NULL)",
        "ALTER TABLE t ALTER n TYPE text",
        "INSERT INTO t VALUES (4, 3, 'nine', NULL)",
    )
    daemon.wait_until_confirmed()
    events = cdc.changes("public.t")
    assert dict(events.select("after.*").dtypes) == {
        "id": "int", "amount": "decimal(12,4)", "n": "string", "note": "string", "extra": "date"
    }  # fmt: skip
    rows = [tuple(map(str, row)) for row in events.orderBy("after.id").select("after.*").collect()]
    assert rows == [
        ("1", "1.2300", "7", "a", "None"),
        ("2", "1.2345", "8", "b", "2026-11-21"),
        ("3", "2.0000", "5000000000", "None", "None"),
        ("4", "3.0000", "nine", "None", "None"),
    ]


DEFAULTS = {
    "bool": "true", "int2": "-7", "int8": "5000000000", "float4": "1.1", "float8": "'-Infinity'", "oid": "7",
    "numeric(10,2)": "-1234.5", "numeric": "0.10", "text": r"""E'it''s \\ "q" é\n'""", "char(5)": "'ab'",
    "uuid": "'6d34a5a1-6d34-4a5a-8a1b-0123456789ab'", "json": r"""'{"a": "\u00e9"}'""", "bytea": r"'\x00ff'",
    "date": "'0001-02-03'", "time": "'23:59:59.999999'", "timetz": "'01:02+03'", "timestamp": "'2026-11-26 01:02:03.4'",
    "timestamptz": "now()", "interval": "'1 mon -2 days 3 us'", "inet": "'::1'", "bit(3)": "B'101'",
    "int[]": "'{1,NULL,-3}'", "text[]": r"""'{"a,b",NULL,"\"q"}'""", "date[]": "'{}'", "numeric(6,2)[]": "'{1.5}'",
    "box": "'(1,1),(0,0)'", "mood": "'so so'", "small": "5",
    "int4range": "'[1,3)'", "tsrange[]": "ARRAY['[2026-01-01,)'::tsrange]", "nummultirange": "'{[1.5,3),(7,)}'",
    "pair": """'(-1,"a,b")'""",
}  # fmt: skip
"""By type: a default that Avro can hold."""
LOST = {"date": "'infinity'", "numeric(5,1)": "'NaN'", "int[]": "'[0:1]={4,5}'"}


def test_spark_decodes_each_event_once_whatever_conditions_there_are(stream: StreamFixture, cdc: Cdc) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1, 'one'), (2, 'two')", "UPDATE t SET v = 'new' WHERE id = 2")
    daemon.wait_until_confirmed()
    events = cdc.changes("public.t", since=1)
    updated = events.where("op = 'u' AND source.commit_lsn > 1 AND after.id < 3").where("after.v <> 'old'")
    rows = cdc.as_of(events.agg({"source.commit_lsn": "max"}).first()[0] + 1)["public.t"].where("id > 1")
    for frame in updated, rows:
        plan = frame._jdf.queryExecution().optimizedPlan().toString()
        assert plan.count("from_avro(") == 1, plan
    assert [row["after"]["v"] for row in updated.collect()] == [row["v"] for row in rows.collect()] == ["new"]
    early = events.where("kafka.offset < 0")._jdf.queryExecution().optimizedPlan().toString()
    assert early.index("explode") < early.index("< 0"), "an event that its offset leaves out is not decoded"


def test_values_that_avro_cannot_hold_belong_to_the_row_before_or_after_a_change(
    stream: StreamFixture, cdc: Cdc
) -> None:
    from cdcd.spark.state.collapse import OP, flatten

    stream.sql("CREATE TABLE t (id int PRIMARY KEY, d date, e date)", "ALTER TABLE t REPLICA IDENTITY FULL")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql(
        "INSERT INTO t VALUES (1, 'infinity', '-infinity')",
        "UPDATE t SET d = '2026-01-01'",
        "UPDATE t SET d = '-infinity', e = NULL",
        "DELETE FROM t",
    )
    low, high = "-infinity", "infinity"
    wanted: list[tuple[str, dict[str, str] | None, dict[str, str] | None]] = [
        ("c", {"d": high, "e": low}, None),
        ("u", {"e": low}, {"d": high, "e": low}),
        ("u", {"d": low}, {"e": low}),
        ("d", {"d": low}, {"d": low}),
    ]

    def found() -> list[tuple[str, dict[str, str] | None, dict[str, str] | None]]:
        daemon.wait_until_confirmed()
        flat = flatten(cdc.changes("public.t"), [{"name": name, "type": "int"} for name in ("id", "d", "e")], [])
        return [tuple(row) for row in flat.orderBy("_order").select(OP, "_lost", "_lost_before").collect()]

    assert found() == wanted
    # Earlier events get the default of the younger column. Their own values stay.
    stream.sql("ALTER TABLE t ADD f date DEFAULT 'infinity'", "INSERT INTO t VALUES (2)")
    wanted = [(op, lost and lost | {"f": high}, before and before | {"f": high}) for op, lost, before in wanted]
    assert found() == [*wanted, ("c", {"f": high}, None)]


@pytest.mark.whole
def test_rows_older_than_a_column_hold_the_default_that_it_was_added_with(stream: StreamFixture, cdc: Cdc) -> None:
    stream.sql(
        "CREATE TYPE mood AS ENUM ('so so')",
        "CREATE DOMAIN small AS int",
        "CREATE TYPE pair AS (a int, b text)",
        *(f"CREATE TABLE {table} (id int, v text)" for table in "tk"),
        "ALTER TABLE t ADD PRIMARY KEY (id)",
        *(f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in "tk"),
    )
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql(*(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')" for table in "tk"))
    daemon.wait_until_confirmed()
    columns = [f"ADD d{number} {kind} DEFAULT {value}" for number, (kind, value) in enumerate(DEFAULTS.items())]
    columns += [f"ADD l{number} {kind} DEFAULT {value}" for number, (kind, value) in enumerate(LOST.items())]
    stream.sql(*(f"ALTER TABLE {table} {', '.join(columns)}" for table in "tk"))
    assert cdc.verify(stream.dsn).ok, "no event knows the columns yet"
    stream.sql(*(f"ALTER TABLE {table} ALTER d1 SET DEFAULT 9" for table in "tk"))
    daemon.kill()
    daemon.start()
    for table in "tk":
        stream.sql(
            f"INSERT INTO {table} VALUES (4, 'd')",
            f"UPDATE {table} SET v = 'x' WHERE id = 2",
            f"DELETE FROM {table} WHERE id = 3",
        )
    daemon.wait_until_confirmed()
    assert cdc.verify(stream.dsn).ok
    for rows in cdc.as_of().values():
        old, written, new = (row.asDict() for row in rows.orderBy("id").collect())
        names = [name for name in old if name[0] in "dl" and name[1:].isdigit()]
        assert {name: old[name] for name in names} == {name: written[name] for name in names}
        assert (old["d1"], new["d1"]) == (-7, 9)
        assert old["_unrepresentable"] == written["_unrepresentable"]
        assert set(old["_unrepresentable"]) == {"l0", "l1", "l2"}
    changes = cdc.changes("public.t").where("op = 'c'").select("after.id", "after.d1", "unrepresentable.column")
    assert {(row[0], row[1], len(row[2])) for row in changes.collect()} == {
        (n, 9 if n == 4 else -7, 3) for n in (1, 2, 3, 4)
    }


@pytest.mark.whole
def test_a_stream_gives_the_same_events_and_stops_at_an_unknown_schema(stream: StreamFixture, cdc: Cdc) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1, 'a')", "UPDATE t SET v = 'b'", "DELETE FROM t")
    daemon.wait_until_confirmed()
    events = cdc.changes_stream("public.t")
    name = f"q{stream.slot}"
    query = events.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    assert [row["op"] for row in cdc.spark.table(name).orderBy("source.commit_lsn").collect()] == ["c", "u", "d"]
    stream.sql("ALTER TABLE t ADD w int", "INSERT INTO t VALUES (2, 'c', 3)")
    daemon.wait_until_confirmed()
    again = events.writeStream.format("memory").queryName(f"{name}again").trigger(availableNow=True).start()
    with pytest.raises(Exception, match="names a schema that was not known when the query was made"):
        again.awaitTermination()


@pytest.mark.whole
def test_rows_without_a_key_are_found_again_after_a_column_was_dropped(stream: StreamFixture, cdc: Cdc) -> None:
    stream.sql("CREATE TABLE u (id int, v text, w int)", "ALTER TABLE u REPLICA IDENTITY FULL")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO u VALUES (1, 'a', 5), (2, 'b', 5)", "ALTER TABLE u DROP COLUMN w")
    stream.sql("DELETE FROM u WHERE id = 1")
    daemon.wait_until_confirmed()
    assert content(cdc.as_of(None, "*.u")["public.u"], ["id", "v"]) == stream.content("public", "u")


@pytest.mark.whole
def test_rows_without_a_key_are_never_taken_for_one_row(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str]
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE u (id int, v text)")
    stream.sql("ALTER TABLE u REPLICA IDENTITY FULL")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1, 'a')", "INSERT INTO u VALUES (1, 'a'), (1, 'b'), (2, 'c')")
    daemon.wait_until_confirmed()
    twice = cdc.cut()
    mirror = cdc.mirror(["public.t"], lake("delta"), "delta", table_errors="stop")
    mirror.run_once()
    stream.sql("ALTER TABLE t DROP CONSTRAINT t_pkey", "INSERT INTO t VALUES (1, 'b'), (1, 'c')")
    stream.sql("DELETE FROM u WHERE v = 'b'")
    daemon.wait_until_confirmed()  # the daemon asks the catalog for the key when the rows come
    stream.sql("ALTER TABLE u ADD PRIMARY KEY (id)", "INSERT INTO u VALUES (3, 'd')")
    daemon.wait_until_confirmed()
    assert content(cdc.as_of(twice.lsn, ["*.u"])["public.u"], ["id", "v"]).total() == 3
    with pytest.raises(GapError, match=r"public\.t has lost its key"):
        cdc.as_of(None, ["*.t"])
    with pytest.raises(GapError, match=r"public\.t has lost its key"):
        mirror.run_once()
    with pytest.raises(GapError, match=r"public\.u has 1 updates or deletes from before it got its key"):
        cdc.as_of(None, ["*.u"])
    stream.sql("TRUNCATE u", "INSERT INTO u VALUES (4, 'e')")
    daemon.wait_until_confirmed()
    assert content(cdc.as_of(None, ["*.u"])["public.u"], ["id", "v"]).total() == 1
