"""Tables of the lake as `[[tables]]` wants them, and those that a person has made before the mirror."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from support.fix_spark import FORMATS
from support.stream import StreamFixture

if TYPE_CHECKING:
    from cdcd.spark import Cdc
    from cdcd.spark.packages import Format


def described(cdc: Cdc, table: str) -> str:
    return str([tuple(row) for row in cdc.spark.sql(f"DESCRIBE EXTENDED {table}").collect()])


@pytest.mark.whole
@pytest.mark.parametrize("form", FORMATS)
def test_tables_are_named_laid_out_and_left_out_as_told_and_keep_their_names(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], tmp_path: Any, form: Format
) -> None:
    stream.sql('CREATE TABLE "My Orders" (id int PRIMARY KEY, day date)', "CREATE TABLE log (id int PRIMARY KEY)")
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, note text)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO \"My Orders\" VALUES (1, '2026-01-31'), (2, '2026-02-01')", "INSERT INTO log VALUES (1)")
    stream.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    daemon.wait_until_confirmed()
    catalog = lake(form)
    layout: dict[str, Any] = {"cluster_by": ["id"], "location": f"{tmp_path}/there/{{table}}"}
    if form == "iceberg":
        layout = {"order_by": ["note DESC", "id"], "properties": {"write.parquet.compression-codec": "gzip"}}
    per_table: list[dict[str, Any]] = [
        {"match": "public.log", "exclude": True},
        {"match": "public.t", "target": "{schema}_as_told", "deletes": "soft", **layout},
        {"match": 'public."My Orders"', "partition_by": ["day" if form == "delta" else "months(day)"]},
    ]
    names = "escaped" if form == "delta" else "postgresql"
    mirror = cdc.mirror("public.*", catalog, form, per_table=per_table, table_names=names, table_errors="stop")
    mirror.run_once()
    orders = f"{catalog}.`public_{'My_x20_Orders' if form == 'delta' else 'My Orders'}`"
    told = f"{catalog}.`public_as_told`"
    published = mirror.published().tables
    assert {table.table: table.target for table in published} == {"public.t": told, 'public."My Orders"': orders}
    assert ("there/t" if form == "delta" else "note DESC NULLS LAST, id ASC") in described(cdc, told)
    assert ("# Partition Information" if form == "delta" else "months(day)") in described(cdc, orders)
    stream.sql('DELETE FROM "My Orders" WHERE id = 1', "DELETE FROM t WHERE id = 1", "INSERT INTO log VALUES (2)")
    daemon.wait_until_confirmed()
    other = cdc.mirror("public.*", catalog, form, per_table=[{"match": "public.t", "target": "u", "deletes": "soft"}])
    other.run_once()  # `log` is followed now; the others keep their names
    other.compact()
    found = other.as_of()
    assert {row["id"] for row in found['public."My Orders"'].collect()} == {2}
    assert {(row["id"], row["_is_deleted"]) for row in found["public.t"].collect()} == {(1, True), (2, False)}
    assert found["public.log"].count() == 2
    assert other.published().by_id()[f"{stream.prefix}.public.t"].target == told
    with cdc.snapshot(stream.dsn, ["public.t"]) as snapshot:
        other.load(snapshot)
    assert other.published().by_id()[f"{stream.prefix}.public.t"].target == f"{catalog}.`u`"
    assert [row["id"] for row in other.as_of()["public.t"].collect()] == [2]


@pytest.mark.whole
@pytest.mark.parametrize("form", FORMATS)
def test_a_table_that_a_person_has_made_is_taken_if_its_columns_fit(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], form: Format
) -> None:
    names = "fits", "bag", "wrong", "other"
    for name in names:
        stream.sql(f"CREATE TABLE {name} ({'id int, n bigint' if name == 'bag' else 'id int PRIMARY KEY, n bigint'})")
    stream.sql("ALTER TABLE bag REPLICA IDENTITY FULL")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql(*(f"INSERT INTO {name} VALUES (1, 1), (2, 2)" for name in names))
    daemon.wait_until_confirmed()
    catalog, sql = lake(form), cdc.spark.sql
    partition = "PARTITIONED BY (n)" if form == "delta" else "PARTITIONED BY (bucket(2, id))"
    sql(f"CREATE TABLE {catalog}.public_fits (id int, n bigint, note string) USING {form} {partition}")
    sql(f"CREATE TABLE {catalog}.public_bag (id bigint, n int) USING {form}")
    sql(f"CREATE TABLE {catalog}.public_wrong (id int, n boolean) USING {form}")
    if form == "delta":
        sql(f"CREATE TABLE {catalog}.public_other (id int, n bigint) USING parquet")
    mirror = cdc.mirror("public.*", catalog, form)
    mirror.run_once()
    quarantined = mirror.published().quarantined
    assert "column n is boolean, and PostgreSQL's is bigint now" in quarantined.pop("public.wrong")
    if form == "delta":
        assert "public_other` is not a table of delta" in quarantined.pop("public.other")
    assert not quarantined
    stream.sql("UPDATE fits SET n = 3 WHERE id = 1", "DELETE FROM fits WHERE id = 2", "DELETE FROM bag WHERE id = 1")
    stream.sql("INSERT INTO bag VALUES (3, 1::bigint << 40)")
    daemon.wait_until_confirmed()
    mirror.run_once()
    found = mirror.as_of()
    assert [tuple(row) for row in found["public.fits"].select("id", "n", "note").collect()] == [(1, 3, None)]
    assert {tuple(row) for row in found["public.bag"].select("id", "n").collect()} == {(2, 2), (3, 1 << 40)}
    for name in ("wrong", "other")[: 2 if form == "delta" else 1]:
        sql(f"DROP TABLE {catalog}.public_{name}")  # the cure
    cdc.mirror("public.*", catalog, form).run_once()
    assert not mirror.published().quarantined
    assert mirror.as_of()["public.wrong"].count() == 2
