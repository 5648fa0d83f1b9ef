"""Odd names of databases, roles, publications and applications: every command works with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
import servers
from psycopg import sql
from psycopg.conninfo import make_conninfo
from support import topics
from support.daemon import cdcd
from support.fix_postgres import Database
from support.stream import StreamFixture

ODD = (
    'It\'s "quoted" \\ and %s {x} $1',
    "größe 漢字 🐘",
    " a=b host=nowhere ",
    "-- ; /* x",
    "p%20:@/?#[1],2",
)


@pytest.fixture(params=ODD)
def odd(
    request: pytest.FixtureRequest, postgres: servers.PostgreSQL, broker: str, prefix: str, tmp_path: Path
) -> Iterator[tuple[str, StreamFixture]]:
    """Give an odd name, and a stream of a database of this name, as a role of this name that owns a table."""
    name = str(request.param)
    quoted = sql.Identifier(name)
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(quoted))
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN REPLICATION PASSWORD {}").format(quoted, sql.Literal(name)))
        admin.execute(sql.SQL("GRANT CREATE ON DATABASE {0} TO {0}").format(quoted))
    dsn = make_conninfo(postgres.dsn(), dbname=name, user=name)
    try:
        with StreamFixture(dsn, broker, prefix, tmp_path) as stream:
            with psycopg.connect(make_conninfo(dsn, user="postgres"), autocommit=True) as admin:
                admin.execute(sql.SQL("GRANT ALL ON SCHEMA public TO {}").format(quoted))
            stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
            yield name, stream
    finally:
        Database(name, postgres).drop()
        with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
            admin.execute(sql.SQL("DROP ROLE {}").format(quoted))


@pytest.mark.in_turns(3)
def test_an_odd_name_of_database_role_and_publication_does(
    odd: tuple[str, StreamFixture], postgres: servers.PostgreSQL
) -> None:
    name, stream = odd
    dsn = stream.dsn
    if ODD.index(name) % 2 == 0:
        word = quote(name, safe="")
        dsn = f"postgresql://{word}:{word}@127.0.0.1:{postgres.port}/{word}?application_name={word}"
    source = {"dsn": dsn, "publication": name, "tables": ["public.*"]}
    daemon = stream.daemon(source=source, snapshot={"mode": "initial"})
    cdcd(daemon, "check")
    daemon.start()
    daemon.wait_for_log("the snapshot is complete")
    stream.sql("INSERT INTO t VALUES (2, 'b')", "UPDATE t SET v = 'c' WHERE id = 1")
    daemon.wait_until_confirmed()
    assert "done public.t (2 rows)" in cdcd(daemon, "snapshot", "public.t")
    assert "2 rows, equal" in cdcd(daemon, "verify")
    assert stream.slot in cdcd(daemon, "slot", "status")
    assert daemon.stop() == 0
    stream.sql("INSERT INTO t VALUES (3, 'd')")
    assert "id=3 v=d" in cdcd(daemon, "peek")
    assert topics.fold(stream.events()) == Counter({("1", "c"): 1, ("2", "b"): 1})


def test_a_hint_quotes_an_odd_name(odd: tuple[str, StreamFixture]) -> None:
    name, stream = odd
    with psycopg.connect(make_conninfo(stream.dsn, user="postgres"), autocommit=True) as admin:
        admin.execute("CREATE TABLE public.hidden (id int PRIMARY KEY)")
        admin.execute(sql.SQL("CREATE PUBLICATION {} FOR TABLE public.hidden").format(sql.Identifier(name)))
        checked = cdcd(stream.daemon(source={"publication": name}, snapshot={"mode": "initial"}), "check", code=1)
        [line] = [line for line in checked.splitlines() if "may not read" in line]
        admin.execute(line[line.index("GRANT") : line.index(". Or set")].encode())
    assert "may not read" not in cdcd(
        stream.daemon(source={"publication": name}, snapshot={"mode": "initial"}), "check", code=0
    )
