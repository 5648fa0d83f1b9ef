"""PostgreSQL's own scenarios of logical replication (`src/test/subscription/t`, 001-012 and 014), played against cdcd.

Each scenario runs the same statements on a publisher with a PostgreSQL subscriber. The topics, folded, must hold the
rows that the subscriber's tables hold. Things that only a subscriber can do (its own trigger, a conflict) are left out.
Each docstring says what its scenario checks, and what it leaves out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import psycopg
import pytest
import servers
from support import topics
from support.nodes import Nodes, Scene

pytestmark = [pytest.mark.postgres_versions("oldest", "newest"), pytest.mark.in_turns(2)]


@pytest.fixture(scope="module")
def nodes(postgres: servers.PostgreSQL, broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Give a publisher with one publication of all tables."""
    with Nodes(postgres, broker, tmp_path_factory.mktemp("nodes"), "everything FOR ALL TABLES") as nodes:
        yield nodes


@pytest.fixture(scope="module")
def divided(postgres: servers.PostgreSQL, broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Give a publisher with two publications: one publishes all changes, the other only inserts."""
    folder = tmp_path_factory.mktemp("divided")
    with Nodes(postgres, broker, folder, "whole", "inserts WITH (publish = 'insert')") as nodes:
        yield nodes


def constraints(scene: Scene) -> None:
    """003: foreign keys, a TOASTed value, and a foreign key that the publisher has dropped.

    The subscriber's own trigger, which drops rows, is left out: it runs after the rows were sent.
    """
    scene.both("CREATE TABLE owner (id int PRIMARY KEY)")
    scene.publisher("CREATE TABLE pet (id int PRIMARY KEY, story text, owner int REFERENCES owner)")
    scene.subscriber("CREATE TABLE pet (id int PRIMARY KEY, owner int REFERENCES owner, story text)")
    scene.subscribe()
    scene.publisher(
        "INSERT INTO owner VALUES (1)",
        "INSERT INTO pet (id, owner, story) SELECT 1, 1, string_agg(md5(n::text), '') FROM generate_series(1, 9000) n",
    )
    scene.same("owner", "pet")
    scene.publisher(
        "ALTER TABLE pet DROP CONSTRAINT pet_owner_fkey",
        "INSERT INTO pet (id, owner) VALUES (2, 2), (10, 10)",  # no such owners: the apply worker does not check
        "UPDATE pet SET owner = 2 WHERE owner = 1",
        "UPDATE pet SET id = 6 WHERE id = 1",
    )
    scene.same("pet")


def synchronizing(scene: Scene) -> None:
    """004: changes that were written while no daemon streamed, and a table that is subscribed to later.

    The subscription copies the table's earlier rows. cdcd streams them: the table was published when they were written.
    """
    scene.both("CREATE TABLE early (a int PRIMARY KEY)")
    scene.subscribe()
    scene.publisher("INSERT INTO early SELECT generate_series(1, 10)")
    scene.same("early")
    assert scene.nodes.daemons["everything"].stop() == 0
    scene.subscriber(f"ALTER SUBSCRIPTION {scene.nodes.name} DISABLE")
    scene.publisher("INSERT INTO early SELECT generate_series(11, 20)", "DELETE FROM early WHERE a % 5 = 0")
    scene.subscriber(f"ALTER SUBSCRIPTION {scene.nodes.name} ENABLE")
    scene.nodes.start("everything")
    scene.same("early")
    scene.subscriber("CREATE TABLE late (a int)")
    scene.publisher("CREATE TABLE late (a) AS SELECT generate_series(1, 10)")
    scene.nodes.caught_up()
    scene.subscribe(copy=True)
    scene.nodes.synchronized()
    scene.publisher("INSERT INTO late SELECT generate_series(1, 10)")
    scene.same("late")


def rewriting(scene: Scene) -> None:
    """006: DDL that rewrites a table sends no rows, and later changes have the new columns."""
    scene.both("CREATE TABLE t (a int, b text)")
    scene.subscribe()
    scene.publisher("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    scene.same("t")
    for change in ("ADD c int NOT NULL DEFAULT 0", "ALTER c TYPE bigint USING c + 0"):
        scene.subscriber(f"ALTER TABLE t {change}")
        scene.publisher(f"ALTER TABLE t {change}", "INSERT INTO t (a, b, c) VALUES (3, 'three', 33)")
    scene.publisher("VACUUM FULL t")
    scene.nodes.caught_up()
    # Rows that are older than the column have its default in the subscriber's table, and no value in their events.
    now = scene.nodes.rows("subscriber", scene.schema, "t", ["a", "b", "c"])
    sent = Counter((row[0], row[1], None if row[1] in ("one", "two") else row[2]) for row in now.elements())
    assert topics.fold(scene.events("t")) == sent


def definitions(scene: Scene) -> None:
    """007: a daemon may stop and start around DDL of publications, and neither waits for the other.

    The subscription's warnings about missing publications are left out; `test_refusals.py` has cdcd's errors.
    """
    scene.both("CREATE TABLE t (a int PRIMARY KEY, b text)")
    scene.subscribe()
    scene.publisher(
        "INSERT INTO t VALUES (1, 'a')",
        "CREATE PUBLICATION other FOR TABLE t",
        "INSERT INTO t VALUES (2, 'b')",
        "ALTER PUBLICATION other DROP TABLE t",
        "UPDATE t SET b = 'c'",
        "DROP PUBLICATION other",
        "DELETE FROM t WHERE a = 1",
    )
    assert scene.nodes.daemons["everything"].stop() == 0
    scene.nodes.start("everything")
    scene.publisher("INSERT INTO t VALUES (3, 'd')")
    scene.same("t")


def other_schemas(scene: Scene) -> None:
    """008: the subscriber's table has more columns, another order, other types, and keeps its own values."""
    scene.publisher("CREATE TABLE t (a int PRIMARY KEY, b varchar)", "CREATE TABLE keyless (a int)")
    scene.subscriber(
        "CREATE TABLE t (c timestamptz DEFAULT now(), b text, d bigint DEFAULT 999, a int PRIMARY KEY, "
        "e int GENERATED BY DEFAULT AS IDENTITY)",
        "CREATE TABLE keyless (a int)",
    )
    scene.subscribe()
    scene.publisher("INSERT INTO t VALUES (1, 'foo'), (2, 'bar')", "UPDATE t SET b = md5(b)")
    scene.same("t")
    scene.subscriber("UPDATE t SET c = 'epoch'", "ALTER TABLE keyless ADD b serial PRIMARY KEY")
    scene.publisher(
        "UPDATE t SET b = md5(a::text)", "INSERT INTO t VALUES (3, 'baz')", "INSERT INTO keyless VALUES (1)"
    )
    scene.same("t", "keyless")


def materialized_views(scene: Scene) -> None:
    """009: materialized views are decoded but never published; the stream goes on after them."""
    scene.both("CREATE TABLE t (a int PRIMARY KEY, b text)")
    scene.subscribe()
    scene.publisher(
        "INSERT INTO t VALUES (1, 'one'), (2, 'two')",
        "CREATE MATERIALIZED VIEW seen AS SELECT * FROM t",
        "UPDATE t SET b = upper(b)",
        "REFRESH MATERIALIZED VIEW seen",
        "CREATE UNIQUE INDEX ON seen (a)",
        "INSERT INTO t VALUES (3, 'three')",
        "REFRESH MATERIALIZED VIEW CONCURRENTLY seen",
    )
    scene.same("t")
    assert scene.events("seen") == []


def generated_columns(scene: Scene) -> None:
    """011: a stored generated column is not sent; the subscriber computes its own. (See also `test_every_shape.py`.)"""
    scene.publisher("CREATE TABLE t (a int PRIMARY KEY, b int GENERATED ALWAYS AS (a * 2) STORED, c text)")
    scene.subscriber("CREATE TABLE t (a int PRIMARY KEY, b int GENERATED ALWAYS AS (a * 22) STORED, c text)")
    scene.subscribe()
    scene.publisher(
        "INSERT INTO t (a) VALUES (1), (2), (3)",
        "INSERT INTO t VALUES (4), (5)",
        "UPDATE t SET a = 6 WHERE a = 5",
        "UPDATE t SET c = 'c' WHERE a < 3",
    )
    scene.same("t")
    assert {tuple(event.value["after"] or ()) for event in scene.events("t")} == {("a", "c"), ()}


def collations(scene: Scene) -> None:
    """012: rows are found by keys that are equal by their collation, but have other bytes.

    Topics compare bytes. So if the publisher writes an equal key with other bytes, the old key is deleted and a new one
    is inserted. The subscriber updates the row in place, and has the same row in the end.
    """
    with psycopg.connect(scene.nodes.server.dsn(), autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_collation WHERE collprovider = 'i'").fetchall():
            pytest.skip("this server was built without ICU")
    scene.both(
        "CREATE COLLATION loose (provider = icu, locale = 'und', deterministic = false)",
        "CREATE TABLE keyed (a text COLLATE loose PRIMARY KEY, b text)",
        "CREATE TABLE whole (a text COLLATE loose, b text)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
    )
    scene.subscribe()
    scene.publisher(
        *(f"INSERT INTO {table} VALUES (U&'\\00E4bc', 'foo'), ('other', 'foo')" for table in ("keyed", "whole"))
    )
    scene.same("keyed", "whole")
    # As in PostgreSQL's test, the subscriber's keys get other bytes.
    scene.subscriber(*(f"UPDATE {table} SET a = U&'\\0061\\0308bc' WHERE a <> 'other'" for table in ("keyed", "whole")))
    scene.publisher(*(f"UPDATE {table} SET b = 'bar' WHERE a <> 'other'" for table in ("keyed", "whole")))
    scene.same("keyed", "whole", of="publisher")
    scene.publisher(*(f"UPDATE {table} SET a = U&'\\0061\\0308bc' WHERE b = 'bar'" for table in ("keyed", "whole")))
    scene.same("keyed", "whole")
    assert [event.value["op"] for event in scene.events("keyed") if event.key == {"a": "a\u0308bc"}] == ["c"]


SCENES: tuple[Callable[[Scene], None], ...] = (
    constraints, synchronizing, rewriting, definitions, other_schemas, materialized_views, generated_columns,
    collations,
)  # fmt: skip


@pytest.mark.parametrize("play", SCENES, ids=lambda play: play.__name__)
def test_the_topics_hold_the_subscribers_rows(nodes: Nodes, play: Callable[[Scene], None]) -> None:
    play(nodes.scene(play.__name__))


TYPES = (
    "CREATE EXTENSION IF NOT EXISTS hstore SCHEMA public",
    "CREATE TYPE rank AS ENUM ('a', 'b', 'c', 'd', 'e')",
    "CREATE TYPE plain AS (a float8, b text, c int)",
    "CREATE TYPE ranked AS (a float8, b rank, c rank[])",
    "CREATE TYPE mixed AS (a plain, b plain[], c rank, d rank[])",
    "CREATE TABLE lists (a int[] PRIMARY KEY, b text[], c float8[], d interval[])",
    "CREATE TABLE ranks (a rank PRIMARY KEY, b rank[])",
    "CREATE TABLE plains (a plain PRIMARY KEY, b plain[])",
    "CREATE TABLE rankeds (a ranked PRIMARY KEY, b ranked[])",
    "CREATE TABLE mixes (a mixed PRIMARY KEY, b mixed[])",
    "CREATE TABLE ranges (a int PRIMARY KEY, b int4range, c tstzrange, d int8range[], e nummultirange)",
    "CREATE TABLE stores (a int PRIMARY KEY, b public.hstore)",
    "SET check_function_bodies = off",
    "CREATE FUNCTION rises(int) RETURNS bool LANGUAGE sql AS 'SELECT $1 > max(a) FROM types.risings'",
    "CREATE DOMAIN rising AS int CHECK (rises(VALUE))",
    "CREATE TABLE risings (a rising)",
)


def test_types(nodes: Nodes) -> None:
    """002: arrays, enums, nested composites, ranges, hstore, and a domain whose check reads its own table."""
    scene = nodes.scene("types")
    scene.both(*TYPES)
    scene.subscribe()
    tables = ("lists", "ranks", "plains", "rankeds", "mixes", "ranges", "stores", "risings")
    scene.publisher(
        "INSERT INTO lists SELECT ARRAY[n, NULL, 3], ARRAY['x' || n, NULL, '', 'a b', 'NULL'], ARRAY[n / 4.0, 'NaN'], "
        "ARRAY[make_interval(days => n), NULL, make_interval(years => -n, secs => 1.5)] FROM generate_series(1, 5) n",
        "INSERT INTO ranks SELECT r, ARRAY[r, NULL, 'e'] FROM unnest(enum_range(NULL::rank)) r",
        "INSERT INTO plains SELECT (n, 'x ' || n, n)::plain, ARRAY[NULL, (n / 8.0, NULL, n)::plain] "
        "FROM generate_series(1, 5) n",
        "INSERT INTO rankeds SELECT (n, 'b', '{a,NULL,c}')::ranked, ARRAY[(n, NULL, '{}')::ranked, NULL] "
        "FROM generate_series(1, 5) n",
        "INSERT INTO mixes SELECT ((n, 'q\"', 1), ARRAY[(n, 'a,b', NULL)::plain, NULL], 'a', '{d,NULL}')::mixed, "
        "ARRAY[(NULL, '{}', 'b', NULL)::mixed] FROM generate_series(1, 3) n",
        "INSERT INTO ranges SELECT n, int4range(n, n * 10, '[]'), tstzrange('2014-08-04 00:00+02', "
        "CASE n WHEN 1 THEN 'infinity' ELSE '2014-08-05 00:00+02'::timestamptz END), ARRAY[int8range(n, NULL), NULL], "
        "nummultirange(numrange(n, n + 0.5), numrange(7.25, NULL)) FROM generate_series(1, 5) n",
        "INSERT INTO stores VALUES (1, 'a=>1'), (2, '\"b b\"=>moaned, zz=>NULL'), (3, '\"\"=>\"\"'), (4, NULL)",
        "INSERT INTO risings VALUES (10), (11)",
    )
    scene.same(*tables)
    scene.publisher(
        "UPDATE lists SET b = '{1a,2b}', c = c || 2.5::float8 WHERE a[1] > 3",
        "UPDATE lists SET a = a || 9 WHERE a[1] = 1",
        "UPDATE ranks SET b = '{e,d}' WHERE a > 'c'",
        "UPDATE plains SET b = ARRAY[NULL, (9, 'x', NULL)::plain] WHERE (a).a > 3.9",
        "UPDATE rankeds SET a = (7, 'd', '{a}') WHERE (a).a = 2",
        "UPDATE mixes SET b[2] = NULL WHERE ((a).a).a = 1",
        "UPDATE ranges SET b = '(1,90)', c = NULL, d = '{NULL,\"[11,9999999]\"}', e = '{}' WHERE a > 3",
        "UPDATE stores SET b = b || 'also=>updated' WHERE a < 3",
    )
    scene.same(*tables)
    scene.publisher(
        *(f"DELETE FROM {table} WHERE a = (SELECT min(a) FROM {table})" for table in ("lists", "ranks", "stores")),
        "DELETE FROM plains WHERE (a).b = 'x 1'",
        "DELETE FROM rankeds WHERE 'b' = (a).b",
        "DELETE FROM mixes WHERE b[2] IS NULL",
        "DELETE FROM ranges WHERE 15 <@ b",
    )
    scene.same(*tables)


def test_changes_of_each_kind_are_published_as_the_publications_say(divided: Nodes) -> None:
    """001: inserts, updates, deletes; keys, REPLICA IDENTITY FULL with equal rows, no identity; altered publications.

    Changes of the subscription itself (renaming it, its connection, dropping it) are left out.
    """
    scene = divided.scene("kinds")
    tables = (
        "rep (a int PRIMARY KEY)", "full_a (a int)", "full_x (x text)", "included (a int, b text)", "nothing (a text)",
        "no_index (a int)",
    )  # fmt: skip
    scene.both(*(f"CREATE TABLE {table}" for table in (*tables, "unpublished (a int)", "ins (a int, b int)")))
    scene.both(
        "ALTER TABLE included ALTER a SET NOT NULL",
        "CREATE UNIQUE INDEX included_a ON included (a) INCLUDE (b)",
        "ALTER TABLE included REPLICA IDENTITY USING INDEX included_a",
        "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
    )
    scene.publisher("CREATE TABLE mixed (a int PRIMARY KEY, b text)")
    scene.subscriber("CREATE TABLE mixed (d text DEFAULT 'local', c text, b text, a int PRIMARY KEY)")
    scene.publisher(
        "ALTER PUBLICATION whole ADD TABLE rep, full_a, full_x, included, nothing, no_index, mixed",
        "ALTER PUBLICATION inserts ADD TABLE ins",
    )
    scene.subscribe()
    scene.publisher(
        "INSERT INTO unpublished SELECT generate_series(1, 10)",
        "INSERT INTO ins SELECT n, n + 1 FROM generate_series(1, 52) n",
        "DELETE FROM ins WHERE a > 20",
        "UPDATE ins SET a = -a",
        "INSERT INTO rep SELECT generate_series(1, 50)",
        "DELETE FROM rep WHERE a > 20",
        "UPDATE rep SET a = -a",
        "INSERT INTO mixed VALUES (1, 'foo'), (2, 'bar')",
        "INSERT INTO included SELECT n, 'i' || n FROM generate_series(1, 50) n",
        "DELETE FROM included WHERE a > 20",
        "UPDATE included SET a = -a",
        "INSERT INTO nothing VALUES ('a'), (NULL)",
        "INSERT INTO no_index VALUES (1)",
        "INSERT INTO full_a SELECT generate_series(1, 10)",
        "INSERT INTO full_a SELECT generate_series(1, 10)",
        "INSERT INTO full_x VALUES ('a'), ('b'), ('b'), (NULL)",
    )
    scene.same("rep", "mixed", "included", "nothing", "no_index", "full_a", "full_x", "ins")
    scene.both(*(f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in ("full_a", "full_x", "ins")))
    scene.publisher(
        "UPDATE full_a SET a = a * a",
        "UPDATE full_x SET x = 'bb' WHERE x = 'b'",
        "DELETE FROM full_a WHERE a = 1",
        "DELETE FROM full_x WHERE x IS NULL",
        "UPDATE ins SET b = 0",
        "INSERT INTO ins SELECT n, n FROM generate_series(1001, 1100) n",
    )
    scene.same("full_a", "full_x", "ins")
    assert {event.value["op"] for event in scene.events("ins")} == {"c"}
    scene.publisher(
        "ALTER PUBLICATION inserts SET (publish = 'insert, delete')",
        "ALTER PUBLICATION inserts ADD TABLE unpublished",
        "DELETE FROM ins WHERE a > 0",
        "INSERT INTO unpublished VALUES (0)",
        "ALTER PUBLICATION whole DROP TABLE rep",
        "DELETE FROM rep",
    )
    scene.subscribe()
    scene.publisher("INSERT INTO unpublished VALUES (11)", "ALTER PUBLICATION inserts SET (publish = 'insert')")
    scene.same("ins", "rep")
    # cdcd streams every row that is published when it is written; the subscription includes the table only later.
    assert [event.value["after"]["a"] for event in scene.events("unpublished")] == [0, 11]


def test_truncates(divided: Nodes, postgres: servers.PostgreSQL) -> None:
    """010: TRUNCATE of one table, of several, with RESTART IDENTITY, not published, and with synchronous commits.

    The test that two subscriptions to one table do not block each other is left out: a topic has one writer.
    """
    scene = divided.scene("truncating")
    scene.both(*(f"CREATE TABLE {name} (a int PRIMARY KEY)" for name in ("one", "ins_only", "parent")))
    scene.both("CREATE TABLE child (a int PRIMARY KEY, b int REFERENCES parent)")
    scene.publisher(
        "ALTER PUBLICATION whole ADD TABLE one, parent, child", "ALTER PUBLICATION inserts ADD TABLE ins_only"
    )
    scene.subscriber("CREATE SEQUENCE numbers OWNED BY one.a START 101", "ALTER SEQUENCE numbers RESTART 7")
    scene.subscribe()
    scene.publisher(
        *(f"INSERT INTO {name} VALUES (1), (2), (3)" for name in ("one", "ins_only", "parent")),
        "INSERT INTO child VALUES (11, 1), (22, 2)",
        "TRUNCATE one",
        "INSERT INTO one VALUES (4)",
        "TRUNCATE ins_only",
    )
    scene.same("one", "ins_only", "parent", "child")
    assert scene.nodes.rows("subscriber", scene.schema, "numbers", ["last_value"]) == {("7",): 1}
    scene.publisher(
        "TRUNCATE one RESTART IDENTITY",
        "INSERT INTO one VALUES (5)",
        "ALTER PUBLICATION inserts SET (publish = 'insert, truncate')",
        "TRUNCATE ins_only",
        "INSERT INTO ins_only VALUES (6)",
        "ALTER PUBLICATION inserts SET (publish = 'insert')",
        "TRUNCATE parent, child",
        "INSERT INTO parent VALUES (7)",
        "INSERT INTO child VALUES (8, 7)",
    )
    scene.same("one", "ins_only", "parent", "child")
    assert scene.nodes.rows("subscriber", scene.schema, "numbers", ["last_value"]) == {("101",): 1}
    said = [event.value["truncate"]["restart_identity"] for event in scene.events("one") if event.value["op"] == "t"]
    assert said == [False, True] * 4, "each partition must have both statements"
    scene.publisher("TRUNCATE one, ins_only", "TRUNCATE parent CASCADE")  # some published, some not
    scene.same("one", "ins_only", "parent", "child")
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        try:
            names = f"{divided.name}, {divided.name}_whole"
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = 'FIRST 2 ({names})'".encode())
            connection.execute("SELECT pg_reload_conf()")
            scene.publisher("SELECT pg_sleep(0.2)", "INSERT INTO one VALUES (1), (2)", "TRUNCATE one")
            assert topics.fold(scene.events("one")) == Counter(), "COMMIT returned before Kafka had the transaction"
            last = max(scene.events("one"), key=lambda event: event.position)
            assert (last.value["op"], sum(e.value["op"] == "t" for e in scene.events("one"))) == ("t", 16)
        finally:
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")
    scene.same("one")


def test_encodings(postgres: servers.PostgreSQL, broker: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """005: databases with different encodings. Here the publisher is not UTF8, because cdcd reads the publisher."""
    folder = tmp_path_factory.mktemp("encodings")
    with Nodes(postgres, broker, folder, "everything FOR ALL TABLES", encoding="LATIN1") as nodes:
        scene = nodes.scene("encodings")
        scene.both('CREATE TABLE "größe" (a int PRIMARY KEY, "bände" text)')
        scene.subscribe()
        scene.publisher(
            "INSERT INTO größe VALUES (1, 'Motörhead'), (2, 'ÿ')", "UPDATE größe SET bände = 'ß' WHERE a = 2"
        )
        scene.same("größe")


def test_binary(postgres: servers.PostgreSQL, broker: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """014: binary and text mode in turn, a type that gets a binary form later, other column types at the subscriber."""
    made = (
        "CREATE TABLE numbers (a int PRIMARY KEY, b numeric, c float8, d bigint)",
        "CREATE TABLE lists (a int[] PRIMARY KEY, b numeric[], c text[])",
    )
    folder = tmp_path_factory.mktemp("binary")
    with Nodes(postgres, broker, folder, "everything FOR ALL TABLES", subscription="binary = true") as nodes:
        scene = nodes.scene("binaries")
        scene.both(*made)
        scene.subscribe()

        def write(first: int) -> None:
            scene.publisher(
                f"INSERT INTO numbers SELECT n, n + 0.2, n + 0.3, n * 10 FROM generate_series({first}, {first + 3}) n",
                f"INSERT INTO lists SELECT ARRAY[a, 2], ARRAY[1.1, a], '{{one,NULL}}' FROM numbers WHERE a >= {first}",
                f"UPDATE lists SET b[1] = 42, c = NULL WHERE a[1] > {first}",
                f"UPDATE numbers SET b = 'NaN', c = NULL WHERE a = {first}",
            )
            scene.same("numbers", "lists")

        write(1)
        for binary, first in (("false", 10), ("true", 20)):
            scene.subscriber(f"ALTER SUBSCRIPTION {nodes.name} SET (binary = {binary})")
            assert nodes.daemons["everything"].stop() == 0
            nodes.start("everything", binary=False if binary == "false" else "auto")
            write(first)
        daemon = nodes.daemons["everything"]
        assert "binary=True" in daemon.log.read_text()
        scene.both(*MYVARCHAR, "CREATE TABLE custom (a int PRIMARY KEY, b myvarchar)")
        scene.publisher("CREATE TABLE narrow (a bigint PRIMARY KEY)")
        scene.subscriber("CREATE TABLE narrow (a int PRIMARY KEY)")
        scene.subscriber(f"ALTER SUBSCRIPTION {nodes.name} SET (binary = false)")
        scene.subscribe()
        scene.publisher("INSERT INTO custom VALUES (1, 'a')", "INSERT INTO narrow VALUES (1), (2)")
        scene.same("custom", "narrow")
        assert "text mode" not in daemon.log.read_text(), "a type without a binary form is sent as text anyway"
        scene.both(*MYVARCHAR_SEND)
        scene.publisher("INSERT INTO custom VALUES (2, 'b')", "UPDATE custom SET b = 'c' WHERE a = 1")
        scene.same("custom", "narrow", "numbers", "lists")
        assert "goes on in text mode" in daemon.log.read_text(), "cdcd does not know this one's binary form"


_INTERNAL = "LANGUAGE internal PARALLEL SAFE STRICT"
MYVARCHAR = (
    "CREATE TYPE myvarchar",
    f"CREATE FUNCTION myvarcharin(cstring, oid, integer) RETURNS myvarchar {_INTERNAL} IMMUTABLE AS 'varcharin'",
    f"CREATE FUNCTION myvarcharout(myvarchar) RETURNS cstring {_INTERNAL} IMMUTABLE AS 'varcharout'",
    "CREATE TYPE myvarchar (input = myvarcharin, output = myvarcharout)",
)
MYVARCHAR_SEND = (
    f"CREATE FUNCTION myvarcharsend(myvarchar) RETURNS bytea {_INTERNAL} STABLE AS 'varcharsend'",
    f"CREATE FUNCTION myvarcharrecv(internal, oid, integer) RETURNS myvarchar {_INTERNAL} STABLE AS 'varcharrecv'",
    "ALTER TYPE myvarchar SET (send = myvarcharsend, receive = myvarcharrecv)",
)
