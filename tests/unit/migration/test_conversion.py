from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from cdcd.config.smallest_file import smallest_file
from cdcd.errors import SettingsError
from cdcd.migration.connector_options import FAMILIES, HARMLESS, NEEDLESS, NO_EQUAL
from cdcd.migration.conversion import JSON_CONVERTER, Converted, convert

OPTIONS = Path(__file__).with_name("options.txt").read_text().split()
"""Those that Debezium 3.7's connector itself names; acceptance/test_migrate.py compares."""

DOCUMENTED = [
    "column.mask.with.10.chars", "column.mask.hash.SHA-256.with.salt.abc", "column.mask.hash.v2.SHA-256.with.salt.abc",
    "column.truncate.to.20.chars", "read.only", "topic.delimiter", "topic.cache.size", "topic.heartbeat.prefix",
    "topic.transaction", "money.fraction.digits", "key.converter.schemas.enable", "value.converter.schemas.enable",
    "transforms.a.type", "predicates.a.type", "driver.loginTimeout", "signal.kafka.topic", "signal.consumer.x",
    "topic.creation.default.partitions", "topic.creation.default.cleanup.policy", "topic.creation.a.include",
    "producer.override.linger.ms", "snapshot.select.statement.overrides.public.t",
]  # fmt: skip
"""Of its documentation, and of Kafka Connect's: names that hold a value."""

LEAST = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "database.hostname": "db",
    "database.user": "dbz",
    "database.dbname": "shop",
    "topic.prefix": "shop",
    "plugin.name": "pgoutput",
}


def converted(**options: str) -> Converted:
    return convert(LEAST | {name.replace("__", "."): value for name, value in options.items()}, "kafka:9092")


def kinds(result: Converted, option: str) -> set[str]:
    return {note.kind for note in result.notes if note.option == option}


def toml(result: Converted) -> Any:
    return tomllib.loads(smallest_file(result.settings))


def test_the_least_configuration_has_the_defaults_of_the_connector() -> None:
    assert toml(converted()) == {
        "source": {
            "dsn": "host=db port=5432 dbname=shop user=dbz",
            "slot": "debezium",
            "publication": "dbz_publication",
            "tables": ["*.*"],
        },
        "debezium": {"replace_null_with_default": True},
        "sink": {
            "bootstrap_servers": "kafka:9092", "prefix": "shop", "format": "debezium", "encoding": "json-schema",
        },
    }  # fmt: skip


@pytest.mark.parametrize("option", [*OPTIONS, *DOCUMENTED])
def test_every_option_of_debezium_is_converted_or_named_with_a_reason(option: str) -> None:
    value = {"connector.class": LEAST["connector.class"], "plugin.name": "pgoutput"}.get(option, "zzz")
    result = convert(LEAST | {option: value}, "kafka:9092")
    named = [note for note in result.notes if note.option == option]
    assert named
    assert all(note.is_given and note.text and "does not know it" not in note.text for note in named)


def test_an_option_that_nobody_knows_is_named() -> None:
    [note] = [note for note in converted(foo="bar").notes if note.option == "foo"]
    assert (note.kind, "does not know it" in note.text) == ("no equal", True)


def test_the_lists_of_options_have_no_name_twice_and_none_that_is_converted() -> None:
    assert not NEEDLESS.keys() & NO_EQUAL.keys()
    assert HARMLESS.keys() <= NO_EQUAL.keys() | {"openlineage.integration.enabled"}
    taken = {
        note.option for note in convert(dict.fromkeys(OPTIONS, "1") | LEAST, "k:1").notes if note.kind == "converted"
    }
    assert not taken & (NEEDLESS.keys() | NO_EQUAL.keys())
    assert all(beginning.endswith(".") for beginning in FAMILIES)


def test_metadata_of_transactions_is_converted_for_events_and_named_for_flat_rows() -> None:
    option = {"provide__transaction__metadata": "true"}
    of_events = converted(**option)
    assert toml(of_events)["debezium"]["provide_transaction_metadata"] is True
    assert kinds(of_events, "provide.transaction.metadata") == {"converted"}
    assert kinds(of_events, "topic.transaction") == set()
    assert kinds(converted(**option, topic__transaction="tx"), "topic.transaction") == {"no equal"}
    assert kinds(converted(**option, topic__delimiter="_"), "topic.transaction") == {"no equal"}
    unwrap = {"transforms": "u", "transforms__u__type": "io.debezium.transforms.ExtractNewRecordState"}
    rows = converted(**option, **unwrap)
    assert (rows.settings.sink.format, kinds(rows, "provide.transaction.metadata")) == ("row", {"no equal"})
    assert kinds(converted(provide__transaction__metadata="false"), "provide.transaction.metadata") == {"needless"}


