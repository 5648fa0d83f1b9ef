"""What happens in the recorded database: every message of the protocol, in every shape that the server's version has.

Before: PostgreSQL's own documentation of logical replication. After: `records` runs it once on each version.

Statements are run one after the other, each by the session that it names; a session is a connection of its own.
"""

from __future__ import annotations

FOLDABLE = ("t", "toast", "full_t", "parent")
"""Tables whose rows the reader can write as PostgreSQL does: their topics, folded, must equal them."""


def setup(version: int) -> list[str]:
    """The tables and the publication `golden`, before the slots are made."""
    options = ["publish_via_partition_root = true"]
    tables = ["t", "odd", "toast", "full_t", "none_t", "idx_t", "parent", "child", "blank"]
    made = [
        "CREATE TYPE mood AS ENUM ('ok', 'so so')",
        "CREATE TYPE ct AS (a int, b text, c numeric(6,2))",
        "CREATE DOMAIN price AS numeric(10,2) CHECK (value >= 0)",
        (
            "CREATE TABLE t (id int PRIMARY KEY, v text, n numeric(8,2), at timestamptz, arr int[], d date, "
            "f double precision, flag boolean, raw bytea, big bigint, u uuid, j jsonb)"
        ),
        (
            'CREATE TABLE odd (id int, "a b" ct, m mood, r int4range, mr int8multirange, iv interval, ip inet, '
            "bits varbit, p price, cs ct[], tz timetz, x xml, lsn pg_lsn, ts tsvector, PRIMARY KEY (id, p))"
        ),
        "ALTER TABLE t ALTER v SET STORAGE PLAIN",  # or repeated text is compressed, and nothing is large
        "CREATE TABLE toast (id int PRIMARY KEY, long text, n int)",
        "ALTER TABLE toast ALTER long SET STORAGE EXTERNAL",
        "CREATE TABLE full_t (a int, long text, n int)",
        "ALTER TABLE full_t ALTER long SET STORAGE EXTERNAL",
        "ALTER TABLE full_t REPLICA IDENTITY FULL",
        "CREATE TABLE none_t (v int)",
        "CREATE TABLE idx_t (a int NOT NULL, b text NOT NULL, c text)",
        "CREATE UNIQUE INDEX by_b ON idx_t (b)",
        "ALTER TABLE idx_t REPLICA IDENTITY USING INDEX by_b",
        "CREATE TABLE parent (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF parent FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE high (v text, id int NOT NULL)",  # its own order of columns
        "ALTER TABLE parent ATTACH PARTITION high FOR VALUES FROM (100) TO (200)",
        "CREATE TABLE child (id int PRIMARY KEY, t int REFERENCES t ON DELETE CASCADE)",
        "CREATE TABLE blank ()",
        "CREATE TABLE unpublished (id int)",
    ]
    if version >= 15:
        made.append("CREATE TABLE filtered (id int, n int, hidden text, PRIMARY KEY (id, n))")
        tables.append("filtered (id, n) WHERE (n > 10)")
    if version >= 18:
        made.append("CREATE TABLE generated (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)")
        tables.append("generated")
        options.append("publish_generated_columns = stored")
    made.append(f"CREATE PUBLICATION golden FOR TABLE {', '.join(tables)} WITH ({', '.join(options)})")
    return made


def steps(version: int) -> list[tuple[str, str]]:
    """The session and the statement of each step, in order."""
    made = [("a", sql) for sql in _rows()]
    made += _transactions()
    if version >= 15:
        made += [
            ("a", "INSERT INTO filtered VALUES (1, 5, 'x'), (2, 50, 'y')"),
            ("a", "UPDATE filtered SET n = n + 10"),
            ("a", "UPDATE filtered SET hidden = 'z'"),
            ("a", "UPDATE filtered SET n = 0 WHERE id = 2"),
        ]
    if version >= 18:
        made += [("a", "INSERT INTO generated VALUES (1), (2)"), ("a", "UPDATE generated SET id = 3 WHERE id = 2")]
    made += _large()
    made += _prepared()
    made += _ddl()
    return [*made, ("a", "SELECT pg_logical_emit_message(false, 'golden', 'the end')")]


