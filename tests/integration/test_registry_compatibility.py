"""The table in the manual of what a registry takes: a real one is asked for each change, under each level."""

from __future__ import annotations

import itertools
import json
import re
import urllib.error
import urllib.request
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from servers.registry import SchemaRegistry
from support.fix_postgres import Database

from cdcd import manual
from cdcd.reading.table_schemas import SchemaTexts, published_texts

LEVELS = ("BACKWARD", "FORWARD", "FULL")

TABLE = "CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL, v text, d numeric(6,2), at timestamp, c pair, a int[])"


class Change(NamedTuple):
    """A row of the table."""

    name: str
    ways: tuple[tuple[str, ...], ...]
    """Each does it in SQL, by statements with a version of the schema after each. All ways have the same result."""
    before: str = TABLE


CHANGES = (
    Change(
        "a column is added: nullable, with a default, or NOT NULL",
        (
            ("ALTER TABLE t ADD x int",),
            ("ALTER TABLE t ADD x int DEFAULT 1",),
            ("ALTER TABLE t ADD x int NOT NULL DEFAULT 1",),
            ("ALTER TABLE t ADD x int GENERATED ALWAYS AS IDENTITY",),
        ),
    ),
    Change("a column is dropped", (("ALTER TABLE t DROP v",), ("ALTER TABLE t DROP n",))),
    Change("a column is renamed", (("ALTER TABLE t RENAME v TO x",), ("ALTER TABLE t RENAME n TO x",))),
    Change(
        "NOT NULL or a default is set or dropped; REPLICA IDENTITY FULL",
        (
            ("ALTER TABLE t ALTER n DROP NOT NULL",),
            ("ALTER TABLE t ALTER v SET NOT NULL",),
            ("ALTER TABLE t ALTER n SET DEFAULT 1",),
            ("ALTER TABLE t REPLICA IDENTITY FULL",),
        ),
    ),
    Change(
        "a type gets wider: `integer` to `bigint` or `double precision`",
        (
            ("ALTER TABLE t ALTER n TYPE bigint",),
            ("ALTER TABLE t ALTER n TYPE real",),
            ("ALTER TABLE t ALTER n TYPE double precision",),
            ("ALTER TABLE t ALTER a TYPE bigint[]",),
        ),
    ),
    Change(
        "a type gets narrower: `bigint` to `integer`",
        (("ALTER TABLE t ALTER n TYPE int",), ("ALTER TABLE t ALTER a TYPE int[]",)),
        TABLE.replace("n int", "n bigint").replace("int[]", "bigint[]"),
    ),
    Change(
        "another length, precision or scale: `varchar(10)` to `text`, `numeric(6,2)` to `numeric(8,4)`",
        (
            ("ALTER TABLE t ALTER v TYPE varchar(10)", "ALTER TABLE t ALTER v TYPE varchar(20)"),
            ("ALTER TABLE t ALTER v TYPE varchar(10)",),
            ("ALTER TABLE t ALTER d TYPE numeric(8,2)",),
            ("ALTER TABLE t ALTER d TYPE numeric(8,4)",),
            ("ALTER TABLE t ALTER d TYPE numeric",),
            ("ALTER TABLE t ALTER at TYPE timestamptz",),
            ("ALTER TABLE t ALTER n TYPE smallint",),
        ),
    ),
    Change(
        "a type of another kind: `integer` to `text`",
        (
            ("ALTER TABLE t ALTER n TYPE text",),
            ("ALTER TABLE t ALTER d TYPE int",),
            ("ALTER TABLE t ALTER v TYPE text[] USING NULL",),
        ),
    ),
    Change(
        "a column is dropped, and later added with a type of another kind",
        (("ALTER TABLE t DROP n", "ALTER TABLE t ADD n text"),),
    ),
    Change(
        "an attribute of a composite type is added or dropped",
        (("ALTER TYPE pair ADD ATTRIBUTE z int",), ("ALTER TYPE pair DROP ATTRIBUTE y",)),
    ),
    Change(
        "a value of an enum is added",
        (("ALTER TYPE mood ADD VALUE 'fine'",),),
        "CREATE TABLE t (id int PRIMARY KEY, m mood)",
    ),
    Change("a column joins the key", (("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, n)",),)),
    Change(
        "a column leaves the key",
        (("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id)",),),
        TABLE.replace("id int PRIMARY KEY", "id int").replace("[])", "[], PRIMARY KEY (id, n))"),
    ),
    Change("a column of the key is renamed", (("ALTER TABLE t RENAME id TO x",),)),
    Change("the key becomes another column", (("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (n)",),)),
    Change("the type of a key column gets wider", (("ALTER TABLE t ALTER id TYPE bigint",),)),
    Change(
        "the type of a key column gets narrower",
        (("ALTER TABLE t ALTER id TYPE int",),),
        TABLE.replace("id int", "id bigint"),
    ),
    Change("the table loses its key", (("ALTER TABLE t DROP CONSTRAINT t_pkey",),)),
    Change(
        "the table gets its first key", (("ALTER TABLE t ADD PRIMARY KEY (id)",),), TABLE.replace(" PRIMARY KEY", "")
    ),
    Change("the first TRUNCATE", (("TRUNCATE t",), ("TRUNCATE t", "ALTER TABLE t ADD x int"))),
    Change(
        "the table is renamed, or moves to another schema",
        (("ALTER TABLE t RENAME TO t2",), ("ALTER TABLE t SET SCHEMA other",)),
    ),
)

