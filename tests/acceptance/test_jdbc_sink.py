"""Debezium's JDBC sink on Kafka Connect takes cdcd's topics as they are, and makes the tables of the source.

Three ways lead to the same tables: flat rows; Debezium's events; these through Debezium's ExtractNewRecordState; the
first two in JSON and in Avro. The properties are those of the page about consumers.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
import servers
from servers import connect
from servers.registry import SchemaRegistry
from support.fix_postgres import Database
from support.pages import blocks
from support.reader_changes import CHANGES_OF_ROWS
from support.stream import StreamFixture, eventually

TABLES = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    """CREATE TABLE types (
        id bigint PRIMARY KEY, flag boolean NOT NULL DEFAULT true, i2 smallint, i4 int, i8 bigint, f4 real,
        f8 double precision, n numeric, n52 numeric(5,2), cash money, c char(5), vc varchar(20), t text, raw bytea,
        j json, jb jsonb, u uuid, d date, t3 time(3), t6 time, ts3 timestamp(3), ts timestamp, tz timestamptz,
        z timetz, iv interval, ip inet, net cidr, mac macaddr, r int4range, a int[], words text[], m mood,
        o oid, x xml, filled int DEFAULT 5
    )""",
    "CREATE TABLE bits (id int PRIMARY KEY, b bit(12))",
    "CREATE TABLE pairs (word text, number int, v text, PRIMARY KEY (word, number))",
)
FULL = "ALTER TABLE pairs REPLICA IDENTITY FULL"
ROW = """
    INSERT INTO types SELECT g, true, -1, 2147483647, -9223372036854775808, 1.5, 1e300, 12345.678901, -0.01, 12.34,
        'ab', 'cd', E'q"\\\\é😀\\n', '\\x00ff', '{"a" : 1}', '{"a" : 1}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
        '2020-02-29', '10:11:12.5', '10:11:12.123456', '2020-02-29 10:11:12.123', '1969-12-31 23:59:59.999999',
        '2020-02-29 10:11:12.5+02', '10:11:12+00', '01:02:03', '10.0.0.1', '10.0.0.0/8',
        '08:00:2b:01:02:03', '[1,5]', '{1,2}', '{a,"b c"}', 'ok', 42, '<a>b</a>', NULL
    FROM generate_series(%d, %d) g
"""
BEFORE = (
    ROW % (1, 40),
    "INSERT INTO types (id) SELECT generate_series(41, 45)",
    "INSERT INTO pairs SELECT 'w' || g, g, 'v' || g FROM generate_series(1, 20) g",
    "INSERT INTO bits VALUES (1, B'000000000101')",
    # Too long to be sent where it does not change.
    "INSERT INTO pairs SELECT 'long', 0, string_agg(md5(g::text), '') FROM generate_series(1, 1000) g",
)
CHANGES = (ROW % (100, 120), *CHANGES_OF_ROWS)
UNWRAP = {
    "transforms": "unwrap,table",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
}


def content(dsn: str) -> list[list[tuple[str, ...]]]:
    """The rows of both tables, each value as PostgreSQL's text. A sink may have added columns to them."""
    columns = {
        "types": "id, flag, i2, i4, i8, f4, f8, n, n52, cash, c, vc, t, raw, j, jb, u, d, t3, t6, ts3, ts, tz, z, iv, "
        "ip, net, mac, r, a, words, m, o, x, filled",
        "pairs": "word, number, v",
        "bits": "id, b",
    }
    with psycopg.connect(dsn) as sql:
        found = []
        for table, names in columns.items():
            shown = ", ".join(f"{name}::text" for name in names.split(", "))
            found.append(sql.execute(f"SELECT {shown} FROM {table} ORDER BY 1, 2".encode()).fetchall())
        return found


@pytest.mark.whole
def test_the_tables_of_the_sink_are_those_of_the_source(
    stream: StreamFixture,
    database: Database,
    postgres: servers.PostgreSQL,
    kafka: servers.Kafka,
    schema_registry: SchemaRegistry,
) -> None:
    [page] = [block for block in blocks("consumers") if block.language == "properties"]
    usual = dict(line.split("=", 1) for line in page.text.splitlines())
    stream.sql(*TABLES, FULL, *BEFORE)
    connectors, targets, prefixes = {}, {}, set[str]()
    with ExitStack() as stack:
        avro: dict[str, str] = {}
        for part in ("key", "value"):
            avro |= connect.avro_converter(part, schema_registry.apicurio_url)
        for name, form, more in (
            ("rows", "row/json-schema", {}),
            ("avro_rows", "row/avro", avro),
            ("events", "debezium/json-schema", {}),
            ("avro_events", "debezium/avro", avro),
            ("unwrapped", "debezium/json-schema", UNWRAP),
        ):
            prefix = f"{stream.prefix}.{form.replace('/', '-')}"
            target = Database(f"{database.name}_{name}", postgres)
            with psycopg.connect(postgres.dsn(), autocommit=True) as sql:
                sql.execute(f"CREATE DATABASE {target.name} TEMPLATE template0".encode())
            stack.callback(target.drop)
            with psycopg.connect(target.dsn, autocommit=True) as sql:
                for statement in TABLES:
                    sql.execute(statement.encode())
            targets[name] = target.dsn
            connectors[name] = {
                **{key: value.replace("shop[.]", f"{prefix}[.]") for key, value in usual.items() if key != "name"},
                "connection.url": f"jdbc:postgresql://127.0.0.1:{postgres.port}/{target.name}?stringtype=unspecified",
                "connection.username": "postgres",
                "consumer.override.metadata.max.age.ms": "1000",
                **more,
            }
            if form.endswith("avro"):  # the sink cannot take bits from a converter of Avro (ClassCastException)
                connectors[name]["topics.regex"] = f"{prefix}[.]public[.](types|pairs)"
            if prefix not in prefixes:
                prefixes.add(prefix)
                sink = dict(zip(("prefix", "format", "encoding"), (prefix, *form.split("/")), strict=True))
                settings: Any = {"sink": sink, "snapshot": {"mode": "initial"}}
                if form.endswith("avro"):
                    settings["avro"] = {"registry_url": schema_registry.url}
                    settings["debezium"] = {"schema_name_adjustment_mode": "avro"}  # the prefix has a hyphen
                stream.daemon(source={"slot": f"{stream.slot}_{len(prefixes)}"}, **settings).start()
        plugins = (connect.JDBC_SINK, connect.APICURIO)
        with connect.Connect(kafka, plugins, connectors=connectors) as worker:

            def wait_until_equal() -> None:
                wanted = content(stream.dsn)
                for name, dsn in targets.items():

                    def is_equal(name: str = name, dsn: str = dsn) -> bool:
                        worker.check()
                        made = content(dsn)
                        return made[:2] == wanted[:2] and (made[2] == wanted[2] or name.startswith("avro"))

                    eventually(is_equal, f"the tables of {name} are those of the source", 300)

            wait_until_equal()
            stream.sql(*CHANGES)
            wait_until_equal()
            assert [len(rows) for rows in content(stream.dsn)] == [64, 18, 1]
