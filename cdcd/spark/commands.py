"""The commands `cdcd spark mirror | status | verify | snapshot`, also under spark-submit.

Before: `cli` names the command and the file. After: `Cdc` does the work; each step is a line of output.
A command uses the session that spark-submit has made. If there is none, it makes one with the file's [spark] settings.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TextIO

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdcd.errors import CdcdError, RetriableError, SettingsError
from cdcd.lsn import format_lsn
from cdcd.spark import failures, jvm
from cdcd.spark import settings as s
from cdcd.spark.cdc import Cdc
from cdcd.spark.metrics import MirrorMetrics
from cdcd.spark.mirror.mirror import Mirror, PublishedRun
from cdcd.spark.packages import check_jars, packages
from cdcd.spark.reading.cuts import both_forms
from cdcd.spark.status import MirrorStatus, upkeep_is_due
from cdcd.spark.steps import Steps
from cdcd.terminal.visible_text import visible

_RETRY_S = 10.0
_START = "start Spark"
_SNAPSHOT = "take a snapshot of PostgreSQL"


@contextmanager
def translating_errors() -> Iterator[None]:
    """Translate the errors of Spark, and of a JVM that has ended, into a CdcdError with one sentence and its hint."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        message = failures.message(error)
        raise CdcdError(f"Spark failed: {message}", failures.hint(error, message), code="spark-failed") from error


def mirror(path: str, *, once: bool, out: TextIO) -> bool:
    """Run the mirror until SIGTERM; with `once`, up to the cut that is the newest one now.

    Returns whether the last run has brought all tables to its LSN: False if some are in quarantine.
    """
    settings = s.load(path)
    steps = Steps(partial(_say, out))
    with steps.watched(_START):
        cdc = _cdc(settings)
        steps.begin("read the progress of the topics")
        goal_lsn = cdc.cut().lsn if once else 0
        made = _mirror(cdc, settings, steps)
    assert settings.mirror is not None
    metrics = MirrorMetrics(settings.monitoring.port) if settings.monitoring.port else None
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    is_whole = True
    while not stop.is_set():
        began = time.monotonic()
        try:
            with steps.watched("look for new events"):
                published = made.run_once()
                steps.begin("count the events that are behind")
                lag = made.lag()
        except RetriableError as error:  # Kafka or PostgreSQL cannot be reached for now
            if once:
                raise
            _say(out, str(error))
            stop.wait(_RETRY_S)
            continue
        if metrics is not None:
            metrics.report(published, lag)
        if published is not None:
            is_whole = not published.run.quarantined
            _say(out, _shown(published, lag.events))
            if upkeep_is_due(published.run, settings.mirror.compact_every_runs):
                with steps.watched("compact"):
                    made.compact(settings.mirror.keep_runs, settings.mirror.keep_days)
        if once and (published is None or published.run.lsn >= goal_lsn):
            break
        if not once:
            stop.wait(max(0.0, settings.mirror.interval_s - (time.monotonic() - began)))
    return is_whole or not once


def status(path: str, *, as_json: bool, out: TextIO) -> bool:
    """Say where the mirror's tables are, as the last run published them. Returns True."""
    settings = s.load(path)
    steps = Steps(partial(_say, sys.stderr))
    with steps.watched(_START):
        made = _mirror(_cdc(settings), settings, steps)
        run = made.published()
        assert settings.mirror is not None
        found = MirrorStatus(run, made.lag(), made.times(run), made.files(run), settings.mirror.compact_every_runs)
    out.writelines(f"{line}\n" for line in (found.as_json() if as_json else found.as_text()).split("\n"))
    return True


def verify(path: str, *, topics: bool, as_json: bool, out: TextIO) -> bool:
    """Compare the mirror (or, with `topics`, the topics' rows) with PostgreSQL; returns whether they are equal."""
    settings = s.load(path)
    steps = Steps(partial(_say, sys.stderr))
    with steps.watched(_START):
        cdc = _cdc(settings)
        subject = None if topics or settings.mirror is None else _mirror(cdc, settings, steps)
        postgres = settings.postgres
        steps.begin(_SNAPSHOT)
        report = cdc.verify(
            _dsn(settings), settings.mirrored, subject, postgres.parallelism, postgres.publication, postgres.timeout_s,
            on_step=steps,
        )  # fmt: skip
    out.writelines(f"{line}\n" for line in (report.as_json() if as_json else report.as_text()).split("\n"))
    return report.ok