def _rows() -> list[str]:
    return [
        (
            "INSERT INTO t VALUES (1, 'one', 1.5, '2026-01-02 03:04:05.678901+00', '{1,NULL,3}', '2026-01-31', 0.1, "
            "true, '\\x00ff', 9223372036854775807, '00112233-4455-6677-8899-aabbccddeeff', '{\"a\": [1, 2.50]}')"
        ),
        "INSERT INTO t (id) SELECT generate_series(2, 6)",
        (
            "INSERT INTO t (id, v, n, at, d, f) VALUES (7, '', 'NaN', 'infinity', '-infinity', 'NaN'), "
            "(8, 'é🐘', -123456.78, '0044-03-15 12:00:00+00 BC', '5874897-12-31', '-Infinity')"
        ),
        "UPDATE t SET v = 'two', arr = '{{1,2},{3,4}}' WHERE id = 2",
        "UPDATE t SET id = 30 WHERE id = 3",
        "DELETE FROM t WHERE id = 4",
        (
            "INSERT INTO odd VALUES (1, (1, 'x y', 2.5), 'so so', '[1,5)', '{[1,3),[7,)}', '1 mon -2 days 03:04:05', "
            "'10.0.0.1/8', B'10110', 12.5, '{\"(1,,)\",NULL}', '01:02:03+05:30', '<a/>', '16/B374D848', "
            "'a:1A ''b c'':2')"
        ),
        "INSERT INTO odd (id, p, r, mr) VALUES (2, 0, 'empty', '{}')",
        "UPDATE odd SET p = p + 1, \"a b\" = (NULL, '', NULL)",
        "DELETE FROM odd WHERE id = 2",
        "INSERT INTO toast VALUES (1, repeat('long ', 2000), 1), (2, 'short', 2)",
        "UPDATE toast SET n = n + 10",
        "UPDATE toast SET id = 10 WHERE id = 1",
        "INSERT INTO full_t VALUES (1, repeat('full ', 2000), 1), (1, 'x', 2), (2, NULL, NULL)",
        "UPDATE full_t SET n = 5 WHERE a = 1",
        "DELETE FROM full_t WHERE a = 2",
        "INSERT INTO none_t VALUES (1), (NULL)",
        "INSERT INTO idx_t VALUES (1, 'a', 'x'), (2, 'b', NULL)",
        "UPDATE idx_t SET c = 'y' WHERE b = 'a'",
        "UPDATE idx_t SET b = 'c' WHERE b = 'b'",
        "DELETE FROM idx_t WHERE b = 'a'",
        "INSERT INTO parent SELECT n, 'p' || n FROM generate_series(95, 105) n",
        "UPDATE parent SET id = id + 20 WHERE id = 99",
        "DELETE FROM parent WHERE id = 100",
        "INSERT INTO blank DEFAULT VALUES",
        "INSERT INTO unpublished VALUES (1)",
        "INSERT INTO child VALUES (1, 1), (2, 2)",
    ]


def _transactions() -> list[tuple[str, str]]:
    """Savepoints, messages, origins, truncates; two sessions whose transactions overlap."""
    return [
        ("a", "BEGIN"),
        ("a", "INSERT INTO t (id) VALUES (40)"),
        ("b", "BEGIN"),
        ("b", "INSERT INTO t (id) VALUES (50)"),
        ("a", "SELECT pg_logical_emit_message(true, 'in a', 'told')"),
        ("a", "SELECT pg_logical_emit_message(false, 'beside a', '\\x00'::bytea)"),
        ("a", "SAVEPOINT s"),
        ("a", "INSERT INTO t (id) VALUES (41)"),
        ("a", "ROLLBACK TO s"),
        ("a", "INSERT INTO t (id) VALUES (42)"),
        ("b", "UPDATE t SET v = 'b' WHERE id = 50"),
        ("b", "COMMIT"),
        ("a", "COMMIT"),
        ("a", "BEGIN"),
        ("a", "INSERT INTO t (id) VALUES (60)"),
        ("a", "SELECT pg_logical_emit_message(false, 'of a transaction that never was', 'kept')"),
        ("a", "ROLLBACK"),
        ("b", "SELECT pg_replication_origin_create('elsewhere')"),
        ("b", "SELECT pg_replication_origin_session_setup('elsewhere')"),
        ("b", "BEGIN"),
        ("b", "SELECT pg_replication_origin_xact_setup('0/ABCDEF', '2026-01-01 00:00:00+00')"),
        ("b", "INSERT INTO t (id, v) VALUES (51, 'from elsewhere')"),
        ("b", "COMMIT"),
        ("b", "SELECT pg_replication_origin_session_reset()"),
        ("b", "SELECT pg_replication_origin_drop('elsewhere')"),
        ("a", "BEGIN"),
        ("a", "TRUNCATE idx_t, full_t RESTART IDENTITY"),
        ("a", "INSERT INTO idx_t VALUES (9, 'nine', 'again')"),
        ("a", "COMMIT"),
    ]


