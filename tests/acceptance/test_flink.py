"""Flink SQL takes cdcd's topics as they are, and makes the tables of the source, column by column.

Debezium's events through `debezium-json` and `debezium-avro-confluent`, flat rows through `upsert-kafka`. A row that
Flink takes back must be one that it has.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from servers import flink
from servers.registry import SchemaRegistry
from support.reader_changes import CHANGES_OF_ROWS
from support.stream import StreamFixture


@dataclass(frozen=True)
class Column:
    """A column in Flink."""

    type: str
    selected: str = "{0}"
    """What Flink makes of it."""
    source: str = "{0}"
    """What that is in PostgreSQL."""


TEXT = Column("STRING", source="{0}::text")
ADDRESS = Column("STRING", source="host({0})")
INT = Column("INT")
BIGINT = Column("BIGINT")
MICROSECONDS = Column("BIGINT", source="(extract(epoch FROM {0}) * 1000000)::bigint")
SHOWN_US = "to_char({0}, 'YYYY-MM-DD HH24:MI:SS.US')"
SHOWN_UTC_US = "to_char({0} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"
OF_LTZ = "CAST(CAST({0} AS TIMESTAMP(6)) AS STRING)"
OF_ISO = Column("TIMESTAMP_LTZ(6)", OF_LTZ, SHOWN_US)
OF_ZONED = Column("TIMESTAMP_LTZ(6)", OF_LTZ, SHOWN_UTC_US)
OF_ZONED_TEXT = Column("STRING", "REPLACE(REPLACE({0}, 'T', ' '), 'Z', '')", SHOWN_UTC_US)
OF_TIME = Column("STRING", "REPLACE({0}, 'Z', '')", "{0}::text")
OF_ZONED_TIME = Column("STRING", "REPLACE({0}, 'Z', '+00')", "{0}::text")
AS_TEXT = "CAST({0} AS STRING)"  # PyFlink takes no array with a null, no NaN
N52, N38 = Column("DECIMAL(5, 2)"), Column("DECIMAL(38, 10)")

COLUMNS: tuple[tuple[str, str, Column, Column | None], ...] = (
    # name, PostgreSQL's type, in JSON by the modes IN_JSON, in Avro by Debezium's defaults (None: Flink has no type)
    ("id", "bigint PRIMARY KEY", BIGINT, BIGINT),
    ("flag", "boolean NOT NULL DEFAULT true", Column("BOOLEAN"), Column("BOOLEAN")),
    ("i2", "smallint", Column("SMALLINT"), INT),
    ("i4", "int", INT, INT),
    ("i8", "bigint", BIGINT, BIGINT),
    ("f4", "real", Column("FLOAT", AS_TEXT), Column("FLOAT", AS_TEXT)),
    ("f8", "double precision", Column("DOUBLE", AS_TEXT), Column("DOUBLE", AS_TEXT)),
    ("n", "numeric", TEXT, None),
    ("n52", "numeric(5,2)", N52, N52),
    ("n38", "numeric(38,10)", N38, N38),
    ("c", "char(5)", Column("STRING"), Column("STRING")),
    ("vc", "varchar(20)", TEXT, TEXT),
    ("t", "text", TEXT, TEXT),
    ("raw", "bytea", Column("BYTES"), Column("BYTES")),
    ("j", "json", TEXT, TEXT),
    ("jb", "jsonb", TEXT, TEXT),
    ("u", "uuid", TEXT, TEXT),
    ("d", "date", Column("STRING", "CAST(REPLACE({0}, 'Z', '') AS DATE)"), Column("DATE")),
    ("t3", "time(3)", OF_TIME, Column("TIME(3)")),
    ("t6", "time", OF_TIME, MICROSECONDS),
    ("ts3", "timestamp(3)", OF_ISO, Column("TIMESTAMP(3)")),
    ("ts", "timestamp", OF_ISO, MICROSECONDS),
    ("tz", "timestamptz", OF_ZONED, OF_ZONED_TEXT),
    ("z", "timetz", OF_ZONED_TIME, OF_ZONED_TIME),
    ("iv", "interval", MICROSECONDS, MICROSECONDS),
    ("ip", "inet", ADDRESS, ADDRESS),
    ("net", "cidr", TEXT, TEXT),
    ("mac", "macaddr", TEXT, TEXT),
    ("r", "int4range", TEXT, TEXT),
    ("a", "int[]", Column("ARRAY<INT>", AS_TEXT), Column("ARRAY<INT>", AS_TEXT)),
    ("words", "text[]", Column("ARRAY<STRING>", AS_TEXT), Column("ARRAY<STRING>", AS_TEXT)),
    ("m", "mood", TEXT, TEXT),
    ("o", "oid", BIGINT, BIGINT),
    ("x", "xml", TEXT, TEXT),
    ("filled", "int DEFAULT 5", INT, INT),
)
PAIRS = {"word": TEXT, "number": INT, "v": TEXT}
TABLES = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    f"CREATE TABLE types ({', '.join(f'{name} {type_}' for name, type_, *_ in COLUMNS)})",
    "CREATE TABLE pairs (word text, number int, v text, PRIMARY KEY (word, number))",
    "ALTER TABLE types REPLICA IDENTITY FULL",  # Flink wants the whole old row
    "ALTER TABLE pairs REPLICA IDENTITY FULL",
)
ROW = """
    INSERT INTO types SELECT g, true, -1, 2147483647, -9223372036854775808, 0.1, 1e300, 12345.678901, -0.01,
        1234567890123456789012345678.0123456789, 'ab', 'cd', E'q"\\\\é😀\\n', '\\x00ff', '{"a" : 1}', '{"a" : 1}',
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2020-02-29', '10:11:12.5', '10:11:12.123456',
        '2020-02-29 10:11:12.123', '1969-12-31 23:59:59.999999', '2020-02-29 10:11:12.5+02', '10:11:12+00',
        '1 day 01:02:03', '10.0.0.1', '10.0.0.0/8', '08:00:2b:01:02:03', '[1,5]', '{1,NULL,2}', '{a,"b c"}', 'ok',
        4294967295, '<a>b</a>', NULL
    FROM generate_series(%d, %d) g