_numbers = itertools.count(1)


def send(registry: SchemaRegistry, verb: str, path: str, document: dict[str, Any]) -> int:
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(f"{registry.url}{path}", json.dumps(document).encode(), headers, method=verb)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def takes(registry: SchemaRegistry, level: str, versions: list[str]) -> bool:
    """Whether a subject that has all versions but the last takes the last under `level`."""
    subject = f"s{next(_numbers)}"
    *earlier, last = versions
    for text in earlier:
        assert send(registry, "POST", f"/subjects/{subject}/versions", {"schema": text}) == 200
    if earlier:
        assert send(registry, "PUT", f"/config/{subject}", {"compatibility": level}) == 200
    status = send(registry, "POST", f"/subjects/{subject}/versions", {"schema": last})
    assert status in (200, 409), status
    return status == 200


def now(database: Database) -> SchemaTexts:
    [texts] = published_texts(database.dsn, "test", "p", "decimal")
    return texts


def versions_of(database: Database, before: str, way: tuple[str, ...]) -> list[SchemaTexts]:
    database.execute(
        "DROP PUBLICATION IF EXISTS p",
        "DROP SCHEMA public CASCADE",
        "DROP SCHEMA IF EXISTS other CASCADE",
        "CREATE SCHEMA public",
        "CREATE SCHEMA other",
        "CREATE TYPE pair AS (x int, y text)",
        "CREATE TYPE mood AS ENUM ('good')",
        before,
        "CREATE PUBLICATION p FOR ALL TABLES",
    )
    found = [now(database)]
    for statement in way:
        database.execute(statement)
        texts = now(database)
        found.append(replace(texts, value=texts.truncate) if statement.startswith("TRUNCATE") else texts)
    return found


def answer(registry: SchemaRegistry, level: str, found: list[SchemaTexts]) -> bool:
    """Whether the registry takes the last version of key and value, each in the subject of its topic."""
    last = found[-1]
    subjects = [
        [each.value for each in found if (each.schema, each.name) == (last.schema, last.name)],
        [each.key for each in found if each.key and (each.schema, each.name) == (last.schema, last.name)],
    ]
    if not last.key:
        subjects.pop()
    return all(takes(registry, level, list(dict.fromkeys(versions))) for versions in subjects)


def cell(registry: SchemaRegistry, level: str, found: list[SchemaTexts]) -> str:
    taken, transitive = answer(registry, level, found), answer(registry, f"{level}_TRANSITIVE", found)
    assert taken or not transitive
    return "yes" if transitive else "not transitive" if taken else "no"


def row(registry: SchemaRegistry, database: Database, change: Change) -> str:
    """The line of the table. Every way to make the change gets the same answers, and NONE takes all."""
    answers = set()
    for way in change.ways:
        found = versions_of(database, change.before, way)
        assert answer(registry, "NONE", found)
        answers.add(tuple(cell(registry, level, found) for level in LEVELS))
    assert len(answers) == 1, f"{change.name}: {answers}"
    return f"| {change.name} | {' | '.join(answers.pop())} |"


@pytest.mark.whole
def test_the_manual_says_what_a_registry_takes_for_every_change_of_a_table(
    database: Database, schema_registry: SchemaRegistry
) -> None:
    rows = [row(schema_registry, database, change) for change in CHANGES]
    head = f"| change | {' | '.join(LEVELS)} |"
    [told] = re.findall(rf"^{re.escape(head)}\n\|[-|]+\|\n((?:\|.*\n)+)", manual.page("registry"), re.MULTILINE)
    assert told.splitlines() == rows, "write into cdcd/manual/registry.md:\n" + "\n".join(rows)
