"""Parts that need no session: common types, jars, settings, statements."""

from __future__ import annotations

import gc
import io
import json
import signal
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement
from servers.jars import OLDEST_SPARK, SPARK

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkRuntimeError
from pyspark.sql import SparkSession

from cdcd.avro.type_forms import TYPE_FORMS
from cdcd.errors import CdcdError, DecodeError, RequestRejected, SettingsError
from cdcd.sink.topics import TopicNames
from cdcd.spark import commands, failures, jvm, settings
from cdcd.spark.load import ctid_ranges, jdbc
from cdcd.spark.mirror.merge_sql import MergeSource, merge
from cdcd.spark.mirror.mirror import PublishedRun
from cdcd.spark.mirror.per_table import Layout, TableRules
from cdcd.spark.mirror.planner import Lag
from cdcd.spark.mirror.run_log import Run
from cdcd.spark.mirror.schema_evolution import Evolution, Succession, TargetSchema, evolve
from cdcd.spark.mirror.targets.delta import Delta
from cdcd.spark.mirror.targets.iceberg import Iceberg
from cdcd.spark.mirror.targets.target import Target
from cdcd.spark.mirror.wiring import _quoted
from cdcd.spark.packages import check_jars, packages
from cdcd.spark.reading.decoding import writer_order
from cdcd.spark.reading.kafka import KafkaReader
from cdcd.spark.reading.missing_values import MissingValue, missing_values
from cdcd.spark.reading.topics import Topics
from cdcd.spark.reading.type_table import KINDS
from cdcd.spark.reading.types import Avro, avro_resolves, common, ddl
from cdcd.spark.reading.writer_schemas import TopicWriters, Writer, Writers, checked_writer, writer
from cdcd.spark.state.collapse import fallible_names

REPOSITORY = Path(__file__).parents[2]


def _decimal(precision: int, scale: int) -> dict[str, object]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ("int", "long", "bigint"),
        ("float", "double", "double"),
        ("int", _decimal(6, 2), "decimal(12,2)"),
        (_decimal(10, 2), _decimal(12, 4), "decimal(12,4)"),
        (_decimal(38, 0), _decimal(38, 10), "string"),
        ("long", "double", "string"),
        ("long", {"type": "long", "logicalType": "time-micros"}, "string"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, "array<bigint>"),
        ("boolean", "int", "string"),
    ],
)
def test_the_common_type_holds_both(one: Avro, other: Avro, wanted: str) -> None:
    assert ddl(common(one, other)) == ddl(common(other, one)) == wanted


def test_every_kind_of_avro_type_has_its_line() -> None:
    assert {form.kind for form in TYPE_FORMS.values()} <= KINDS.keys()


def test_avro_never_resolves_what_it_would_misread() -> None:
    assert avro_resolves("int", "long")
    assert not avro_resolves(_decimal(10, 2), _decimal(12, 4))
    assert not avro_resolves({"type": "int", "logicalType": "date"}, "int")