"""
BEFORE = (
    ROW % (1, 40),
    "INSERT INTO types (id) SELECT generate_series(41, 45)",
    "INSERT INTO types (id, f4, f8) VALUES (46, 'NaN', '-1.5'), (47, '3.4e38', '5e-324')",
    "INSERT INTO pairs SELECT 'w' || g, g, 'v' || g FROM generate_series(1, 20) g",
    # Too long to be sent where it does not change.
    "INSERT INTO pairs SELECT 'long', 0, string_agg(md5(g::text), '') FROM generate_series(1, 1000) g",
)
CHANGES = (ROW % (100, 120), *CHANGES_OF_ROWS)
IN_AVRO = {"schema_name_adjustment_mode": "avro"}  # the prefix has a hyphen
IN_JSON = {"decimal_handling_mode": "string", "time_precision_mode": "isostring"}
EVENTS = {"connector": "kafka", "scan.startup.mode": "earliest-offset"}
EVENTS_IN_JSON = {**EVENTS, "format": "debezium-json", "debezium-json.timestamp-format.standard": "ISO-8601"}
ROWS = {"connector": "upsert-kafka"}
READERS: tuple[tuple[str, dict[str, str], dict[str, str]], ...] = (
    # format/encoding, [debezium], the options of Flink's table
    ("debezium/json", IN_JSON, EVENTS_IN_JSON),
    ("debezium/json-schema", IN_JSON, {**EVENTS_IN_JSON, "debezium-json.schema-include": "true"}),
    (
        "debezium/avro", IN_AVRO,
        {**EVENTS, "format": "debezium-avro-confluent", "debezium-avro-confluent.url": "REGISTRY"},
    ),
    (
        "row/json", IN_JSON,
        {**ROWS, "key.format": "json", "value.format": "json", "value.json.timestamp-format.standard": "ISO-8601"},
    ),
    (
        "row/avro", IN_AVRO,
        {
            **ROWS, "key.format": "avro-confluent", "key.avro-confluent.url": "REGISTRY",
            "value.format": "avro-confluent", "value.avro-confluent.url": "REGISTRY",
        },
    ),
)  # fmt: skip


Row = tuple[str | None, ...]


def columns_of(form: str, table: str) -> dict[str, Column]:
    """The columns of a table that Flink has a type for."""
    if table == "pairs":
        return PAIRS
    columns = ((name, in_avro if form.endswith("avro") else in_json) for name, _, in_json, in_avro in COLUMNS)
    return {name: column for name, column in columns if column}


def source(stream: StreamFixture, table: str, columns: dict[str, Column]) -> Counter[Row]:
    """The rows of the source as Flink must have them."""
    shown = ", ".join(column.source.format(name) for name, column in columns.items())
    rows = stream.sql(f"SELECT {shown} FROM {table}")
    return Counter(tuple(map(rendered, row)) for row in rows)


def rendered(value: Any) -> str | None:
    """A value as `flink.execute` gives it."""
    if value is None:
        return None
    if isinstance(value, list):
        return f"[{', '.join('NULL' if item is None else str(item) for item in value)}]"
    return value.hex() if isinstance(value, bytes) else str(value)


def made_of(changes: list[flink.Change], columns: dict[str, Column]) -> Counter[Row]:
    """The rows of Flink's table behind all changes. A row that is taken back must be there."""
    rows: Counter[Row] = Counter()
    floats = [column.type in ("FLOAT", "DOUBLE") for column in columns.values()]
    for kind, values in changes:
        pairs = zip(values, floats, strict=True)
        row = tuple(str(float(value)) if is_float and value else value for value, is_float in pairs)
        rows[row] += 1 if kind in ("INSERT", "UPDATE_AFTER") else -1
        assert rows[row] >= 0, (kind, row)
    return +rows


