"""`cdcd schema` against real servers: what it says is what the daemon publishes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.fix_postgres import Database
from support.registry import Registry

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema_store import FingerprintStore
from cdcd.cli.commands.schema import register, schemas
from cdcd.config.settings import AvroSettings, Settings
from cdcd.errors import RequestRejected, SettingsError
from cdcd.pgoutput.decoder import Decoder
from cdcd.sink.batches import BatchBuilder
from cdcd.source.catalog import Catalog
from cdcd.source.stream_messages import XLogData
from cdcd.transaction.assembler import Assembler
from cdcd.transaction.relations import Relations
from cdcd.transaction.spool import Spool
from cdcd.transaction.spool_file import SpoolDirectory

pytestmark = pytest.mark.postgres_versions("oldest", "newest")


def settings(database: Database) -> Settings:
    source = {"dsn": database.dsn, "slot": f"s_{database.name}", "publication": "p"}
    return Settings(source=source, sink={"bootstrap_servers": "nowhere:9092", "prefix": "shop"})


def as_json(database: Database, *tables: str) -> dict[str, dict[str, Any]]:
    out = io.StringIO()
    schemas(settings(database), tables, as_json=True, out=out)
    return {made["table"]: made for made in map(json.loads, out.getvalue().splitlines())}


@pytest.fixture
def shop(database: Database) -> Database:
    generated = "generated_t" if database.server.version < 18 else "generated_t (id, twice)"
    database.execute(
        "CREATE TYPE pair AS (a int, gone text, b numeric(6,2))",
        "ALTER TYPE pair DROP ATTRIBUTE gone",
        'CREATE TABLE t (gone int, id int PRIMARY KEY, "A b" text, n numeric(8,2), c pair, cs pair[], r int4range)',
        "ALTER TABLE t DROP COLUMN gone",
        "CREATE TABLE full_t (a int, b text PRIMARY KEY)",
        "ALTER TABLE full_t REPLICA IDENTITY FULL",
        "CREATE TABLE idx_t (a int NOT NULL, b date NOT NULL, c int)",
        "CREATE UNIQUE INDEX by_b ON idx_t (b)",
        "ALTER TABLE idx_t REPLICA IDENTITY USING INDEX by_b",
        "CREATE TABLE none_t (a int)",
        "CREATE TABLE root (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF root DEFAULT",
        "CREATE TABLE generated_t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)",
        f"CREATE PUBLICATION p FOR TABLE t, full_t, idx_t, none_t, root, {generated} "
        "WITH (publish_via_partition_root = true)",
        f"SELECT pg_create_logical_replication_slot('s_{database.name}', 'pgoutput')",
    )
    return database


def published(database: Database, folder: Path) -> set[str]:
    """The schemas that the daemon's rooms publish with the rows that are in the slot."""
    batches = BatchBuilder(tombstones=False)
    with Catalog(database.dsn) as catalog:
        encoder = EventEncoder(batches, FingerprintStore(batches), TypeOptions())
        spool = Spool(SpoolDirectory(folder / "spool"), 1 << 20, 1 << 20)
        assembler = Assembler(Decoder(), Relations(catalog), encoder, spool)
        rows = database.execute(
            f"SELECT data FROM pg_logical_slot_get_binary_changes('s_{database.name}', NULL, NULL, "
            "'proto_version', '1', 'publication_names', 'p')"
        )
        assembler.feed([XLogData(1, 1, 0, bytes(data)).encode() for (data,) in rows])
    return {json.dumps(json.loads(text)) for _, text in batches.build().schemas}


def test_the_schemas_are_those_that_the_daemon_publishes(shop: Database, tmp_path: Path) -> None:
    shop.execute(
        "INSERT INTO t (id) VALUES (1)",
        "INSERT INTO full_t VALUES (1, 'x')",
        "INSERT INTO idx_t VALUES (1, '2026-01-01')",
        "INSERT INTO none_t VALUES (1)",
        "INSERT INTO root VALUES (1)",
        "INSERT INTO generated_t VALUES (1)",
    )
    made = {json.dumps(schema) for each in as_json(shop).values() for schema in (each["key"], each["value"]) if schema}
    # The server announces the partition, too, though no row names it.
    assert made == {text for text in published(shop, tmp_path) if '"namespace": "public.leaf"' not in text}
    assert len(made) == 11


