"""The page of the types against PostgreSQL: each of its types is there, and each example is as it writes it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from psycopg import pq
from support import type_rows
from support.type_rows import HEADER, LOSSES_HEADER, rows, spans, type_named

from cdcd import manual
from cdcd.avro.codecs.lookup import TypeOptions, codec_for
from cdcd.source.catalog import Catalog
from cdcd.source.session import PINNED

every_version = pytest.mark.postgres_versions("oldest", "newest")

FORMS = ("DateStyle", "IntervalStyle", "bytea_output", "extra_float_digits", "TimeZone")
SESSION = " ".join(f"-c {name}={value}" for name, value in PINNED if name in FORMS) + " -c lc_monetary=C"
"""The settings of cdcd's own sessions that decide how values are written."""

_VALUE_TYPES = """
    SELECT typname FROM pg_type
    WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype IN ('b', 'r', 'm', 'd', 'e') AND typname !~ '^_'
"""


@every_version
def test_each_built_in_type_of_the_server_is_on_the_page(database: Any) -> None:
    page = manual.page("types")
    [internal] = re.findall(r"PostgreSQL's internal types \(([^)]*)\)", page)
    named = {type_named(row.sql)[0].name for row in rows(HEADER)} | {*spans(internal)}
    found = database.connect().execute(_VALUE_TYPES).fetchall()
    assert {name for (name,) in found} - named == set()


@every_version
def test_each_example_is_what_the_server_writes_and_the_same_avro_in_both_modes(database: Any) -> None:
    connection = database.connect(options=SESSION)
    for extension in ("citext", "hstore", "ltree", "cube", "isn", "postgis", "vector"):
        if connection.execute("SELECT FROM pg_available_extensions WHERE name = %s", [extension]).fetchone():
            connection.execute(f"CREATE EXTENSION {extension}")
    connection.execute(re.findall(r"```sql\n(.*?)```", manual.page("types"), re.DOTALL)[0])
    examples = [(row.sql, row.literal) for row in rows(HEADER)]
    examples += [(spans(row.cells[0])[0], value) for row in rows(LOSSES_HEADER) for value in spans(row.cells[1])]
    examples = [
        (sql, literal)
        for sql, literal in examples
        if is_possible(sql, literal, connection.info.server_version // 10_000)
    ]
    checked = 0
    with Catalog(database.dsn) as catalog:
        for sql, literal in examples:
            without_modifier = re.sub(r"\(.*\)", "", sql)
            [known] = connection.execute("SELECT to_regtype(%s)::oid::bigint", [without_modifier]).fetchone()
            if known is None:  # the type of an extension that this server does not have
                continue
            text = sent(connection, sql, literal, 0)
            assert text.decode() == literal, sql
            codec = codec_for(catalog.types([known])[known], type_named(sql)[1], TypeOptions())
            avro = type_rows.avro_of(codec, text)
            assert avro == type_rows.avro_of(codec_for(*type_named(sql), TypeOptions()), text), sql
            if codec.has_binary:
                assert type_rows.avro_of(codec, sent(connection, sql, literal, 1), is_binary=True) == avro, sql
            checked += 1
    assert checked > 100


def is_possible(sql: str, literal: str, version: int) -> bool:
    """Whether a server of this version can make the value."""
    if sql in ("numeric(5,-2)", "numeric(3,5)"):
        return version >= 15
    if sql == "interval" and "infinity" in literal:
        return version >= 17
    return not literal.endswith(",more)")


def sent(connection: Any, sql: str, literal: str, mode: int) -> bytes:
    """The value as the server sends it: 0, its text; 1, its binary form."""
    quoted = "'" + literal.replace("'", "''") + "'"
    result = connection.pgconn.exec_params(f"SELECT {quoted}::{sql}".encode(), [], result_format=mode)
    assert result.status == pq.ExecStatus.TUPLES_OK, f"{sql}: {result.error_message.decode()}"
    return bytes(result.get_value(0, 0))