@pytest.mark.whole
def test_the_tables_that_flink_makes_are_those_of_the_source(
    stream: StreamFixture, schema_registry: SchemaRegistry
) -> None:
    stream.sql(*TABLES, *BEFORE)
    daemons = []
    for number, (form, modes, _) in enumerate(READERS):
        sink = dict(zip(("prefix", "format", "encoding"), (prefix_of(stream, form), *form.split("/")), strict=True))
        settings: Any = {"sink": sink, "snapshot": {"mode": "initial"}, "debezium": modes}
        if form.endswith("avro"):
            settings["avro"] = {"registry_url": schema_registry.url}
        daemons.append(stream.daemon(source={"slot": f"{stream.slot}_{number}"}, **settings).start())
    for daemon in daemons:
        daemon.wait_for_log("the snapshot is complete", 120)
    stream.sql(*CHANGES)
    for daemon in daemons:
        daemon.wait_until_confirmed(timeout_s=120)
        assert daemon.stop(60) == 0
    creates, selects = [], {}
    for form, _, options in READERS:
        for table, key in (("types", "id"), ("pairs", "word, number")):
            columns = columns_of(form, table)
            properties = {
                "topic": f"{prefix_of(stream, form)}.public.{table}",
                "properties.bootstrap.servers": stream.broker,
                "properties.isolation.level": "read_committed",
                "scan.bounded.mode": "latest-offset",
                **{name: value.replace("REGISTRY", schema_registry.url) for name, value in options.items()},
            }
            name = re.sub("[/-]", "_", f"{table}_{form}")
            types = ", ".join(f"`{name}` {column.type}" for name, column in columns.items())
            said = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
            creates.append(f"CREATE TABLE {name} ({types}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ({said})")
            shown = ", ".join(column.selected.format(f"`{name}`") for name, column in columns.items())
            selects[form, table] = f"SELECT {shown} FROM {name}"
    found = flink.execute([*creates, *selects.values()])
    differing = {}
    for (form, table), select in selects.items():
        columns = columns_of(form, table)
        wanted, made = source(stream, table, columns), made_of(found[select], columns)
        if made != wanted:
            more, less = (min(rows, key=repr, default=()) for rows in (made - wanted, wanted - made))
            pairs = zip(columns, more, less, strict=False)
            differing[form, table] = [each for each in pairs if each[1] != each[2]]
        assert wanted.total() == {"types": 66, "pairs": 18}[table]
    assert differing == {}, differing


def prefix_of(stream: StreamFixture, form: str) -> str:
    return f"{stream.prefix}.{form.replace('/', '-')}"
