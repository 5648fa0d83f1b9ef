"""Types, keys and settings, as the catalog of a real server has them."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from servers import PostgreSQL
from support.fix_postgres import Database

from cdcd.avro.codecs.lookup import TypeOptions, codec_for
from cdcd.errors import PostgresUnavailable
from cdcd.source.catalog import Catalog
from cdcd.source.pg_types import PgType

both = pytest.mark.postgres_versions("oldest", "newest")


def oid(database: Database, kind: str, name: str) -> int:
    [(found,)] = database.execute(f"SELECT '{name}'::reg{kind}::oid::bigint")
    return int(found)


@both
def test_a_type_is_resolved_with_all_that_it_is_made_of(database: Database) -> None:
    database.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN price AS numeric(10,2)",
        "CREATE DOMAIN sale AS price CHECK (value > 0)",
        'CREATE TYPE "odd ""t" AS ("a b" sale[], m mood, gone int, span int4multirange)',
        'ALTER TYPE "odd ""t" DROP ATTRIBUTE gone',
    )
    with Catalog(database.dsn) as catalog:
        number = oid(database, "type", '"odd ""t"')
        odd = catalog.types([number])[number]
        assert (odd.kind, odd.qualified) == ("c", 'public.odd "t')
        assert [(name, typmod) for name, _, typmod in odd.fields] == [("a b", -1), ("m", -1), ("span", -1)]
        array, mood, span = (of for _, of, _ in odd.fields)
        assert array.is_array
        sale = array.element
        assert sale is not None
        assert sale.base is not None
        assert sale.base.base is not None
        assert (sale.kind, sale.base.name, sale.base.base.name) == ("d", "price", "numeric")
        assert sale.base.base_typmod == ((10 << 16) | 2) + 4
        assert (mood.kind, mood.is_array) == ("e", False)
        assert span.element is not None
        assert span.element.element is not None
        assert (span.kind, span.element.kind, span.element.element.name) == ("m", "r", "int4")


@both
def test_types_that_are_nested_without_bound_are_resolved(database: Database) -> None:
    database.execute(
        "DO $$ BEGIN CREATE DOMAIN d0 AS int; CREATE TYPE c0 AS (a int); "
        "FOR n IN 1..1200 LOOP EXECUTE format('CREATE DOMAIN d%s AS d%s', n, n - 1); "
        "EXECUTE format('CREATE TYPE c%s AS (a c%s)', n, n - 1); END LOOP; END $$"
    )
    with Catalog(database.dsn) as catalog:
        domain, composite = (oid(database, "type", name) for name in ("d1200", "c1200"))
        types = catalog.types([domain, composite])
        assert codec_for(types[domain], -1, TypeOptions()).schema == "int"
        assert types[composite].depth == 1_202
        assert codec_for(types[composite], -1, TypeOptions()).schema == "string"


@both
def test_the_columns_that_the_publication_leaves_out_are_told(database: Database) -> None:
    database.execute(
        "CREATE TABLE plain (id int PRIMARY KEY, gone int, v text, made int GENERATED ALWAYS AS (id + 1) STORED)",
        "ALTER TABLE plain DROP gone",
        "CREATE PUBLICATION p FOR TABLE plain",
    )
    with Catalog(database.dsn, "p") as catalog:
        assert catalog.columns(oid(database, "class", "plain")) == {"id": True, "v": True, "made": False}
        assert catalog.columns(4_000_000_000) == {}
        before = catalog.position()
        database.execute("INSERT INTO plain VALUES (1)")
        assert catalog.position() > before


@pytest.mark.postgres_versions("15", "newest")
def test_the_columns_that_a_column_list_leaves_out_are_told(database: Database) -> None:
    database.execute(
        "CREATE TABLE listed (a int, b int, c int, PRIMARY KEY (a, b))",
        "CREATE TABLE root (x int, y int) PARTITION BY RANGE (x)",
        "CREATE PUBLICATION p FOR TABLE listed (a, c), root (y) WITH (publish_via_partition_root)",
        "CREATE PUBLICATION other FOR TABLE listed (b)",
    )
    with Catalog(database.dsn, "p") as catalog:
        assert catalog.columns(oid(database, "class", "listed")) == {"a": True, "b": False, "c": True}
        assert catalog.columns(oid(database, "class", "root")) == {"x": False, "y": True}
        database.execute("ALTER PUBLICATION p SET TABLE listed")
        assert not catalog.columns(oid(database, "class", "listed"))["b"], "remembered"
        catalog.forget()
        assert catalog.columns(oid(database, "class", "listed"))["b"]


@pytest.mark.postgres_versions("newest")
def test_generated_columns_may_be_published(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int, made int GENERATED ALWAYS AS (id + 1) STORED, virtual int GENERATED ALWAYS AS (id))",
        "CREATE PUBLICATION p FOR TABLE t WITH (publish_generated_columns = stored)",
    )
    with Catalog(database.dsn, "p") as catalog:
        assert catalog.columns(oid(database, "class", "t")) == {"id": True, "made": True, "virtual": False}


@both
def test_built_in_types_are_as_the_codecs_take_them(database: Database) -> None:
    with Catalog(database.dsn) as catalog:
        found = catalog.types([20, 600, 1020, 1009, 0, 4_000_000_000])
    assert found[20] == PgType(20, "pg_catalog", "int8")
    assert found[600] == PgType(600, "pg_catalog", "point")
    assert found[1020].delimiter == ";"
    assert found[1009].element == PgType(25, "pg_catalog", "text")
    assert found.keys() == {20, 600, 1020, 1009}


@both
def test_answers_are_remembered_until_forgotten(database: Database) -> None:
    database.execute("CREATE TYPE pair AS (a int)", "CREATE TABLE t (a int, b int, PRIMARY KEY (b, a))")
    with Catalog(database.dsn) as catalog:
        pair, table = oid(database, "type", "pair"), oid(database, "class", "t")
        before = catalog.types([pair])[pair]
        assert catalog.primary_key(table) == ("b", "a")
        database.execute("ALTER TYPE pair ADD ATTRIBUTE b text", "ALTER TABLE t RENAME b TO c")
        assert catalog.types([pair])[pair] is before
        assert catalog.primary_key(table) == ("b", "a")
        catalog.forget()
        after = catalog.types([pair])[pair]
        assert [name for name, _, _ in after.fields] == ["a", "b"]
        assert catalog.primary_key(table) == ("c", "a")


@both
def test_a_primary_key_comes_in_key_order_without_included_columns(database: Database) -> None:
    database.execute(
        'CREATE TABLE k (a int, "b ""ü" text, c int, PRIMARY KEY ("b ""ü", a) INCLUDE (c))',
        "CREATE TABLE none (a int UNIQUE)",
    )
    with Catalog(database.dsn) as catalog:
        assert catalog.primary_key(oid(database, "class", "k")) == ('b "ü', "a")
        assert catalog.primary_key(oid(database, "class", "none")) == ()
        assert catalog.primary_key(4_000_000_000) == ()


@both
def test_published_types_are_those_of_published_columns(database: Database) -> None:
    database.execute(
        "CREATE TABLE a (id bigint PRIMARY KEY, v text, g int GENERATED ALWAYS AS (1) STORED)",
        "CREATE TABLE b (id bigint PRIMARY KEY, j jsonb)",
        "CREATE TABLE c (id uuid PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE a",
        'CREATE PUBLICATION "q ü" FOR TABLE b',
    )
    with Catalog(database.dsn) as catalog:
        assert [of.name for of in catalog.published_types("p")] == ["int8", "text"]
        assert [of.name for of in catalog.published_types("p", "q ü")] == ["int8", "text", "jsonb"]
        assert catalog.published_types("nosuch") == []


@pytest.mark.postgres_versions("newest")
def test_a_column_list_leaves_its_types_out(database: Database) -> None:
    database.execute("CREATE TABLE a (id bigint PRIMARY KEY, v point)", "CREATE PUBLICATION p FOR TABLE a (id)")
    with Catalog(database.dsn) as catalog:
        assert [of.name for of in catalog.published_types("p")] == ["int8"]


@both
def test_the_timeout_is_the_servers(database: Database) -> None:
    with Catalog(database.dsn) as catalog:
        assert catalog.wal_sender_timeout_s() == 60.0
    with Catalog(database.dsn + " options='-c wal_sender_timeout=1500ms'") as catalog:
        assert catalog.wal_sender_timeout_s() == 1.5


def test_a_catalog_survives_a_restart_of_the_server(start_postgres: Callable[..., PostgreSQL]) -> None:
    server = start_postgres()
    with Catalog(server.dsn()) as catalog:
        assert catalog.types([23]).keys() == {23}
        server.restart(mode="immediate")
        with pytest.raises(PostgresUnavailable):
            catalog.types([20])
        assert catalog.types([20])[20] == PgType(20, "pg_catalog", "int8")


DEFAULTS = {
    "int": "7",
    "text": """E'a,b {"q"} \\\\ \\'NULL\\' é'""",
    "text[]": """ARRAY['NULL', NULL, '{}']""",
    "numeric(10,2)": "1.50",
    "timestamptz": "'infinity'",
    "bytea": r"'\x00ff'",
    "jsonb": """'{"a": [1, null]}'""",
    "box": "'(1,2),(3,4)'",
    "mood": "'ok'",
    "pair": "ROW(1, 'x y')",
    "float8": "'NaN'",
    "interval": "'1 day 2 hours'",
    "varchar": "''",
}
"""By type, a default."""


@both
def test_what_older_rows_hold_in_an_added_column_is_told_as_the_server_prints_it(database: Database) -> None:
    database.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TYPE pair AS (a int, b text)",
        "CREATE TABLE t (id int)",
        "INSERT INTO t VALUES (1)",
        *(
            f"ALTER TABLE t ADD c{number} {kind} DEFAULT {value}"
            for number, (kind, value) in enumerate(DEFAULTS.items())
        ),
        "ALTER TABLE t ADD later int, ADD large text DEFAULT repeat('x', 1001)",
        "ALTER TABLE t ALTER c0 SET DEFAULT 8",
    )
    with Catalog(database.dsn) as catalog:
        found = catalog.attributes(oid(database, "class", "t"))
        printed = ", ".join(f"concat(c{number})" for number in range(len(DEFAULTS)))
        [wanted] = catalog.session.rows(f"SELECT {printed} FROM public.t")
        assert [found[f"c{number}"].missing_value for number in range(len(DEFAULTS))] == list(wanted)
        assert (found["id"].missing_value, found["later"].missing_value, found["large"].missing_value) == (None,) * 3
        assert [found[name].number for name in ("id", "c0", "later")] == [1, 2, len(DEFAULTS) + 2]
        database.execute("VACUUM FULL t")
        assert catalog.attributes(oid(database, "class", "t")) is found, "remembered until it is told to forget"
        catalog.forget()
        assert catalog.attributes(oid(database, "class", "t"))["c0"].missing_value is None


@both
def test_the_root_of_partitions_has_what_they_agree_on(database: Database) -> None:
    database.execute(
        "CREATE TABLE root (id int, d int) PARTITION BY RANGE (d)",
        "CREATE TABLE below PARTITION OF root FOR VALUES FROM (0) TO (20) PARTITION BY RANGE (d)",
        "CREATE TABLE a PARTITION OF below FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE b PARTITION OF below FOR VALUES FROM (10) TO (20)",
        "ALTER TABLE root ADD c int DEFAULT 7",
        "CREATE TABLE younger PARTITION OF root FOR VALUES FROM (20) TO (30)",
        "CREATE TABLE other (id int, d int)",
        "ALTER TABLE other ADD c int DEFAULT 8",
    )
    with Catalog(database.dsn) as catalog:
        assert catalog.attributes(oid(database, "class", "root"))["c"].missing_value == "7"
        database.execute("ALTER TABLE root ATTACH PARTITION other FOR VALUES FROM (30) TO (40)")
        catalog.forget()
        assert catalog.attributes(oid(database, "class", "root"))["c"].missing_value is None


def test_a_default_that_has_no_equivalent_in_utf_8_stops_nothing(database: Database) -> None:
    for encoding in ("WIN1252", "SQL_ASCII"):
        name = f"in_{encoding.lower()}"
        database.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
        other = database.dsn + f" dbname={name}"
        with psycopg.connect(other, autocommit=True, client_encoding="SQL_ASCII") as connection:
            connection.execute("CREATE TABLE t (id int)")
            connection.execute(b"ALTER TABLE t ADD c text DEFAULT '\x81', ADD d text DEFAULT 'ascii'")
            row = connection.execute("SELECT 't'::regclass::oid::bigint").fetchone()
        assert row is not None
        with Catalog(other) as theirs:
            found = theirs.attributes(row[0])
            assert (found["c"].missing_value, found["d"].missing_value) == (None, "ascii")


@both
def test_many_tables_in_one_question_are_as_each_is_alone(database: Database) -> None:
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, v text NOT NULL DEFAULT 'x')",
        "INSERT INTO a VALUES (1)",
        "ALTER TABLE a ADD w int DEFAULT 7",
        "CREATE TABLE b (x int, y int NOT NULL, PRIMARY KEY (y, x))",
        "CREATE UNIQUE INDEX b_y ON b (y)",
        "ALTER TABLE b REPLICA IDENTITY USING INDEX b_y",
        "CREATE TABLE root (id int, d int) PARTITION BY RANGE (d)",
        "CREATE TABLE leaf PARTITION OF root FOR VALUES FROM (0) TO (10)",
        "ALTER TABLE root ADD c int DEFAULT 8",
        "CREATE TABLE other (id int, w int)",
        "INSERT INTO other VALUES (1)",
        "ALTER TABLE other ADD c int DEFAULT 9",
    )
    oids = [oid(database, "class", name) for name in ("a", "b", "root", "leaf", "other")] + [4_000_000_000]
    with Catalog(database.dsn) as catalog, Catalog(database.dsn) as alone:
        catalog.expect(oids)
        database.execute("DROP TABLE a, b, root, other")
        found = [(catalog.primary_key(x), catalog.identity_index(x), catalog.attributes(x)) for x in oids]
        assert [key for key, _, _ in found] == [("id",), ("y", "x"), (), (), (), ()]
        assert [index for _, index, _ in found] == [(), ("y",), (), (), (), ()]
        missing = [{n: each.missing_value for n, each in attributes.items()} for _, _, attributes in found]
        assert missing == [
            {"id": None, "v": None, "w": "7"}, {"x": None, "y": None}, {"id": None, "d": None, "c": "8"},
            {"id": None, "d": None, "c": "8"}, {"id": None, "w": None, "c": "9"}, {},
        ]  # fmt: skip
        assert alone.attributes(oids[0]) == {}, "the answers were given before the tables were dropped"