def test_passwords_are_named_and_in_no_text() -> None:
    options = {
        "database.password": "hidden", "database.sslpassword": "hidden",
        "producer.override.sasl.jaas.config": "x required password='hidden';",
        "value.converter.basic.auth.user.info": "user:hidden", "foo.secret": "hidden",
        "column.mask.hash.SHA-256.with.salt.abc": "public.t.c", "signal.consumer.sasl.jaas.config": "hidden",
    }  # fmt: skip
    result = convert(LEAST | options, "kafka:9092")
    assert kinds(result, "database.password") == kinds(result, "database.sslpassword") == {"secret"}
    assert kinds(result, "producer.override.sasl.jaas.config") == {"secret"}
    assert "hidden" not in smallest_file(result.settings) + repr(result)


def test_a_connection_with_certificates_is_a_dsn() -> None:
    result = converted(
        database__port="5433", database__sslmode="verify_full".replace("_", "-"), database__sslrootcert="/a b/root.crt",
        database__tcpKeepAlive="false",
    )  # fmt: skip
    assert toml(result)["source"]["dsn"] == (
        "host=db port=5433 dbname=shop user=dbz sslmode=verify-full sslrootcert='/a b/root.crt' keepalives=0"
    )


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"decimal.handling.mode": "DOUBLE"}, {"decimal_handling_mode": "double"}),
        ({"time.precision.mode": "connect"}, {"time_precision_mode": "connect"}),
        ({"interval.handling.mode": "string"}, {"interval_handling_mode": "string"}),
        ({"binary.handling.mode": "base64-url-safe"}, {"binary_handling_mode": "base64-url-safe"}),
        ({"hstore.handling.mode": "map"}, {"hstore_handling_mode": "map"}),
        ({"tombstones.on.delete": "false"}, {"tombstones": False}),
        ({"include.unknown.datatypes": "true"}, {"include_unknown_datatypes": True}),
        ({"skipped.operations": "none"}, {"truncates": True}),
        ({"skipped.operations": "u"}, {"truncates": True}),
        ({"unavailable.value.placeholder": "?"}, {"unavailable_value_placeholder": "?"}),
        ({"value.converter.replace.null.with.default": "false"}, {"replace_null_with_default": False}),
    ],
)
def test_modes_become_those_of_the_section_debezium(options: dict[str, str], wanted: dict[str, Any]) -> None:
    expected = {"replace_null_with_default": True} | wanted
    found = toml(convert(LEAST | options, "kafka:9092")).get("debezium", {})
    assert found == {name: value for name, value in expected.items() if value is not False or name == "tombstones"}


def test_a_mode_that_cdcd_lacks_is_named() -> None:
    assert kinds(converted(time__precision__mode="structured"), "time.precision.mode") == {"no equal"}


@pytest.mark.parametrize(
    ("key", "value", "encoding", "named"),
    [
        ("true", "true", "json-schema", False),
        ("false", "false", "json", False),
        ("true", "false", "json", True),
    ],
)
def test_the_encoding_is_that_of_the_values(key: str, value: str, encoding: str, named: bool) -> None:
    options = {
        "key.converter": JSON_CONVERTER, "key.converter.schemas.enable": key, "value.converter": JSON_CONVERTER,
        "value.converter.schemas.enable": value,
    }  # fmt: skip
    result = convert(LEAST | options, "kafka:9092")
    assert result.settings.sink.encoding == encoding
    assert ("no equal" in kinds(result, "key.converter")) == named


def test_another_converter_has_no_equal() -> None:
    result = converted(value__converter="org.apache.kafka.connect.storage.StringConverter")
    assert kinds(result, "value.converter") == {"no equal"}


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [("initial", "initial"), ("when_needed", "initial"), ("no_data", "never"), ("initial_only", "only")],
)
def test_the_snapshot_mode_is_the_nearest(mode: str, wanted: str) -> None:
    assert converted(snapshot__mode=mode).settings.snapshot.mode == wanted


def test_a_snapshot_at_each_start_has_no_equal() -> None:
    result = converted(snapshot__mode="always")
    assert kinds(result, "snapshot.mode") == {"no equal"}


def test_columns_become_entries_of_tables() -> None:
    result = convert(
        LEAST
        | {
            "column.exclude.list": r"public\.users\.(ssn|card)",
            "column.mask.with.4.chars": "public.users.email",
            "column.mask.with.0.chars": "public.users.name,public.orders.note",
        },
        "kafka:9092",
    )
    assert toml(result)["table"] == [
        {
            "match": "public.users",
            "exclude": ["ssn", "card"],
            "mask": {"name": {"constant": ""}, "email": {"constant": "****"}},
        },
        {"match": "public.orders", "mask": {"note": {"constant": ""}}},
    ]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("public.orders:tenant,id; public.lines:id ;", {"public.orders": ("tenant", "id"), "public.lines": ("id",)}),
        (r"(.*).orders:id", {"*.orders": ("id",)}),
        ("public.orders", {}),
        ("public.orders:(id|nr)_.*", {}),
    ],
)
def test_keys_become_entries_of_tables_or_have_no_equal(text: str, keys: dict[str, tuple[str, ...]]) -> None:
    result = convert(LEAST | {"message.key.columns": text}, "kafka:9092")
    assert {each.match: each.key for each in result.settings.table} == keys
    assert kinds(result, "message.key.columns") == ({"converted"} if keys else {"no equal"})


