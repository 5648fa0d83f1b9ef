"""How fast `cdcd.spark` is; each figure is printed next to its yardstick from the same run.

    python tests/bench/spark.py read             decode 1 million events of 4 schemas; yardstick: the raw Kafka read
    python tests/bench/spark.py mirror delta     750,000 inserts, then 750,000 changes a run, into 1 million rows;
                                                 yardstick: decoding the events, writing the rows from memory
    python tests/bench/spark.py changelog delta  the same with kind = "changelog": each event is a row
    python tests/bench/spark.py small iceberg    a change in each of 20 small tables; then runs with nothing new; also
                                                 prints the Spark jobs, which other work on the machine does not change
    python tests/bench/spark.py snapshot         read 2 million rows; yardstick: a JDBC read in one partition
    python tests/bench/spark.py verify           compare 1 million rows, three of which differ

A run of the mirror takes 750,000 changes: 30 s, its default interval, at 25,000 changes a second. Spark has 6 GB and
its parallel collector. The JVM is warm only in the last turns; the figures of the first turns are lower. So the median
of the last three is printed, and compared with the yardstick. Each first load is of a new mirror.
--rows N: the table's rows; the default is 1,000,000. A run has three quarters as many changes, or of --run N: with
--rows 10000000 --run 1000000 the table is larger than what is done to it.
--cold N: the first runs of each kind, which do not count. Ten; runs of millions of events need fewer.
--cores N: Spark tasks at the same time. `taskset -c 0` before the command leaves one core to all processes.
--daemon-python PATH: an interpreter with a compiled cdcd for the daemon (default: this one).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

import psycopg  # noqa: E402
import servers  # noqa: E402
from bench.measuring import refuse_uncompiled  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from support import daemon, fix_spark  # noqa: E402
from support import stream as streams  # noqa: E402

from cdcd.source.session import connect, parameters  # noqa: E402
from cdcd.spark import Cdc  # noqa: E402
from cdcd.spark.exported_snapshot import login  # noqa: E402
from cdcd.spark.load import jdbc  # noqa: E402
from cdcd.spark.mirror.per_table import Layout  # noqa: E402

TABLE = """CREATE TABLE t (id bigint PRIMARY KEY, n int, a text, b text, amount numeric(10,2), at timestamptz, due date,
    paid boolean, doc jsonb, ref uuid, w double precision, note text)"""
ROWS = """INSERT INTO t (id, n, a, b, amount, at, due, paid, doc, ref, w, note)
    SELECT g, g % 1000, 'name ' || g, md5(g::text), g % 9999 / 100.0, now(), current_date, g % 2 = 0,
    '{{"k": 1}}', gen_random_uuid(), g * 0.5, 'note of ' || g FROM generate_series({first}::bigint, {last}) g"""

COLD_RUNS = 10
"""The first runs of each kind, in which Java compiles, unless --cold says another number."""
WARM_RUNS = 3
"""The runs after them, of which the median counts."""
SMALL_COLD_RUNS = 40
"""As COLD_RUNS, of few events: Java compiles what has run often."""


def main() -> None:
    """Start the servers and Spark, and run one benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what", choices=["read", "mirror", "changelog", "small", "snapshot", "verify"], help="the benchmark to run"
    )
    parser.add_argument("format", nargs="?", default="delta", help="the mirror's table format: delta or iceberg")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table of `mirror`")
    parser.add_argument("--run", type=int, default=None, help="a run has three quarters as many changes")
    parser.add_argument("--cold", type=int, default=COLD_RUNS, help="first runs of each kind that do not count")
    parser.add_argument("--cores", type=int, default=2, help="Spark tasks at the same time")
    parser.add_argument("--daemon-python", default=sys.executable, help="Python that runs the daemon")
    parser.add_argument("--uncompiled", action="store_true", help="measure cdcd even if it is not compiled")
    given = parser.parse_args()
    refuse_uncompiled(f"{given.daemon_python} -P -m cdcd", allowed=given.uncompiled)
    daemon.command = lambda: [given.daemon_python, "-P", "-m", "cdcd"]
    with tempfile.TemporaryDirectory() as folder, servers.PostgreSQL(fsync=False) as postgres, servers.Kafka() as kafka:
        builder = SparkSession.builder.master(f"local[{given.cores}]").appName("bench")
        settings = fix_spark.settings(Path(folder) / "lake") | {"spark.driver.memory": "6g"}
        del settings["spark.databricks.delta.snapshotPartitions"]  # as a user's session, where cdcd chooses
        java = "spark.driver.extraJavaOptions"
        settings[java] = settings[java].replace("-XX:+UseSerialGC", "-XX:+UseParallelGC")
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        try:
            with streams.StreamFixture(postgres.dsn(), kafka.bootstrap, "bench", Path(folder)) as stream:
                cdc = Cdc(spark, stream.broker, stream.prefix)
                if given.what in ("mirror", "changelog"):
                    runs = given.cold + WARM_RUNS
                    mirror(stream, cdc, given.format, given.rows, given.run or given.rows, given.what, runs)
                else:
                    {"read": read, "small": small, "snapshot": snapshot, "verify": verify}[given.what](
                        stream, cdc, given.format
                    )
        finally:
            spark.stop()