def _large() -> list[tuple[str, str]]:
    """Transactions that are streamed while they are in progress, interleaved, with parts rolled back."""

    def many(first: int, table: str = "t", column: str = "v") -> str:
        rows = f"SELECT n, repeat(n::text, 500) FROM generate_series({first}, {first + 44}) n"
        return f"INSERT INTO {table} (id, {column}) {rows}"

    return [
        ("a", "BEGIN"),
        ("a", many(1000)),
        ("a", "SELECT pg_logical_emit_message(true, 'streamed', 'yes')"),
        ("b", "BEGIN"),
        ("b", many(2000)),
        ("b", "SAVEPOINT one"),
        ("b", many(2100)),
        ("b", "SAVEPOINT two"),
        ("b", many(2200)),
        ("c", "INSERT INTO t (id, v) VALUES (70, 'small, meanwhile')"),
        ("b", "ROLLBACK TO two"),
        ("b", many(2300)),
        ("b", "ROLLBACK TO one"),
        ("a", "SAVEPOINT kept"),
        ("a", many(1100)),
        ("a", "RELEASE kept"),
        ("a", "UPDATE t SET n = 1 WHERE id BETWEEN 1000 AND 1009"),
        ("a", "DELETE FROM t WHERE id BETWEEN 1010 AND 1044"),
        ("b", many(2400)),
        ("b", "DELETE FROM t WHERE id BETWEEN 2003 AND 2044"),
        ("b", "COMMIT"),
        ("a", "DELETE FROM t WHERE id BETWEEN 1103 AND 1144"),
        ("a", "COMMIT"),
        ("a", "BEGIN"),
        ("a", many(3000)),
        ("a", "ROLLBACK"),
        ("b", "DELETE FROM t WHERE id BETWEEN 2403 AND 2444"),
        ("a", "BEGIN"),
        ("a", many(4000, "toast", "long")),
        ("a", "ALTER TABLE toast ADD COLUMN later date DEFAULT '2026-02-28'"),
        ("a", many(4100, "toast", "long")),
        ("a", "DELETE FROM toast WHERE id BETWEEN 4003 AND 4142"),
        ("a", "TRUNCATE child"),
        ("a", "COMMIT"),
    ]


def _prepared() -> list[tuple[str, str]]:
    rows = "SELECT n, repeat(n::text, 500) FROM generate_series({0}, {0} + 44) n"
    return [
        ("a", "BEGIN"),
        ("a", "INSERT INTO t (id, v) VALUES (80, 'prepared')"),
        ("a", "PREPARE TRANSACTION 'small'"),
        ("b", "UPDATE t SET v = 'between' WHERE id = 70"),
        ("a", "COMMIT PREPARED 'small'"),
        ("a", "BEGIN"),
        ("a", "INSERT INTO t (id) VALUES (81)"),
        ("a", "PREPARE TRANSACTION 'in vain'"),
        ("a", "ROLLBACK PREPARED 'in vain'"),
        ("a", "BEGIN"),
        ("a", f"INSERT INTO t (id, v) {rows.format(5000)}"),
        ("a", "SAVEPOINT s"),
        ("a", f"INSERT INTO t (id, v) {rows.format(5100)}"),
        ("a", "ROLLBACK TO s"),
        ("a", "DELETE FROM t WHERE id BETWEEN 5003 AND 5044"),
        ("a", "PREPARE TRANSACTION 'large'"),
        ("b", "INSERT INTO t (id) VALUES (82)"),
        ("b", "COMMIT PREPARED 'large'"),
        ("a", "BEGIN"),
        ("a", f"INSERT INTO t (id, v) {rows.format(6000)}"),
        ("a", "PREPARE TRANSACTION 'large in vain'"),
        ("a", "ROLLBACK PREPARED 'large in vain'"),
    ]


def _ddl() -> list[tuple[str, str]]:
    return [
        ("a", "ALTER TABLE t ADD COLUMN added text DEFAULT 'x'"),
        ("a", "UPDATE t SET added = 'y' WHERE id = 1"),
        ("a", "BEGIN"),
        ("a", "INSERT INTO t (id) VALUES (90)"),
        ("a", "ALTER TABLE t DROP COLUMN arr"),
        ("a", 'ALTER TABLE t RENAME COLUMN v TO "the value"'),
        ("a", "ALTER TABLE t ALTER COLUMN id TYPE bigint"),
        ("a", "INSERT INTO t (id, \"the value\") VALUES (91, 'renamed')"),
        ("a", "COMMIT"),
        ("a", "UPDATE t SET id = id"),  # so that every event after the changes of the schema says all of its row
        ("a", "UPDATE toast SET n = n"),
        ("a", "ALTER TABLE idx_t REPLICA IDENTITY FULL"),
        ("a", "UPDATE idx_t SET c = NULL"),
    ]