def test_known_bad_pairs_are_refused() -> None:
    assert "spark-sql-kafka-0-10_2.13:4.1.3" in packages("4.1.3")
    assert "delta-spark_2.13:4.0.0" in packages("4.0.0")
    for version in ("4.1.0", "4.1.1", "4.1.2", "3.5.4", "4.3.0"):
        with pytest.raises(SettingsError):
            packages(version)
    with pytest.raises(SettingsError, match=r"no iceberg for Spark 4\.2"):
        packages("4.2.0", ["iceberg"])
    check_jars("/jars/spark-sql-kafka-0-10_2.13-4.1.3.jar")
    for bad in ("/jars/spark-sql-kafka-0-10_2.13-4.1.2.jar", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1,a:b:1"):
        with pytest.raises(SettingsError, match="SPARK-55271"):
            check_jars(bad)


def test_the_extra_installs_the_newest_pyspark_that_is_tested() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    [pyspark] = map(Requirement, project["optional-dependencies"]["spark"])
    versions = ["4.0.0", "4.1.0", "4.1.1", "4.1.2", "4.1.3", "4.1.4", "4.2.0", "4.3.0"]
    assert list(pyspark.specifier.filter(versions)) == [OLDEST_SPARK, SPARK]


def test_ranges_cover_every_page_and_the_last_is_open() -> None:
    assert ctid_ranges(0, 4) == ["ctid >= '(0,0)'::tid"]
    ranges = ctid_ranges(10, 4)
    assert len(ranges) == 4
    assert ranges[0] == "ctid >= '(0,0)'::tid AND ctid < '(3,0)'::tid"
    assert ranges[-1] == "ctid >= '(9,0)'::tid"


def test_a_login_becomes_a_jdbc_url() -> None:
    login = {"host": "db", "port": "5433", "dbname": "shop", "user": "cdc", "password": "secret", "sslcert": ""}
    url, properties = jdbc(login | {"sslmode": "verify-full", "gssencmode": "prefer"})
    assert url == "jdbc:postgresql://db:5433/shop"
    assert properties == {
        "driver": "org.postgresql.Driver", "user": "cdc", "password": "secret", "sslmode": "verify-full"
    }  # fmt: skip
    assert jdbc(login | {"host": "fe80::1", "dbname": "my shop/ä"})[0] == (
        "jdbc:postgresql://[fe80::1]:5433/my%20shop%2F%C3%A4"
    )
    with pytest.raises(SettingsError, match="cannot use the socket directory"):
        jdbc(login | {"host": "/var/run/postgresql"})


def test_the_shipped_file_loads_and_a_wrong_key_is_named(tmp_path: Path) -> None:
    shipped = REPOSITORY / "deploy" / "spark" / "mirror.toml"
    loaded = settings.load(str(shipped))
    assert loaded.mirror is not None
    assert loaded.mirror.model_dump() == settings.MirrorSettings(catalog=loaded.mirror.catalog).model_dump()
    assert loaded.spark["spark.sql.catalogImplementation"] == "hive", "the second run would not find the first's tables"
    assert "spark.sql.shuffle.partitions" in loaded.spark
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(shipped.read_text().replace("deletes =", "delete ="))
    with pytest.raises(SettingsError, match=r"no setting mirror\.delete .* Did you mean mirror\.deletes"):
        settings.load(str(wrong))


def test_a_session_draws_progress_on_a_terminal_only_and_the_file_wins(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = "spark.ui.showConsoleProgress"

    def options(**spark: str) -> dict[str, str]:
        return commands.session_options(
            settings.SparkSettings(kafka=settings.KafkaSettings(bootstrap_servers="k:9092"), spark=spark)
        )

    assert options()[progress] == "false"
    assert options(**{progress: "true"})[progress] == "true"
    partitions = "spark.databricks.delta.snapshotPartitions"
    assert (options()[partitions], options(**{partitions: "50"})[partitions]) == ("8", "50")
    classes = "spark.sql.codegen.cache.maxEntries"
    assert (options()[classes], options(**{classes: "100"})[classes]) == ("1000", "100")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert progress not in options()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}),
            r"its port number\. See its output above\. Spark needs Java 17 or 21, and ",
        ),
        (ConnectionRefusedError("refused."), r"refused\. Spark's own log says more\. Start the job again"),
        (AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] no t"), r"no t\. Spark refuses what the job asks for"),
        (
            Py4JError("An error occurred\njava.lang.ClassNotFoundException: org.apache.kafka.common.x"),
            r"A jar is missing in the session\. Name these with --jars .*org\.apache\.spark:spark-sql-kafka",
        ),
        (
            Py4JError("An error occurred while calling o7.count.\n: org.apache.x: [FAILED_READ_FILE.FILE_NOT_EXIST] f"),
            r"Spark failed: org.apache.x: \[FAILED.*load the table again with `cdcd spark snapshot`",
        ),
        (ConnectionResetError(), r"ConnectionResetError\. Spark's own log says more"),
    ],
)
def test_an_error_of_spark_becomes_a_sentence_and_its_hint(error: Exception, message: str) -> None:
    with pytest.raises(CdcdError, match=message), commands.translating_errors():
        raise error


ASKED = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3,org.postgresql:postgresql:42.7.4"
TOKENS = "org.apache.spark#spark-token-provider-kafka-0-10_2.13;4.1.3"
ENDED = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."