def fill(stream: streams.StreamFixture, first: int, last: int) -> None:
    """Insert rows, in transactions of 50,000."""
    with psycopg.connect(stream.dsn, autocommit=True) as connection:
        for start in range(first, last + 1, 50_000):
            connection.execute(ROWS.format(first=start, last=min(last, start + 49_999)).encode())


def started(stream: streams.StreamFixture) -> daemon.Daemon:
    """Start a daemon, and wait until it streams."""
    made = stream.daemon().start()
    made.wait_for_log("going on", 60)
    return made


def seconds(does: Callable[[], Any]) -> tuple[float, Any]:
    """How many seconds a call takes, and its result."""
    began = time.monotonic()
    result = does()
    return time.monotonic() - began, result


def shown(cdc: Cdc, does: Callable[[], Any]) -> str:
    """The seconds and the Spark jobs of a call."""
    before = fix_spark.jobs(cdc.spark)
    took, _ = seconds(does)
    return f"{took:.2f} s and {fix_spark.jobs(cdc.spark) - before} jobs"


def drained(frame: DataFrame) -> float:
    """How many seconds it takes to compute every row of a frame."""
    return seconds(lambda: frame.write.format("noop").mode("overwrite").save())[0]


def read(stream: streams.StreamFixture, cdc: Cdc, _: str) -> None:
    """Measure in turn raw reads by Spark's default Kafka source, raw reads by cdcd's source, and decoding."""
    stream.sql(TABLE)
    running = started(stream)
    for part, change in enumerate(["ADD extra int", "ALTER n TYPE bigint", "ALTER amount TYPE numeric(12,4)", ""]):
        fill(stream, 1 + part * 250_000, (part + 1) * 250_000)
        if change:
            stream.sql(f"ALTER TABLE t {change}")
    running.wait_until_confirmed(timeout_s=120)
    cut = cdc.cut()
    record = cut.tables[cut.topic("public.t")]
    by_cdcd = cdc.topics.kafka.ranges({record.topic: ([0] * len(record.offsets), record.offsets)}).select(
        "key", "value"
    )
    options = {"kafka.bootstrap.servers": stream.broker, "kafka.isolation.level": "read_committed"}
    by_default = cdc.spark.read.format("kafka").options(**options, subscribe=record.topic).load().select("key", "value")
    events = cdc.changes("public.t")
    for turn in range(7):
        raw, newer, decoded = drained(by_default), drained(by_cdcd), drained(events)
        print(
            f"turn {turn}: raw {1e6 / raw:,.0f}/s, by cdcd's source {1e6 / newer:,.0f}/s, "
            f"decoded {1e6 / decoded:,.0f}/s = {raw / decoded:.0%} and {newer / decoded:.0%}",
            flush=True,
        )
    wanted = stream.sql("SELECT count(*), sum(id)::bigint, sum(n)::bigint, sum(amount), sum(length(note)) FROM t")[0]
    found = events.selectExpr(
        "count(*)", "sum(after.id)", "sum(after.n)", "sum(after.amount)", "sum(length(after.note))"
    ).first()
    print("equal to PostgreSQL" if tuple(found) == tuple(wanted) else f"DIFFERENT: {found} {wanted}")