def test_tables_are_named_with_their_topics_and_keys(shop: Database) -> None:
    made = as_json(shop)
    assert {
        table: [field["name"] for field in each["key"]["fields"]] for table, each in made.items() if each["key"]
    } == {
        "public.t": ["id"],
        "public.full_t": ["b"],
        "public.idx_t": ["b", "unrepresentable"],
        "public.root": ["id"],
        "public.generated_t": ["id"],
    }
    assert made["public.none_t"]["key"] is None
    assert {each["topic"] for each in made.values()} == {f"shop.{table}" for table in made}
    assert as_json(shop, "public.[tr]*").keys() == {"public.t", "public.root"}


def test_people_get_a_line_a_column(shop: Database) -> None:
    out = io.StringIO()
    schemas(settings(shop), ["public.idx_t", "public.none_t"], as_json=False, out=out)
    assert out.getvalue().splitlines() == [
        "public.idx_t -> shop.public.idx_t",
        "    a  int4  int",
        '    b  date  {"type": "int", "logicalType": "date"} (key)',
        "    c  int4  int",
        "public.none_t -> shop.public.none_t (no key: one partition)",
        "    a  int4  int",
    ]


def test_a_table_that_is_not_published_is_named_with_the_nearest_one(shop: Database) -> None:
    with pytest.raises(RequestRejected, match=r"no table public\.tt\. Did you mean public\.t\?"):
        as_json(shop, "public.tt")
    shop.execute("DROP PUBLICATION p")
    with pytest.raises(RequestRejected, match="does not exist"):
        as_json(shop)


def registering(database: Database, registry: Registry | None, **avro: Any) -> Settings:
    url = None if registry is None else registry.url
    return settings(database).model_copy(update={"avro": AvroSettings(registry_url=url, **avro)})


def registered(given: Settings, *tables: str) -> list[dict[str, Any]]:
    out = io.StringIO()
    register(given, tables, as_json=True, out=out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_the_schemas_of_all_tables_and_of_logical_messages_are_registered_whatever_the_daemon_may(
    shop: Database,
) -> None:
    pytest.importorskip("confluent_kafka.schema_registry", reason="needs the extra `registry`")
    with Registry() as registry:
        found = registered(registering(shop, registry, register=False))
        assert {each["subject"]: each["id"] for each in found}.keys() == registry.subjects.keys()
        assert {each["table"] for each in found} >= {"public.t", ".messages"}
        versions = {subject: len(each) for subject, each in registry.subjects.items()}
        assert versions["shop.public.t-key"] == 1
        assert versions["shop.public.t-value"] == 2, "of rows and of truncates"
        assert versions["shop.messages-value"] == 1
        assert "shop.public.none_t-key" not in versions
        registry.takes_schemas = False
        assert registered(registering(shop, registry)) == found, "what is there is only looked up"


def test_only_the_named_schemas_are_registered(shop: Database) -> None:
    pytest.importorskip("confluent_kafka.schema_registry", reason="needs the extra `registry`")
    with Registry() as registry:
        given = registering(shop, registry, subject_strategy="record")
        assert [each["subject"] for each in registered(given, ".messages")] == ["messages.Envelope"]
        assert {each["subject"] for each in registered(given, "public.t")} == {"public.t.Key", "public.t.Envelope"}
        with pytest.raises(RequestRejected):
            registered(given, "public.nobody")
        assert len(registry.subjects) == 3


def test_without_a_registry_nothing_can_be_registered(shop: Database) -> None:
    with pytest.raises(SettingsError, match=r"avro\.registry_url is not set"):
        registered(registering(shop, None))