@pytest.fixture
def starts_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Give a SPARK_HOME whose spark-submit writes this to its standard error, and ends; returns the file it makes."""
    home, started = tmp_path / "spark", tmp_path / "started"
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "spark-submit"

    def write(output: str) -> Path:
        (home / "output").write_text(output)
        program.write_text(f"#!/bin/sh\ntouch {started}\ncat {home}/output >&2\nexit 1\n")
        program.chmod(0o755)
        return started

    monkeypatch.setenv("SPARK_HOME", str(home))
    yield write
    gc.collect()  # PySpark leaves the pipe of a JVM that has ended to it: while the warning is ignored


def _failure(packages: str) -> CdcdError:
    with pytest.raises(CdcdError) as raised:
        jvm.start({"spark.jars.packages": packages})
    return raised.value


def test_a_jar_that_was_not_found_is_named_with_the_settings_that_replace_it(
    starts_with: Callable[[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    output = (
        f"\t\t:: {TOKENS}: not found\n\t\t::::::::::::::\n"
        f'Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: {TOKENS}: not found]\n'
    )
    starts_with(output)
    error = _failure(ASKED)
    assert "could not fetch org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.3" in str(error)
    assert f'"spark.jars.packages" = "{ASKED}"' in error.hint, "spark.jars alone would take away the other jars"
    assert '"spark.jars.excludes" = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"' in error.hint
    assert '"spark.jars" = "/jars/spark-token-provider-kafka-0-10_2.13-VERSION.jar"' in error.hint
    assert error.code == "spark-failed"
    assert capfd.readouterr().err == output, "what the JVM writes is still to be seen"


def test_a_jar_that_was_asked_for_and_not_found_is_no_longer_asked_for(starts_with: Callable[[str], Path]) -> None:
    starts_with("[download failed: org.postgresql#postgresql;42.7.4!postgresql.jar]")
    error = _failure(ASKED)
    assert '"spark.jars.packages" = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3"' in error.hint
    assert '"spark.jars" = "/jars/postgresql-VERSION.jar"' in error.hint


def test_where_no_jar_can_be_fetched_the_repository_is_to_blame(starts_with: Callable[[str], Path]) -> None:
    starts_with("[unresolved dependency: a#b;1: not found, unresolved dependency: c#d_2.13;2.0: not found]")
    error = _failure("a:b:1,c:d_2.13:2.0")
    assert "could not fetch any of the jars: a:b:1, c:d_2.13:2.0" in str(error)
    assert "spark.jars.repositories" in error.hint


def test_a_certificate_that_java_does_not_trust_is_the_cause_of_the_jars_that_are_missing(
    starts_with: Callable[[str], Path],
) -> None:
    starts_with(
        "Server access error at url https://repo.example/x.pom (javax.net.ssl.SSLHandshakeException: PKIX path "
        "building failed: unable to find valid certification path to requested target)\n"
        f"[unresolved dependency: {TOKENS}: not found]"
    )
    error = _failure(ASKED)
    assert "does not trust the certificate" in str(error)
    assert "keytool -importcert -cacerts" in error.hint
    assert '"spark.jars"' in error.hint


def test_another_end_of_the_jvm_shows_which_java_it_had(starts_with: Callable[[str], Path]) -> None:
    starts_with("UnsupportedClassVersionError")
    error = _failure(ASKED)
    assert ENDED.rstrip(".") in str(error)
    assert "See its output above. Spark needs Java 17 or 21" in error.hint


def test_a_connector_that_fails_is_refused_before_spark_starts(
    starts_with: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    started = starts_with("")
    spark = {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1"}
    given = settings.SparkSettings(kafka=settings.KafkaSettings(bootstrap_servers="k:9092"), spark=spark)
    with pytest.raises(SettingsError, match="SPARK-55271") as raised:
        commands.session(given)
    assert not started.exists()
    for cure in ("4.1.3", "spark.jars.excludes", "spark.jars names its file", "PySpark 4.0.0"):
        assert cure in raised.value.hint
    with pytest.raises(CdcdError, match="JAVA_GATEWAY_EXITED"):
        commands.session(
            given.model_copy(update={"spark": {"spark.jars": "/jars/spark-sql-kafka-0-10_2.13-4.1.3.jar"}})
        )
    assert started.exists()


def test_a_mirror_is_compacted_by_its_own_count_of_runs_so_also_where_each_process_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compacted: list[int] = []

    class OneRun:
        def __init__(self, number: int) -> None:
            self.number = number

        def run_once(self) -> PublishedRun:
            return PublishedRun(Run("mirror", self.number, "published", "cdcd", 9, 9, 0, 0, ()), 1.0)

        def lag(self) -> Lag:
            return Lag(0, 0, 0.0)

        def compact(self, _keep_runs: int, _keep_days: int) -> None:
            compacted.append(self.number)

    file = tmp_path / "mirror.toml"
    file.write_text('[kafka]\nbootstrap_servers = "k:9092"\n[mirror]\ncatalog = "lake.shop"\ncompact_every_runs = 3\n')
    monkeypatch.setattr(commands, "_cdc", lambda _settings: SimpleNamespace(cut=lambda: SimpleNamespace(lsn=9)))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    for number in range(1, 8):
        monkeypatch.setattr(commands, "_mirror", lambda *_, number=number: OneRun(number))
        assert commands.mirror(str(file), once=True, out=io.StringIO())
    assert compacted == [3, 6]


def test_the_java_that_spark_finds_or_lacks_is_named(tmp_path: Path) -> None:
    assert "there is none: JAVA_HOME is not set" in failures.java({"PATH": str(tmp_path)})
    assert f"JAVA_HOME names {tmp_path}, where there is no bin/java" in failures.java({"JAVA_HOME": str(tmp_path)})
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "java"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="11.0.2"\n')
    assert failures.java({"JAVA_HOME": str(tmp_path)}).endswith(f"names {tmp_path}, which is Java 11.0.2")
    assert failures.java({"PATH": str(tmp_path / "bin")}).endswith(f"PATH has {program}, which is Java 11.0.2")
    (tmp_path / "release").unlink()
    assert failures.java({"JAVA_HOME": str(tmp_path)}).endswith(f"names {tmp_path}")


_UNMAPPED: Any = SimpleNamespace(sql=lambda _: SimpleNamespace(where=lambda _: SimpleNamespace(count=lambda: 0)))
"""A session whose Delta tables have no mapping of the names of columns."""


def _writer(**columns: Any) -> Writer:
    fields = [{"name": name, "type": ["null", kind], "default": None} for name, kind in columns.items()]
    row = {"type": "record", "name": "Row", "fields": fields}
    return writer(b"w", json.dumps({"fields": [{"name": "before", "type": ["null", row]}]}))


@pytest.mark.parametrize("target", [Delta(_UNMAPPED, {}), Iceberg(None, {})], ids=["delta", "iceberg"])
def test_columns_are_added_and_widened_and_other_changes_are_refused(target: Target) -> None:
    changed = evolve(target, "t", {"id": "int", "n": "int"}, [_writer(id="int", n="long", v="string")], follow=False)
    assert (changed.added, changed.widened) == ([("v", "string")], [("n", "bigint")])
    narrower = evolve(target, "t", {"id": "bigint"}, [_writer(id="int")], follow=False)
    assert (narrower.columns, narrower.widened) == ([{"name": "id", "type": "long"}], [])
    with pytest.raises(RequestRejected, match="column n is boolean, and PostgreSQL's is string now"):
        evolve(target, "t", {"n": "boolean"}, [_writer(n="string")], follow=False)
    followed = evolve(target, "t", {"n": "boolean"}, [_writer(n="string")], follow=True)
    assert followed.columns == [{"name": "n", "type": "boolean"}]
    with pytest.raises(RequestRejected, match="column a went and b came"):
        evolve(target, "t", {"id": "int", "a": "string"}, [_writer(id="int", b="string")], follow=False)


def test_a_rename_amid_the_events_of_a_run_asks_for_a_load_and_not_for_a_rename() -> None:
    target, amid = Delta(None, {}), [_writer(id="int", a="string"), _writer(id="int", b="string")]
    for existing in ("a", "b"):
        with pytest.raises(RequestRejected, match=r"Load the table again with `cdcd spark snapshot`"):
            evolve(target, "t", {"id": "int", existing: "string"}, amid, follow=False)
    loaded = evolve(target, "t", {"id": "int", "a": "string"}, amid[1:], follow=False, overwrites=True)
    assert loaded.added == [("b", "string")]


@pytest.mark.parametrize("target", [Delta(_UNMAPPED, {}), Iceberg(None, {})], ids=["delta", "iceberg"])
def test_parts_of_columns_are_added_and_widened(target: Target) -> None:
    def composite(**fields: Any) -> dict[str, Any]:
        made = [{"name": name, "type": ["null", kind]} for name, kind in fields.items()]
        return {"type": "record", "name": f"R{len(made)}", "fields": made}

    def array(of: Any) -> dict[str, Any]:
        return {"type": "array", "items": ["null", of]}

    numeric = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    existing = {
        "id": "int", "c": "struct<a:int,n:decimal(8,2),inner:struct<x:string>>", "l": "array<int>",
        "many": "array<struct<a:int>>",
    }  # fmt: skip
    inner, many = composite(x="string", y="int"), array(composite(a="int", b="string"))
    now = _writer(id="int", c=composite(a="long", n=numeric, inner=inner, z="string"), l=array("long"), many=many)
    changed = evolve(target, "t", existing, [now], follow=False)
    assert changed.added == [("c.inner.y", "int"), ("c.z", "string"), ("many.element.b", "string")]
    assert changed.widened == [("c.a", "bigint"), ("c.n", "decimal(10,2)"), ("l.element", "bigint")]
    types = {column["name"]: ddl(column["type"]) for column in changed.columns}
    assert types["c"] == "struct<a:bigint,n:decimal(10,2),inner:struct<x:string,y:int>,z:string>"
    for follow in False, True:
        with pytest.raises(
            RequestRejected, match=r"column l is array<int>, and PostgreSQL's is array<string> now"
        ) as no:
            evolve(target, "t", existing, [_writer(id="int", l=array("string"))], follow=follow)
        assert "follow" not in no.value.hint
    with pytest.raises(RequestRejected, match="column c is struct"):
        evolve(target, "t", existing, [_writer(id="int", c="string")], follow=True)


def test_an_attribute_that_may_have_been_renamed_is_refused_as_a_column_is() -> None:
    """PostgreSQL changes all rows that exist, and sends no event: they would have null under the new name."""

    def of(*attributes: str) -> Writer:
        fields = [{"name": name, "type": "int" if name == "a" else "string"} for name in attributes]
        composite = {"type": "record", "name": "R", "fields": fields}
        return _writer(id="int", p=composite, many={"type": "array", "items": composite})

    def fit(
        existing: str, *writers: Writer, earlier: Writer | None = None, follow: bool = False, many: str | None = None
    ) -> Evolution:
        columns = {"id": "int", "p": f"struct<{existing}>", "many": f"array<struct<{many or existing}>>"}
        succession = Succession([*columns], True, writers, earlier)
        return evolve(Iceberg(None, {}), "t", columns, writers, succession, follow=follow)

    with pytest.raises(RequestRejected, match=r"attribute p\.b went and bb came") as refused:
        fit("a:int,b:string", of("a", "bb"), earlier=of("a", "b"))
    assert "ALTER TABLE t RENAME COLUMN p.b TO bb" in str(refused.value.hint)
    with pytest.raises(RequestRejected, match=r"attribute many\.element\.b went and bb came"):
        fit("a:int,bb:string", of("a", "bb"), earlier=of("a", "b"), many="a:int,b:string")
    with pytest.raises(RequestRejected, match=r"attribute p\.b went and bb came"):
        fit("a:int,b:string", of("a", "b"), of("a", "bb"))
    assert fit("a:int,bb:string", of("a", "bb"), earlier=of("a", "b")).added == [], "a person has renamed it"
    both = [("p.bb", "string"), ("many.element.bb", "string")]
    assert fit("a:int,b:string", of("a", "bb"), earlier=of("a", "b"), follow=True).added == both
    assert fit("a:int,b:string", of("a", "bb"), earlier=of("a")).added == both, "b went long ago"
    assert fit("a:int,b:string", of("a", "b", "bb"), earlier=of("a", "b")).added == both
    assert fit("a:int,b:string", of("b", "c"), earlier=of("a", "b")).added != [], "a was of another type"


def test_only_a_column_that_goes_now_may_have_been_renamed() -> None:
    """`a` went long ago, and a person has added `note`: the table still has both."""
    existing = {"id": "int", "a": "string", "note": "string"}

    def follow(before: list[str] | None, *writers: Writer, known: bool = True) -> Evolution:
        succession = Succession(before, known, writers)
        return evolve(Delta(_UNMAPPED, {}), "lake.s.t", existing, writers, succession, follow=False)

    with_z, without_a = _writer(id="int", z="string"), _writer(id="int")
    assert follow(["id"], with_z).added == [("z", "string")]
    assert follow(["id", "a"], without_a, with_z).added == [("z", "string")], "events lie between"
    assert follow(["id"], with_z, known=False).returned == []
    with pytest.raises(RequestRejected, match="column a went and z came") as refused:
        follow(["id", "a"], with_z)
    assert refused.value.hint.startswith(
        "If it was renamed: ALTER TABLE lake.s.t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name'); "
        "ALTER TABLE lake.s.t RENAME COLUMN a TO z. If not"
    )
    with pytest.raises(RequestRejected, match="column a went and note came") as refused:
        follow(["id", "a"], _writer(id="int", note="string"))
    assert refused.value.hint.startswith("If it was renamed: load the table again with `cdcd spark snapshot`")
    with pytest.raises(RequestRejected, match="column a went and z came"):
        follow(None, with_z, known=False)


def test_a_column_that_comes_again_is_another_one_and_one_that_a_person_renamed_is_not() -> None:
    target = Delta(_UNMAPPED, {})
    again, succession = _writer(id="int", a="string"), Succession(["id"], True, [_writer(id="int", a="string")])
    assert evolve(target, "t", {"id": "int", "a": "string"}, [again], succession, follow=False).returned == ["a"]
    renamed = Succession(["id", "z"], True, [again])
    assert evolve(target, "t", {"id": "int", "a": "string"}, [again], renamed, follow=False).returned == []
    statement = merge("t", MergeSource("s", ["id"], [], ["id", "a"]), deletes="hard", missing={"a": None})
    assert statement.splitlines()[-1] == "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET t.`a` = NULL"


def test_the_order_of_writers_tells_which_columns_are_others_of_the_same_name() -> None:
    with_a, without, with_z = _writer(id="int", a="int"), _writer(id="int"), _writer(id="int", a="int", z="int")
    order = writer_order([(with_a, (1, 0), (9, 0)), (without, (3, 0), (5, 2))])
    assert ([each.names for each in order.writers], order.returned) == (
        [["id", "a"], ["id"], ["id", "a"]],
        {"a": (5, 2)},
    )
    order = writer_order([(with_z, (7, 0), (9, 0)), (without, (3, 0), (5, 2)), (with_a, (1, 0), (2, 0))])
    assert ([each.names for each in order.writers], order.returned) == (
        [["id", "a"], ["id"], ["id", "a", "z"]],
        {"a": (5, 2)},
    )
    order = writer_order([(without, (1, 0), (2, 0)), (with_a, (3, 0), (5, 0))])
    assert (order.names, order.returned) == (["id", "a"], {})
    assert writer_order([(with_a, (1, 0), (2, 0)), (without, (3, 0), (5, 0))]).returned == {}
    assert writer_order([]).names == []


def test_a_name_that_differs_in_case_alone_is_the_same_column() -> None:
    succession = Succession(["id", "Name"], True, [_writer(id="int", name="string")])
    changed = evolve(
        Iceberg(None, {}), "t", {"id": "int", "Name": "string"}, succession.writers, succession, follow=False
    )
    assert (changed.added, changed.returned) == ([], [])


class NewTarget(Target):
    """A format without tables, which notes the columns of those that are made."""

    created = ""

    def exists(self, table: str) -> bool:
        return False

    def create(self, table: str, columns: str, layout: Layout | None = None) -> None:
        self.created = columns

    def columns(self, table: str) -> dict[str, str]:
        return {}


def test_names_are_refused_only_if_the_table_needs_them_and_whatever_their_case() -> None:
    target = NewTarget(None, {})
    schema = TargetSchema(target, TableRules())
    for name in "_SEQ", "_Commit_Lsn", "_is_deleted", "_unrepresentable":
        with pytest.raises(RequestRejected, match=f"the source has a column {name}, a name that the mirror itself"):
            schema.fit("t", [_writer(**{"id": "int", name: "string"})], ["id"])
    for name in "_op", "_unchanged", "_row_hash", "_duplicate", "_unrepresentable_if_new":
        schema.fit("t", [_writer(**{"id": "int", name: "string"})], ["id"])
        assert f"`{name}` string" in target.created
    for name in "_row_hash", "_DUPLICATE":
        with pytest.raises(RequestRejected, match=f"a column {name}"):
            schema.fit("t", [_writer(id="int", **{name: "string"})], [])
    source = MergeSource("s", ["id"], [], ["id", "_op", "_unchanged"], ["_unchanged"])
    statement = merge("t", source, deletes="hard")
    assert "s._x0_op <> 'd'" in statement
    assert "CASE WHEN array_contains(s._x0_unchanged, '_unchanged') THEN t.`_unchanged`" in statement


def test_an_instant_is_one_whatever_the_session_means_by_timestamp() -> None:
    kinds = [("a", "timestamp"), ("b", "struct<timestamp:timestamp,x:array<timestamp>,y:timestamp_ntz>")]
    session: Any = SimpleNamespace(table=lambda _: SimpleNamespace(dtypes=kinds))
    assert Delta(session, {}).columns("t") == {
        "a": "timestamp_ltz", "b": "struct<timestamp:timestamp_ltz,x:array<timestamp_ltz>,y:timestamp_ntz>"
    }  # fmt: skip
    assert ddl({"type": "long", "logicalType": "timestamp-micros"}) == "timestamp_ltz"


def test_delta_takes_a_local_time_into_a_table_that_has_none() -> None:
    statements: list[str] = []
    target = Delta(SimpleNamespace(sql=statements.append), {})
    target.add_columns("t", [("n", "int"), ("at", "array<timestamp_ntz>")])
    target.add_columns("t", [("n", "int")])
    target.widen("t", "day", "timestamp_ntz")
    feature = "ALTER TABLE t SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')"
    assert statements == [
        feature, "ALTER TABLE t ADD COLUMNS (`n` int, `at` array<timestamp_ntz>)",
        "ALTER TABLE t ADD COLUMNS (`n` int)",
        feature, "ALTER TABLE t ALTER COLUMN `day` TYPE timestamp_ntz",
    ]  # fmt: skip


def test_a_stream_may_pass_over_what_retention_has_deleted_and_reads_one_topic() -> None:
    given: dict[str, str] = {}

    class Reader:
        def options(self, **more: str) -> Reader:
            given.update(more)
            return self

        def option(self, name: str, value: str) -> Reader:
            return self.options(**{name: value})

        def load(self) -> None: ...

    session: Any = SimpleNamespace(readStream=SimpleNamespace(format=lambda _: Reader()))
    reader = KafkaReader(session, "k:9092", {})
    reader.stream("p.t", {"failOnDataLoss": "false", "kafka.isolation.level": "read_uncommitted"})
    assert given["failOnDataLoss"] == "false"
    assert (given["subscribe"], given["kafka.isolation.level"]) == ("p.t", "read_committed")
    for name in "subscribePattern", "assign", "Subscribe":
        with pytest.raises(SettingsError, match=f"the topic of one table, and {name} names others"):
            reader.stream("p.t", {name: "x"})


@pytest.mark.parametrize(
    ("catalog", "quoted"),
    [
        ("my-lake.shop", "`my-lake`.shop"),
        ("lake.shop", "lake.shop"),
        ("lake.größe", "lake.`größe`"),
        ("`a.b`.c", "`a.b`.c"),
    ],
)
def test_a_catalog_may_have_a_name_that_sql_has_to_quote(catalog: str, quoted: str) -> None:
    assert _quoted(catalog) == quoted


def test_a_merge_has_only_the_clauses_that_it_needs() -> None:
    plain = merge("t", MergeSource("s", ["id"], [], ["id", "v"]), deletes="hard")
    assert "THEN DELETE" in plain
    assert "NOT MATCHED BY SOURCE" not in plain
    source = MergeSource("s", ["born"], ["born"], ["born", "v"], ["v"])
    soft = merge("t", source, deletes="soft", truncates=True)
    assert "t.`born` <=> s.`born` AND t._unrepresentable['born'] <=> s._unrepresentable['born']" in soft
    assert "WHEN NOT MATCHED BY SOURCE AND NOT coalesce(t._is_deleted, false) THEN UPDATE" in soft
    assert "THEN DELETE" not in soft


def test_keys_of_text_are_told_apart_by_their_lost_text_because_a_schema_does_not_tell_the_encoding() -> None:
    """Of a database in SQL_ASCII two texts that are no UTF-8 are both null, and so differ in their lost text alone."""
    uuid, born = {"type": "string", "logicalType": "uuid"}, {"type": "int", "logicalType": "date"}
    types = {"id": "long", "name": "string", "ref": uuid, "born": born, "raw": "bytes"}
    columns = [{"name": name, "type": kind} for name, kind in types.items()]
    names = fallible_names(list(types), columns)
    assert names == ["name", "born"]
    statement = merge("t", MergeSource("s", ["id", "name"], names, ["id", "name"]), deletes="hard")
    assert statement.splitlines()[0].endswith(
        " ON t.`id` = s.`id` AND t.`name` <=> s.`name` AND t._unrepresentable['name'] <=> s._unrepresentable['name']"
    )


def test_a_merge_that_brings_a_column_fills_it_in_rows_that_it_does_not_name() -> None:
    missing = {"c": MissingValue("7", "int", b"\x0e", '"int"'), "d": MissingValue("it's infinity", "int", None, "")}
    source = MergeSource("s", ["id"], [], ["id", "c", "d"])
    statement = merge("t", source, deletes="hard", missing=missing)
    assert statement.splitlines()[-1] == (
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET t.`c` = from_avro(X'0e', '\"int\"', map('mode', 'FAILFAST')), "
        "t.`_unrepresentable` = map_concat(coalesce(t._unrepresentable, cast(map() as map<string,string>)), "
        "map('d', cast(X'6974277320696e66696e697479' AS string)))"
    )
    truncated = merge("t", source, deletes="hard", truncates=True, missing=missing)
    assert truncated.splitlines()[-1] == "WHEN NOT MATCHED BY SOURCE THEN DELETE"


def test_the_last_schema_that_tells_a_default_counts() -> None:
    def described(**properties: object) -> Writer:
        column = {"name": "c", "type": ["null", "int"], "pg_type": "int4", **properties}
        return writer(b"w", _envelope(["null", {"type": "record", "name": "Row", "fields": [column]}]))

    writers = [described(), described(pg_missing_value="7"), described(), described(pg_missing_value=9)]
    assert missing_values(writers) == {"c": MissingValue("7", "int", b"\x0e", '"int"')}
    assert missing_values([*writers, described(pg_missing_value="8")])["c"].text == "8"
    assert missing_values([described(pg_missing_value="eight")])["c"].avro is None


def test_a_column_that_was_renamed_since_it_was_added_is_no_younger_column() -> None:
    def rows(**columns: str | None) -> Writer:
        fields = [
            {"name": name, "type": ["null", "int"], "pg_type": "int4"} | ({"pg_missing_value": text} if text else {})
            for name, text in columns.items()
        ]
        return writer(b"w", _envelope(["null", {"type": "record", "name": "Row", "fields": fields}]))

    before, added, renamed = rows(id=None), rows(id=None, c="7"), rows(id=None, e="7")
    missing = missing_values([before, added, renamed])["e"]
    assert [missing.is_lacked_by(each) for each in (before, added, renamed)] == [True, False, False]
    two = missing_values([rows(id=None, c="7", e="7")])["e"]
    assert two.is_lacked_by(added), "both columns are there"


def _envelope(before: object) -> str:
    fields = [{"name": "before", "type": before}]
    return json.dumps({"type": "record", "name": "Envelope", "namespace": "public.t", "fields": fields})


def _row(**column: object) -> dict[str, object]:
    return {"type": "record", "name": "Row", "fields": [{"name": "id", "type": ["null", "long"], **column}]}


@pytest.mark.parametrize(
    "before",
    [
        "string",
        ["null", "string"],
        ["null", _row(), "string"],
        ["null", _row()],
        ["null", _row(pg_type=7)],
        ["null", _row(pg_type="int8", pg_name={"x": 1})],
        ["null", {"type": "record", "name": "Row", "fields": [{"name": "id", "type": ["null", "Row"]}]}],
    ],
)
def test_a_schema_that_is_not_that_of_events_is_refused_and_passed_over_on_the_topic(before: object) -> None:
    with pytest.raises(DecodeError):
        checked_writer(b"w", _envelope(before))
    writers = TopicWriters(None, "p.schemas")  # type: ignore[arg-type]
    writers._note("00" * 8, _envelope(before))
    writers._note("01" * 8, _envelope(["null", _row(pg_type="pg_catalog.int8")]))
    [known] = writers.known("public", "t", "p.public.t", "value")
    assert known.header == b"\xc3\x01" + b"\x01" * 8
    writers._note("01" * 8, _envelope(["null", _row(pg_type="pg_catalog.text")]))
    assert writers.known("public", "t", "p.public.t", "value") == [known], "the first one stays"


def test_the_topic_tells_which_columns_of_the_table_its_readers_must_not_see() -> None:
    def made(left_out: bool, *masked: str) -> Writer:
        fields = [{"name": name, "type": ["null", "string"], "pg_type": "text"} for name in ("id", "a", "b")]
        marked = [field | ({"pg_masked": True} if field["name"] in masked else {}) for field in fields]
        row = {"type": "record", "name": "Row", "fields": marked} | ({"pg_left_out": True} if left_out else {})
        return writer(b"w", json.dumps({"fields": [{"name": "before", "type": ["null", row]}]}))

    class Known(Writers):
        def __init__(self, *found: Writer) -> None:
            self.found = list(found)

        def of(self, schema: str, table: str, topic: str, subject: str) -> list[Writer]:
            return self.found

    def hidden(*found: Writer) -> set[str]:
        topics = Topics(TopicNames("p"), None, None, Known(*found))  # type: ignore[arg-type]
        return set(topics.hidden("public.t", "p.public.t", ("id", "a", "b", "secret")))

    assert hidden() == set(), "the daemon has published nothing yet"
    assert hidden(made(False)) == set(), "a column that no event knows yet is no secret"
    assert hidden(made(False, "a")) == {"a"}
    assert hidden(made(True, "a"), made(False, "b")) == {"a", "b", "secret"}