def mirror(
    stream: streams.StreamFixture,
    cdc: Cdc,
    form: Literal["delta", "iceberg"],
    rows: int,
    size: int,
    kind: str,
    runs: int,
) -> None:
    """Load the rows from events, then inserts alone, then runs of 2/3 updates, 2/15 deletes and 1/5 inserts."""
    stream.sql(TABLE, "ALTER TABLE t SET (autovacuum_enabled = off)")  # it would take a core from a run
    running = started(stream)
    fill(stream, 1, rows)
    running.wait_until_confirmed(timeout_s=600)

    def first_load(turn: int) -> tuple[Any, float]:
        schema = f"{'spark_catalog' if form == 'delta' else 'ice'}.bench{turn}"
        made = cdc.mirror(["*"], schema, form, per_table=[{"match": "*", "kind": kind}])
        took, done = seconds(made.catch_up)
        print(
            f"{form}: first load, {rows:,} events in {len(done)} runs {took:.1f} s = {rows / took:,.0f}/s", flush=True
        )
        return made, took

    loads = [first_load(turn) for turn in range(runs if size == rows else 1)]
    made, _ = loads[-1]
    if size == rows:
        floor(cdc, made, {}, warm(form, "first load", rows, [took for _, took in loads]), "true", "false", "false")
    last = events = rows

    def run(what: str, inserts: int, low: int, updates: int, deletes: int, earlier: list[float]) -> list[float]:
        """One run more, after those that took `earlier` seconds; the last one is followed by its floor."""
        nonlocal last, events
        before, since = made.published().by_id(), made.published_lsn()
        if updates:
            stream.sql(
                f"UPDATE t SET n = n + 1, note = note || '!' WHERE id BETWEEN {low + 1} AND {low + updates}",
                f"DELETE FROM t WHERE id BETWEEN {low + 1} AND {low + deletes}",
            )
        fill(stream, last + 1, last + inserts)
        running.wait_until_confirmed(timeout_s=600)
        took, done = seconds(made.run_once)
        print(f"{form}: {what}, {done.events:,} events {took:.1f} s = {done.events / took:,.0f}/s", flush=True)
        if len(earlier) == runs - 1:
            changed = f"id > {low + deletes} AND id <= {low + updates}"
            removed = f"id > {low} AND id <= {low + deletes}"
            if kind == "changelog":
                inserted, changed, removed = f"_commit_lsn >= {since}", "false", "false"
            else:
                inserted = f"id > {last}"
            median = warm(form, what, done.events, [*earlier, took])
            floor(cdc, made, before, median, inserted, changed, removed)
        last += inserts
        events += done.events
        return [*earlier, took]

    times: list[float] = []
    for _ in range(runs):
        times = run("inserts", size * 3 // 4, 0, 0, 0, times)
    times = []
    for turn in range(runs):
        times = run("changes", size * 3 // 20, turn * size // 10, size // 2, size // 10, times)
    table = made.as_of()["public.t"]
    if kind == "changelog":
        print("complete" if table.count() == events else f"DIFFERENT: {table.count()} {events}")
        return
    wanted = stream.sql("SELECT count(*), sum(id)::bigint, sum(n)::bigint, sum(length(note)) FROM t")[0]
    found = table.selectExpr("count(*)", "sum(id)", "sum(n)", "sum(length(note))").first()
    print("equal to PostgreSQL" if tuple(found) == tuple(wanted) else f"DIFFERENT: {found} {wanted}")


def warm(form: str, what: str, events: int, times: Sequence[float]) -> float:
    """The median of the last runs' seconds, which is printed as a rate."""
    median = statistics.median(times[-WARM_RUNS:])
    print(f"{form}: {what}, median of the last {WARM_RUNS} runs: {events / median:,.0f}/s", flush=True)
    return median


def floor(cdc: Cdc, made: Any, before: dict[str, Any], took: float, inserted: str, changed: str, removed: str) -> None:
    """Do what a run cannot do without: decode its events, append and merge its rows from memory (into a copy)."""
    [table] = made.published().tables
    record = cdc.cut().tables[table.topic]
    starts = before[table.topic].offsets if before else [0] * len(record.offsets)
    decode = statistics.median(drained(cdc.topics.events(record, starts)) for _ in range(WARM_RUNS))
    now, parts = cdc.spark.table(table.target), {"decode": decode}
    sources = {"append": now.where(inserted), "merge": now.where(changed).selectExpr("*", "false AS gone")}
    if before:
        gone = made._target.at(table.target, before[table.topic].version).where(removed)
        sources["merge"] = sources["merge"].union(gone.selectExpr("*", "true AS gone"))
    for name, source in sources.items():
        kept = source.persist()
        if rows := kept.count():
            parts[name] = statistics.median(written(cdc, made, table, before, name, kept) for _ in range(WARM_RUNS))
            print(f"    floor: {name} {rows:,} rows = {rows / parts[name]:,.0f}/s")
        kept.unpersist()
    shown = " + ".join(f"{name} {part:.1f} s" for name, part in parts.items())
    print(f"    floor: {shown} = {sum(parts.values()):.1f} s; the run took {took / sum(parts.values()):.2f} times that")


def written(cdc: Cdc, made: Any, table: Any, before: dict[str, Any], how: str, rows: DataFrame) -> float:
    """How many seconds it takes to append or merge rows into a copy of the table as it was."""
    copy, names = f"{table.target.rpartition('.')[0]}.copy", cdc.spark.table(table.target).dtypes
    # With copy-on-write Spark 4.1 has no plan for a source that is made of an Iceberg table.
    layout = Layout(properties={"write.merge.mode": "merge-on-read"}) if made._target.using == "iceberg" else None
    made._target.create(copy, ", ".join(f"`{name}` {kind}" for name, kind in names), layout)
    if before:
        made._target.at(table.target, before[table.topic].version).writeTo(copy).append()
    rows.createOrReplaceTempView("bench_source")
    columns = ", ".join(f"t.`{name}` = s.`{name}`" for name, _ in names)
    statement = (
        f"MERGE INTO {copy} t USING bench_source s ON t.id = s.id "
        f"WHEN MATCHED AND s.gone THEN DELETE WHEN MATCHED THEN UPDATE SET {columns}"
    )
    try:
        return seconds(rows.writeTo(copy).append if how == "append" else lambda: cdc.spark.sql(statement))[0]
    finally:
        cdc.spark.sql(f"DROP TABLE {copy}")


def small(stream: streams.StreamFixture, cdc: Cdc, form: Literal["delta", "iceberg"]) -> None:
    """Change one row in each of 20 small tables, a run each time."""
    names = [f"t{number}" for number in range(20)]
    stream.sql(*(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)" for name in names))
    running = started(stream)
    made = cdc.mirror(["*"], f"{'spark_catalog' if form == 'delta' else 'ice'}.bench", form)
    updates, inserts = SMALL_COLD_RUNS + WARM_RUNS, WARM_RUNS
    changes = {
        "INSERT INTO {} SELECT n, 0 FROM generate_series(1, 100) n": 1,
        "UPDATE {} SET v = v + 1 WHERE id = 7": updates,
        "INSERT INTO {} SELECT max(id) + 1, 0 FROM {}": inserts,
    }
    for change, turns in changes.items():
        for _ in range(turns):
            stream.sql(*(change.replace("{}", name) for name in names))
            running.wait_until_confirmed()
            print(f"{form}: {change}: {shown(cdc, made.run_once)}", end="")
            print(f"; then nothing new: {shown(cdc, made.run_once)}, {shown(cdc, made.run_once)}", flush=True)
    rows = made.as_of()
    found = [tuple(rows[f"public.{name}"].selectExpr("count(*)", "sum(v)").first()) for name in names]
    print("equal to PostgreSQL" if found == [(100 + inserts, updates)] * 20 else f"DIFFERENT: {found}")


def snapshot(stream: streams.StreamFixture, cdc: Cdc, _: str) -> None:
    """Measure, in turn, plain reads and parallel snapshot reads, while a writer inserts rows."""
    stream.sql(TABLE, "CREATE PUBLICATION cdcd FOR TABLE t")
    fill(stream, 1, 2_000_000)
    stream.sql("ANALYZE t")
    stop = threading.Event()

    def write() -> None:
        number = 2_000_000
        with psycopg.connect(stream.dsn, autocommit=True) as connection:
            while not stop.wait(0.05):
                number += 1
                connection.execute(ROWS.format(first=number, last=number).encode())

    with connect(parameters(stream.dsn, "bench")) as connection:
        url, properties = jdbc(login(connection))
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for turn in range(5):
            plain = drained(cdc.spark.read.jdbc(url, "t", properties=properties))
            with cdc.snapshot(stream.dsn, ["public.t"], parallelism=4) as held:
                [(there,)] = stream.sql("SELECT count(*) FROM t")
                took, found = seconds(lambda: held.rows("public.t").selectExpr("count(*)", "max(id)").first())
                parallel = drained(held.rows("public.t"))
                exact = found[0] == found[1] <= there
            print(
                f"turn {turn}: plain {2e6 / plain:,.0f}/s, snapshot {2e6 / parallel:,.0f}/s = "
                f"{plain / parallel:.2f} times; {found[0]:,} rows, {'exact' if exact else 'NOT EXACT'} "
                f"(counted in {took:.1f} s)", flush=True
            )  # fmt: skip
    finally:
        stop.set()
        writer.join()


def verify(stream: streams.StreamFixture, cdc: Cdc, form: Literal["delta", "iceberg"]) -> None:
    """Compare a million equal rows, then compare them with one changed value, one lost row and one extra row."""
    stream.sql(TABLE)
    running = started(stream)
    fill(stream, 1, 1_000_000)
    running.wait_until_confirmed(timeout_s=120)
    made = cdc.mirror(["*"], f"{'spark_catalog' if form == 'delta' else 'ice'}.bench", form)
    made.run_once()
    print(cdc.verify(stream.dsn, ["public.t"], made, parallelism=2).as_text(), flush=True)
    stream.sql(
        "ALTER PUBLICATION cdcd SET (publish = 'truncate')",
        "UPDATE t SET amount = amount + 0.01 WHERE id = 777777",
        "DELETE FROM t WHERE id = 123456",
        "INSERT INTO t (id) VALUES (-1)",
    )
    print(cdc.verify(stream.dsn, ["public.t"], made, parallelism=2).as_text())


if __name__ == "__main__":
    main()