def snapshot(path: str, tables: list[str], *, out: TextIO) -> bool:
    """Load tables from PostgreSQL into the lake, and join them to the topics at the snapshot's LSN. Returns True."""
    settings = s.load(path)
    steps = Steps(partial(_say, out))
    with steps.watched(_START):
        cdc = _cdc(settings)
        made = _mirror(cdc, settings, steps)
        postgres = settings.postgres
        assert settings.mirror is not None
        wanted = tables or settings.mirrored
        steps.begin(_SNAPSHOT)
        with cdc.snapshot(_dsn(settings), wanted, postgres.parallelism, postgres.publication) as held:
            steps(f"snapshot at {format_lsn(held.lsn)} of {len(held.tables)} tables")
            for published in made.load(held, postgres.timeout_s):
                _say(out, _shown(published, 0))
    return True


def _cdc(settings: s.SparkSettings) -> Cdc:
    kafka = settings.kafka
    return Cdc(
        session(settings), kafka.bootstrap_servers, kafka.prefix, kafka.registry_url, kafka.slot, kafka.properties,
        kafka.topic,
    )  # fmt: skip


def session(settings: s.SparkSettings) -> SparkSession:
    """The session that spark-submit has made, else a new one with `session_options`.

    Raises SettingsError before it starts if the options name a Kafka connector that is known to fail.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    options = session_options(settings)
    check_jars(f"{options.get('spark.jars', '')} {options.get('spark.jars.packages', '')}")
    return jvm.start(options)


def session_options(settings: s.SparkSettings) -> dict[str, str]:
    """The settings of a session that the command makes: the file's [spark] wins."""
    form = "delta" if settings.mirror is None else settings.mirror.format
    own = {"spark.app.name": "cdcd", "spark.sql.session.timeZone": "UTC", "spark.log.level": "WARN"}
    # The executors' part of `decoding.forget_readers`.
    own["spark.executor.extraJavaOptions"] = "-Dorg.apache.avro.fastread=false"
    # Spark keeps the last 100 classes that it has generated, and one MERGE of Delta takes more. So each run would
    # generate all of them again, and Java would run them uncompiled.
    own["spark.sql.codegen.cache.maxEntries"] = "1000"
    if form == "delta":
        # Delta reads a table's log again after each commit, in 50 tasks if nothing else is said: most logs are short.
        own["spark.databricks.delta.snapshotPartitions"] = "8"
    if not sys.stderr.isatty():
        own["spark.ui.showConsoleProgress"] = "false"
    if not settings.spark.keys() & {"spark.jars", "spark.jars.packages"} and "--" not in sys.argv:
        own["spark.jars.packages"] = packages(formats=(form,))
    return own | settings.spark


def _mirror(cdc: Cdc, settings: s.SparkSettings, steps: Steps) -> Mirror:
    m = settings.mirror
    if m is None:
        raise SettingsError(
            "mirror.catalog is not set",
            "Set it in the file under [mirror]: cdcd files spark/mirror.toml shows how",
            code="mirror-settings-invalid",
        )
    return cdc.mirror(
        m.tables, m.catalog, m.format, name=m.name, deletes=m.deletes, schema_changes=m.schema_changes,
        table_errors=m.table_errors, rows_max=m.rows_max, parallel=m.parallel, properties=m.properties,
        views=m.views, tags=m.tags, table_names=m.table_names, on_step=steps,
        per_table=[each.model_dump() for each in settings.tables],
    )  # fmt: skip


def _dsn(settings: s.SparkSettings) -> str:
    if not settings.postgres.dsn:
        raise SettingsError(
            "postgres.dsn is not set",
            f"Set it in the file, or as {s.DSN_VARIABLE} in the environment",
            code="mirror-settings-invalid",
        )
    return settings.postgres.dsn


def _shown(published: PublishedRun, behind: int) -> str:
    rate = published.events / published.seconds if published.seconds else 0
    return (
        f"published run {published.run.run} at {both_forms(published.run.lsn)}: {published.events:,} events in "
        f"{published.seconds:.1f} s ({rate:,.0f}/s); {behind:,} newer events wait for the next run"
    )


def _say(out: TextIO, line: str) -> None:
    out.write(f"{time.strftime('%H:%M:%S')} {visible(line)}\n")
    out.flush()