def test_columns_of_tables_that_may_be_the_same_are_named_instead() -> None:
    result = converted(column__exclude__list="public.users.ssn,.*.users.email")
    assert kinds(result, "column.exclude.list") == {"no equal"}
    assert "table" not in toml(result)


def test_tables_that_the_connector_leaves_out_of_a_publication_are_named() -> None:
    filtered = {"table.include.list": "public.orders"}
    result = convert(LEAST | filtered, "kafka:9092")
    assert result.settings.source.tables == ("public.orders",)
    assert kinds(result, "publication.autocreate.mode") == {"no equal"}
    result = convert(LEAST | filtered | {"publication.autocreate.mode": "filtered"}, "kafka:9092")
    assert kinds(result, "publication.autocreate.mode") == {"needless"}
    result = convert(LEAST | {"table.exclude.list": "public.secret"}, "kafka:9092")
    assert kinds(result, "table.exclude.list") == {"no equal"}


def test_names_of_topics_and_their_settings_are_taken() -> None:
    result = convert(
        LEAST
        | {
            "topic.delimiter": "-",
            "topic.creation.default.partitions": "6",
            "topic.creation.default.replication.factor": "-1",
            "topic.creation.default.cleanup.policy": "compact",
            "producer.override.security.protocol": "SASL_SSL",
        },
        "kafka:9092",
    )
    sink = result.settings.sink
    assert (sink.topic, sink.partitions, sink.replication_factor) == ("{prefix}-{schema}-{table}", 6, -1)
    assert sink.topic_config == {"cleanup.policy": "compact"}
    assert sink.librdkafka == {"security.protocol": "SASL_SSL"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"plugin.name": "decoderbufs"}, "plugin.name is decoderbufs"),
        ({"topic.prefix": ""}, "has no topic.prefix"),
        ({"slot.name": "Upper"}, "source.slot"),
        ({"topic.prefix": "a b"}, "sink.prefix"),
    ],
)
def test_what_cannot_be_converted_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        convert(LEAST | options, "kafka:9092")


def test_the_brokers_have_to_be_named() -> None:
    with pytest.raises(SettingsError, match="no option of the connector names Kafka's brokers"):
        convert(LEAST, None)
    options = {"producer.override.bootstrap.servers": "other:9092"}
    assert convert(LEAST | options, None).settings.sink.bootstrap_servers == "other:9092"


@pytest.mark.parametrize(
    ("converter", "url"),
    [
        ("io.confluent.connect.avro.AvroConverter", {"schema.registry.url": "http://registry:8081"}),
        (
            "io.apicurio.registry.utils.converter.AvroConverter",
            {"apicurio.registry.url": "http://registry:8081/apis/registry/v2"},
        ),
    ],
)
def test_avro_takes_the_registry_of_its_converter(converter: str, url: dict[str, str]) -> None:
    options = {"key.converter": converter, "value.converter": converter, "schema.name.adjustment.mode": "avro"}
    for part in ("key", "value"):
        options |= {f"{part}.converter.{name}": value for name, value in url.items()}
        options[f"{part}.converter.basic.auth.user.info"] = "user:hidden"
        options[f"{part}.converter.auto.register.schemas"] = "false"
        options[f"{part}.converter.{part}.subject.name.strategy"] = "io.confluent.x.RecordNameStrategy"
    result = convert(LEAST | options, "kafka:9092")
    avro = result.settings.avro
    assert result.settings.sink.encoding == "avro"
    assert avro.registry_url == ("http://registry:8081" + ("/apis/ccompat/v7" if "apicurio" in converter else ""))
    assert (avro.register, avro.subject_strategy) == (False, "record")
    assert result.settings.debezium.schema_name_adjustment_mode == "avro"
    assert kinds(result, "value.converter.basic.auth.user.info") == {"secret"}
    assert "hidden" not in smallest_file(result.settings) + repr(result)
    assert not [note for note in result.notes if note.kind == "no equal" and note.option != "extended.headers.enabled"]


def test_a_registry_has_to_be_named_and_its_password_is_in_no_text() -> None:
    converters = {"key.converter": "io.confluent.connect.avro.AvroConverter"}
    converters["value.converter"] = converters["key.converter"]
    with pytest.raises(SettingsError, match="no option of the connector names the schema registry"):
        convert(LEAST | converters, "kafka:9092")
    url = {"value.converter.schema.registry.url": "https://user:hidden@registry:8081"}
    result = convert(LEAST | converters | url, "kafka:9092")
    assert result.settings.avro.registry_url == "https://registry:8081"
    assert "secret" in kinds(result, "value.converter.schema.registry.url")
    assert "hidden" not in repr(result)
