"""The workloads: tables, and the statements that make a backlog with a wanted number of changes.

After: `compare` fills the tables before each run, when every contestant has its slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

BATCH = 10_000
"""Rows of a transaction, if a workload says nothing else."""
RELATIONS = 1_000
POOL = 1_000
"""How many texts filler is taken from: enough that no compressed batch of Kafka's has a text twice."""


@dataclass(frozen=True)
class Workload:
    """Tables with their statements, and the statements of a backlog with a number of changes.

    The number of changes is --rows divided by `share`, rounded down to a multiple of `unit`.
    """

    name: str
    what: str
    tables: dict[str, str]
    backlog: Callable[[int], Iterator[str]]
    share: int = 1
    unit: int = 1
    before: tuple[str, ...] = ()
    """Statements to run before the slots are made: they make the rows that the backlog changes."""
    streaming: str = "off"
    partitions: int = 4
    record_mb: int = 1

    def changes(self, rows: int) -> int:
        """How many changes the backlog has if --rows is `rows`."""
        return max(rows // self.share // self.unit, 1) * self.unit


def batches(insert: str, batch: int = BATCH) -> Callable[[int], Iterator[str]]:
    """Transactions of `batch` rows each; the statement `insert` contains {first} and {last}."""

    def statements(rows: int) -> Iterator[str]:
        for first in range(1, rows + 1, batch):
            yield insert.format(first=first, last=min(first + batch - 1, rows))

    return statements


def committing(body: str, unit: int = 1) -> Callable[[int], Iterator[str]]:
    """A loop in the server that commits after each turn `t`; a turn makes `unit` changes."""

    def statements(rows: int) -> Iterator[str]:
        yield f"DO $$ BEGIN FOR t IN 1..{rows // unit} LOOP {body} COMMIT; END LOOP; END $$"

    return statements


ORDERS = """
CREATE TABLE orders (id bigint PRIMARY KEY, customer int, status text, city text, amount numeric(12,2), placed
timestamptz, due date, paid boolean, details jsonb, tracking uuid, weight double precision, remark text)
"""
FILL = """
INSERT INTO orders SELECT i, i % 5000, 'shipped', 'city ' || i % 300, (i % 100000) / 100.0, '2026-01-01'::timestamptz +
i * interval '1 s', '2026-01-01'::date + (i % 365)::int, i % 2 = 0, jsonb_build_object('n', i, 'tags', '["a",
"b"]'::jsonb), md5(i::text)::uuid,
    i * 0.25, 'remark number ' || i
FROM generate_series({first}::bigint, {last}::bigint) i
"""
# Turn t inserts 70 rows, then changes 25 and deletes 5 of the rows that turn t - 1 inserted.
MIXED = (
    FILL.format(first="70 * t + 1", last="70 * t + 70")
    + "; UPDATE orders SET status = 'delivered', paid = true, remark = 'delivered in turn ' || t"
    " WHERE id BETWEEN 70 * t - 69 AND 70 * t - 45;"
    " DELETE FROM orders WHERE id BETWEEN 70 * t - 4 AND 70 * t;"
)
PAYLOADS = f"""
CREATE TABLE IF NOT EXISTS pool AS
SELECT n, (SELECT string_agg(md5(random()::text || k || n), '') FROM generate_series(1, 50) k) AS body
FROM generate_series(0, {POOL - 1}) n
"""
WIDE = [f"c{n} {('int', 'bigint', 'text', 'timestamptz', 'double precision')[n % 5]}" for n in range(199)]
WIDE_VALUES = [("i", "i * 3", f"'value {n} of row ' || i", "'2026-01-01'", "i / 8.0")[n % 5] for n in range(199)]


def _sized(size: int) -> Workload:
    """Rows of about `size` bytes: a key and a text."""
    return Workload(
        f"bytes{size}",
        f"rows of {size:,} bytes",
        {"payloads": "CREATE TABLE payloads (id bigint PRIMARY KEY, body text)"},
        batches(
            f"INSERT INTO payloads SELECT i, left(body, {size - 8}) FROM generate_series({{first}}::bigint, {{last}}) i"
            f" JOIN pool ON n = i % {POOL}"
        ),
        share=max(1, size // 400),
        before=(PAYLOADS,),
    )


def _one(name: str, what: str, streaming: str) -> Workload:
    return Workload(name, what, {"orders": ORDERS}, lambda rows: batches(FILL, rows)(rows), streaming=streaming)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("orders", "12 columns", {"orders": ORDERS}, batches(FILL)),
        Workload(
            "mixed",
            "12 columns, 70 inserts, 25 updates and 5 deletes a transaction",
            {"orders": ORDERS},
            committing(MIXED, 100),
            unit=100,
            before=(FILL.format(first=1, last=70),),
        ),
        *map(_sized, (100, 200, 400, 1600)),
        Workload(
            "narrow",
            "a key and a number",
            {"narrow": "CREATE TABLE narrow (id bigint PRIMARY KEY, v int)"},
            batches("INSERT INTO narrow SELECT i, i % 1000 FROM generate_series({first}::bigint, {last}) i"),
        ),
        Workload(
            "single",
            "transactions of one row",
            {"singles": "CREATE TABLE singles (id bigint PRIMARY KEY, v int, note text)"},
            committing("INSERT INTO singles VALUES (t, t % 1000, 'note of row ' || t);"),
            share=3,
        ),
        _one("one", "one transaction, 12 columns", "off"),
        _one("one-on", "the same, received in blocks while in progress", "on"),
        _one("one-parallel", "the same, with protocol 4", "parallel"),
        Workload(
            "wide",
            "200 columns",
            {"wide": f"CREATE TABLE wide (id bigint PRIMARY KEY, {', '.join(WIDE)})"},
            batches(
                f"INSERT INTO wide SELECT i, {', '.join(WIDE_VALUES)}"
                " FROM generate_series({first}::bigint, {last}) i",
                1_000,
            ),
            share=20,
        ),
        Workload(
            "relations",
            f"{RELATIONS:,} tables, a row of each in a transaction",
            {f"r{n}": f"CREATE TABLE r{n} (id bigint PRIMARY KEY, v int, note text)" for n in range(RELATIONS)},
            committing(
                f"FOR n IN 0..{RELATIONS - 1} LOOP"
                " EXECUTE format('INSERT INTO r%s VALUES (%s, %s, ''note'')', n, t, n); END LOOP;",
                RELATIONS,
            ),
            unit=RELATIONS,
            partitions=1,
        ),
        Workload(
            "toast",
            "texts of 1 MB, TOASTed",
            {"documents": "CREATE TABLE documents (id bigint PRIMARY KEY, body text)"},
            batches(
                "INSERT INTO documents SELECT i, (SELECT string_agg(md5(i || '/' || k), '')"
                " FROM generate_series(1, 31250) k) FROM generate_series({first}::bigint, {last}) i",
                10,
            ),
            share=3_000,
            unit=10,
            # Without it, the server would spend its time on compressing each megabyte.
            before=("ALTER TABLE documents ALTER body SET STORAGE EXTERNAL",),
            record_mb=2,
        ),
    )
}
