"""Makes cdcd's settings of the configuration of a Debezium connector, and says what becomes of each option. Pure.

Before: `connector_file` has the options.
After: `cdcd migrate debezium` writes the settings (`config.smallest_file`), and shows the notes.
Source: Debezium 3.7 "Debezium connector for PostgreSQL", "Connector properties".

Every option that is given gets a note, and so do the defaults of the connector that are not cdcd's. No note has the
value of a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from psycopg.conninfo import make_conninfo

from cdcd.config.format_choice import check_format
from cdcd.config.layers import Layers
from cdcd.config.loading import check_sink
from cdcd.config.settings import NAMES, DebeziumSettings, Settings
from cdcd.errors import SettingsError
from cdcd.migration.connector_options import SAME, fate
from cdcd.migration.name_patterns import column_patterns, may_overlap, schema_patterns, table_patterns
from cdcd.migration.transforms import METADATA, Connector, Route, transformed

Kind: TypeAlias = Literal["converted", "needless", "no equal", "secret"]

JSON_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"
AVRO_CONVERTERS: Final = (
    "io.confluent.connect.avro.AvroConverter",
    "io.apicurio.registry.utils.converter.AvroConverter",
)

_SIMPLE_CONVERTER: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
_SUBJECTS: Final = {
    "TopicNameStrategy": "topic",
    "RecordNameStrategy": "record",
    "TopicRecordNameStrategy": "topic-record",
}

_MODES: Final = {
    "decimal.handling.mode": "decimal_handling_mode",
    "time.precision.mode": "time_precision_mode",
    "interval.handling.mode": "interval_handling_mode",
    "binary.handling.mode": "binary_handling_mode",
    "hstore.handling.mode": "hstore_handling_mode",
    "schema.name.adjustment.mode": "schema_name_adjustment_mode",
    "field.name.adjustment.mode": "field_name_adjustment_mode",
}
_FLAGS: Final = {
    "tombstones.on.delete": "debezium.tombstones",
    "include.unknown.datatypes": "debezium.include_unknown_datatypes",
    "slot.failover": "source.failover",
}
_SNAPSHOT_MODES: Final = {
    "initial": "initial",
    "when_needed": "initial",
    "never": "never",
    "no_data": "never",
    "initial_only": "only",
}
_PASSWORDS: Final = ("database.password", "database.sslpassword")
_MASK: Final = re.compile(r"column\.mask\.with\.(\d{1,4})\.chars")
_UNCONVERTIBLE: Final = "its regular expressions are not patterns that cdcd has (cdcd help settings)"


@dataclass(frozen=True)
class Note:
    """What becomes of one option."""

    option: str
    kind: Kind
    text: str
    """Converted: the settings. Else: why."""
    is_given: bool
    """False: it has its default, which is not cdcd's."""


@dataclass(frozen=True)
class Converted:
    """The result."""

    settings: Settings
    notes: tuple[Note, ...]
    routes: tuple[Route, ...]
    """What its routers do, in their order."""


def convert(options: Mapping[str, str], brokers: str | None) -> Converted:
    """The settings that a connector's `options` come to, for the `brokers`, which no option has.

    Raises SettingsError if there can be none: a required option is missing, or the slot is not one of pgoutput.
    """
    return _Conversion(options).run(brokers)


class _Conversion:
    """One conversion: takes option by option."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = options.keys()
        self._left = dict(options)
        self._notes: list[Note] = []
        self._values: list[tuple[str, Any, str]] = []
        self._entries: dict[str, dict[str, Any]] = {}
        """The entries of [[table]], by match."""
        self._routes: list[Route] = []
        """What the routers do."""
        self._delimiter = "."

    def run(self, brokers: str | None) -> Converted:
        """As `convert`."""
        self._of_database()
        self._of_slot()
        self._of_tables()
        self._of_columns()
        self._of_values()
        self._of_encoding()
        self._of_transforms()
        self._of_transactions()
        self._of_snapshot()
        self._of_messages()
        self._of_sink(brokers)
        for name, value in sorted(self._left.items()):
            is_needless, why = fate(name, value)
            self._note(name, "needless" if is_needless else "no equal", why + self._class_of_transforms(name, value))
        noted = {note.option for note in self._notes}
        for name in sorted(self._given - noted):
            self._note(name, "needless", SAME)
        layers = Layers(NAMES)
        layers.add(self._values)
        if self._entries:
            layers.add([("table", [{"match": match, **entry} for match, entry in self._entries.items()], "connector")])
        settings = layers.validated().settings
        check_sink(settings)
        check_format(settings)
        return Converted(settings, tuple(self._notes), tuple(self._routes))

    def _note(self, option: str, kind: Kind, text: str) -> None:
        self._notes.append(Note(option, kind, text, option in self._given))

    def _set(self, option: str, setting: str, value: Any) -> None:
        self._values.append((setting, value, option))
        self._note(option, "converted", setting)

    def _take(self, option: str, default: str = "") -> str:
        return self._left.pop(option, default).strip()

    def _required(self, option: str) -> str:
        value = self._take(option)
        if not value:
            raise SettingsError(
                f"the connector's configuration has no {option}",
                "Name the whole configuration, as GET /connectors/NAME/config answers it",
                code="arguments-invalid",
            )
        return value

    def _of_database(self) -> None:
        parameters = {
            "host": self._required("database.hostname"),
            "port": self._take("database.port", "5432"),
            "dbname": self._required("database.dbname"),
            "user": self._required("database.user"),
        }
        names = ["database.hostname", "database.port", "database.dbname", "database.user"]
        for option in ("sslmode", "sslrootcert", "sslcert", "sslkey"):
            if value := self._take(f"database.{option}"):
                parameters[option] = value.lower() if option == "sslmode" else value
                names.append(f"database.{option}")
        if self._take("database.tcpKeepAlive", "true").lower() == "false":
            parameters["keepalives"] = "0"
            names.append("database.tcpKeepAlive")
        self._values.append(("source.dsn", make_conninfo("", **parameters), "database.*"))
        for name in names:
            self._note(name, "converted", "source.dsn")
        if "sslkey" in parameters:
            self._note("database.sslkey", "no equal", "libpq reads a key in PEM; JDBC has one in DER (openssl pkcs8)")
        for option in _PASSWORDS:
            if self._left.pop(option, None) is not None:
                parameter = option.removeprefix("database.")
                self._note(
                    option,
                    "secret",
                    "put it into ~/.pgpass, or the whole dsn into a secrets file source__dsn"
                    if parameter == "password"
                    else f"put {parameter}=... into the dsn, in a secrets file source__dsn",
                )

    def _of_slot(self) -> None:
        plugin = self._take("plugin.name", "decoderbufs")
        if plugin != "pgoutput":
            raise SettingsError(
                f"plugin.name is {plugin}, and cdcd reads slots of pgoutput only",
                "Let the connector have a new slot with plugin.name = pgoutput first; or start cdcd under another "
                "sink.prefix, with a snapshot",
                code="arguments-invalid",
            )
        self._note("plugin.name", "needless", "cdcd's slots are of pgoutput")
        slot = self._take("slot.name", "debezium")
        self._set("slot.name", "source.slot", slot)
        self._set("publication.name", "source.publication", self._take("publication.name", "dbz_publication"))
        self._set("topic.prefix", "sink.prefix", self._required("topic.prefix"))
        self._delimiter = delimiter = self._take("topic.delimiter", ".")
        if delimiter != ".":
            self._set("topic.delimiter", "sink.topic", delimiter.join(("{prefix}", "{schema}", "{table}")))
        if interval := self._number("status.update.interval.ms", 100, 3_600_000):
            self._set("status.update.interval.ms", "source.status_interval_s", interval / 1000)

    def _of_tables(self) -> None:
        lists = {name: self._take(name) for name in _TABLE_LISTS}
        given = {name: text for name, text in lists.items() if text}
        mode = self._take("publication.autocreate.mode", "all_tables").lower()
        if mode == "all_tables" and given:
            self._note(
                "publication.autocreate.mode",
                "no equal",
                "the connector leaves out tables of the publication, and cdcd does not: make the publication one of "
                "the connector's tables before the connector stops (cdcd help debezium)",
            )
        else:
            self._note("publication.autocreate.mode", "needless", "a publication that exists is used as it is")
        patterns = None
        if table := given.pop("table.include.list", ""):
            patterns = table_patterns(table)
            self._note_list("table.include.list", patterns)
        elif schema := given.pop("schema.include.list", ""):
            patterns = schema_patterns(schema)
            self._note_list("schema.include.list", patterns)
        for name in given:
            self._note(name, "no equal", "the publication says which tables there are: leave these out of it")
        self._values.append(("source.tables", tuple(patterns or ("*.*",)), "table.include.list"))

    def _note_list(self, name: str, patterns: list[str] | None) -> None:
        if patterns is None:
            self._note(name, "no equal", f"{_UNCONVERTIBLE}; the publication says which tables there are")
        else:
            self._note(name, "converted", "source.tables")

    def _of_columns(self) -> None:
        for option, key in (("column.exclude.list", "exclude"), ("column.include.list", "include")):
            for table, column in self._columns(option, self._take(option)):
                self._entries.setdefault(table, {}).setdefault(key, []).append(column)
        for table, column in self._columns("message.key.columns", _key_columns(self._take("message.key.columns"))):
            self._entries.setdefault(table, {}).setdefault("key", []).append(column)
        for option in sorted(self._left):
            if found := _MASK.fullmatch(option):
                for table, column in self._columns(option, self._take(option)):
                    masks = self._entries.setdefault(table, {}).setdefault("mask", {})
                    masks.setdefault(column, {"constant": "*" * int(found[1])})
                self._note(option, "no equal", "a null stays a null; the connector masks it, too")

    def _columns(self, option: str, text: str) -> list[tuple[str, str]]:
        """The columns that an option names, each with a pattern for its tables."""
        pairs = column_patterns(text)
        if pairs is None or may_overlap([*self._entries, *(table for table, _ in pairs)]):
            self._note(option, "no equal", f"{_UNCONVERTIBLE}: write entries of [[table]]")
            return []
        if text:
            self._note(option, "converted", "[[table]]")
        return pairs

    def _of_values(self) -> None:
        for option, name in _MODES.items():
            if value := self._take(option).lower():
                known = get_args(DebeziumSettings.model_fields[name].annotation)
                if value in known:
                    self._set(option, f"debezium.{name}", value)
                else:
                    self._note(option, "no equal", f"cdcd's debezium.{name} is one of {', '.join(known)}")
        for option, setting in _FLAGS.items():
            if value := self._take(option).lower():
                self._set(option, setting, value == "true")
        placeholder = self._left.get("unavailable.value.placeholder", "")
        if placeholder.startswith("hex:"):
            self._note("unavailable.value.placeholder", "no equal", "a placeholder of cdcd is a text, not bytes")
            self._take("unavailable.value.placeholder")
        elif placeholder:
            self._set(
                "unavailable.value.placeholder",
                "debezium.unavailable_value_placeholder",
                self._take("unavailable.value.placeholder"),
            )
        skipped = {each.strip().lower() for each in self._take("skipped.operations", "t").split(",")}
        self._set("skipped.operations", "debezium.truncates", "t" not in skipped)
        if operations := sorted(skipped & {"c", "u", "d"}):
            self._note(
                "skipped.operations",
                "no equal",
                f"cdcd leaves out no {', '.join(operations)}: the publication can (ALTER PUBLICATION ... SET (publish "
                "= ...))",
            )
        if self._take("extended.headers.enabled", "true").lower() != "false":
            self._note(
                "extended.headers.enabled",
                "no equal",
                "events have no headers __debezium.context.*, which name the connector's task and run",
            )
        else:
            self._note("extended.headers.enabled", "needless", "events have no headers __debezium.context.*")

    def _of_encoding(self) -> None:
        found = {part: self._converter(part) for part in ("key", "value")}
        if found["key"] != found["value"]:
            self._note("key.converter", "no equal", "key and value of an event have one encoding, sink.encoding")
        encoding = found["value"]
        self._values += [("sink.format", "debezium", "connector"), ("sink.encoding", encoding, "value.converter")]
        option, keeps = "value.converter.replace.null.with.default", "false"
        if encoding == "avro":
            option, keeps = "value.converter.ignore.default.for.nullables", "true"
            self._of_registry()
        fills = self._take(option).lower() != keeps
        self._set(option, "debezium.replace_null_with_default", fills)
        for part in ("key", "value"):
            if self._take(f"{part}.converter.decimal.format", "BASE64").upper() != "BASE64":
                self._note(f"{part}.converter.decimal.format", "no equal", "decimals are in base64")
            for name in ("schemas.enable", "schemas.cache.size", "replace.null.with.default"):
                self._take(f"{part}.converter.{name}")
        self._of_header("" if encoding == "avro" else JSON_CONVERTER)

    def _of_header(self, wanted: str) -> None:
        """The converter of headers: `wanted` is the one whose headers cdcd writes."""
        name = self._take("header.converter").replace(_SIMPLE_CONVERTER, "")
        self._take("header.converter.schemas.enable")
        if name == wanted:
            self._note("header.converter", "needless", "the headers of a changed key are the same")
            return
        how = f"JSON, as {JSON_CONVERTER} writes them" if wanted else "text, as Connect writes them by default"
        self._note(
            "header.converter", "no equal", f"the headers __debezium.newkey and .oldkey of a changed key are {how}"
        )

    def _converter(self, part: str) -> str:
        """The encoding of keys or values."""
        option = f"{part}.converter"
        name = self._take(option)
        if name in AVRO_CONVERTERS:
            self._note(option, "converted", "sink.encoding")
            return "avro"
        with_schemas = self._take(f"{option}.schemas.enable", "true").lower() == "true"
        encoding = "json-schema" if with_schemas else "json"
        if name == JSON_CONVERTER:
            self._note(option, "converted", "sink.encoding")
            self._note(f"{option}.schemas.enable", "converted", "sink.encoding")
        elif name:
            self._note(option, "no equal", f"cdcd writes these events as {JSON_CONVERTER} does, and not as {name}")
        else:
            self._note(
                option,
                "converted",
                f"sink.encoding; the worker's properties say whether it is {JSON_CONVERTER} with schemas.enable = true",
            )
        return encoding

    def _of_registry(self) -> None:
        """The schema registry of an Avro converter. Apicurio's own API has Confluent's next to it."""
        option = "value.converter.schema.registry.url"
        url = self._take(option)
        if not url:
            option = "value.converter.apicurio.registry.url"
            url = re.sub(r"/apis/registry/v\d+/?$", "/apis/ccompat/v7", self._take(option))
        if not url:
            raise SettingsError(
                "no option of the connector names the schema registry of its Avro converter",
                "Add value.converter.schema.registry.url to the file, as the worker's properties have it",
                code="arguments-invalid",
            )
        if "@" in url:
            self._note(option, "secret", "put the URL with its password into a secrets file avro__registry_url")
            url = re.sub(r"//[^/@]*@", "//", url)
        self._set(option, "avro.registry_url", url)
        for part in ("key", "value"):
            for name in ("schema.registry.url", "apicurio.registry.url"):
                self._take(f"{part}.converter.{name}")
            if self._take(f"{part}.converter.auto.register.schemas").lower() == "false":
                self._set(f"{part}.converter.auto.register.schemas", "avro.register", False)
            strategy = self._take(f"{part}.converter.{part}.subject.name.strategy").rpartition(".")[2]
            if strategy in _SUBJECTS:
                self._set(
                    f"{part}.converter.{part}.subject.name.strategy", "avro.subject_strategy", _SUBJECTS[strategy]
                )
            elif strategy:
                self._note(f"{part}.converter.{part}.subject.name.strategy", "no equal", "it is a class of Java")
            for name in ("basic.auth.user.info", "schema.registry.basic.auth.user.info", "bearer.auth.token"):
                if self._left.pop(f"{part}.converter.{name}", None) is not None:
                    secret = name.removeprefix("schema.registry.")
                    self._note(f"{part}.converter.{name}", "secret", f"put it into avro__registry_config__{secret}")

    def _of_transforms(self) -> None:
        names = [each.strip() for each in self._left.get("transforms", "").split(",") if each.strip()]
        done = [self._of_transform(f"transforms.{name}.") for name in names]
        if names and all(done):
            self._take("transforms")
            self._note("transforms", "converted", "what each of them comes to")

    def _of_transform(self, beginning: str) -> bool:
        """Take one transform; return whether settings stand for it. `beginning`: that of its options."""
        values = {setting: value for setting, value, _ in self._values}
        template = str(values.get("sink.topic", "{prefix}.{schema}.{table}"))
        prefix = str(values["sink.prefix"])
        connector = Connector(
            prefix,
            {each: str(self._entries.get(each, {}).get("topic", template)) for each in values["source.tables"]},
            values["sink.encoding"] != "json",
            bool(values.get("debezium.tombstones", True)),
            values["sink.format"] == "row",
            values.get("debezium.schema_name_adjustment_mode", "none"),
            self._other_topics(prefix),
            tuple(self._routes),
        )
        options = {
            name.removeprefix(beginning): text for name, text in self._left.items() if name.startswith(beginning)
        }
        found = transformed(options, connector)
        if found is None:
            return False
        if found.topics and may_overlap([*self._entries, *found.topics]):
            self._take(f"{beginning}type")
            self._note(f"{beginning}type", "no equal", "other entries of [[table]] may be for the same tables")
            return False
        for setting, value in found.settings.items():
            self._values.append((setting, value, f"{beginning}type"))
        for table, topic in found.topics.items():
            self._entries.setdefault(table, {})["topic"] = topic
        if found.route is not None:
            self._routes.append(found.route)
        for option, setting in found.converted.items():
            if self._left.pop(beginning + option, None) is not None and option not in found.no_equal:
                self._note(beginning + option, "converted", setting)
        for option, why in found.needless.items():
            if self._left.pop(beginning + option, None) is not None:
                self._note(beginning + option, "needless", why)
        for option, why in found.no_equal.items():
            self._take(beginning + option)
            self._note(beginning + option, "no equal", why)
        return found.is_converted

    def _other_topics(self, prefix: str) -> dict[str, str]:
        """The topics to which the connector publishes events that are of no table, by what these are."""
        option, topics = self._left.get, {}
        if option("message.prefix.exclude.list", "").strip() != ".*":
            topics["logical messages"] = f"{prefix}.message"
        if option("provide.transaction.metadata", "").strip().lower() == "true":
            topics[METADATA] = self._delimiter.join((prefix, option("topic.transaction", "transaction").strip()))
        if option("heartbeat.interval.ms", "0").strip() not in ("", "0"):
            heartbeats = option("topic.heartbeat.prefix", "") or option("heartbeat.topics.prefix", "")
            topics["heartbeats"] = f"{heartbeats.strip() or '__debezium-heartbeat'}.{prefix}"
        return topics

    def _of_transactions(self) -> None:
        option = "provide.transaction.metadata"
        if self._take(option).lower() != "true":
            return
        settings = {setting: value for setting, value, _ in self._values}
        if settings.get("sink.format") == "row":
            self._note(option, "no equal", "no flat row has the numbers of a transaction")
            return
        self._set(option, "debezium.provide_transaction_metadata", True)
        if self._left.get("topic.transaction", "transaction") != "transaction" or "sink.topic" in settings:
            self._take("topic.transaction")
            self._note("topic.transaction", "no equal", "the topic is {prefix}.transaction")

    def _of_snapshot(self) -> None:
        mode = self._take("snapshot.mode", "initial").lower()
        if mode in _SNAPSHOT_MODES:
            self._set("snapshot.mode", "snapshot.mode", _SNAPSHOT_MODES[mode])
        else:
            self._note("snapshot.mode", "no equal", 'cdcd copies a table once ("initial"); cdcd snapshot copies again')
        if workers := self._number("snapshot.max.threads", 1, 64):
            self._set("snapshot.max.threads", "snapshot.workers", workers)

    def _of_messages(self) -> None:
        exclude, include = self._take("message.prefix.exclude.list"), self._take("message.prefix.include.list")
        if exclude == ".*":
            self._set("message.prefix.exclude.list", "source.messages", False)
            return
        for option, text in (("message.prefix.exclude.list", exclude), ("message.prefix.include.list", include)):
            if text:
                self._note(option, "no equal", "cdcd publishes all logical messages, or none (source.messages)")

    def _of_sink(self, brokers: str | None) -> None:
        found = self._take("producer.override.bootstrap.servers") or brokers
        if not found:
            raise SettingsError(
                "no option of the connector names Kafka's brokers",
                "Name them with --brokers, as bootstrap.servers in the properties of Connect's worker does",
                code="arguments-invalid",
            )
        self._values.append(("sink.bootstrap_servers", found, "--brokers"))
        self._set_number("max.queue.size.in.bytes", "sink.queue_bytes_max", 1 << 20, 10 << 30)
        self._set_number("topic.creation.default.partitions", "sink.partitions", 1, 10_000)
        self._set_number("topic.creation.default.replication.factor", "sink.replication_factor", -1, 100)
        config = {}
        for option in sorted(self._left):
            name = option.removeprefix("topic.creation.default.")
            if name != option and name not in ("include", "exclude"):
                config[name] = self._take(option)
                self._note(option, "converted", "sink.topic_config")
        if config:
            self._values.append(("sink.topic_config", config, "topic.creation.default.*"))
        properties = {}
        for name in ("security.protocol", "sasl.mechanism", "compression.type"):
            if value := self._take(f"producer.override.{name}"):
                properties[name] = value
                self._note(f"producer.override.{name}", "converted", "sink.librdkafka")
        if properties:
            self._values.append(("sink.librdkafka", properties, "producer.override.*"))
        if self._left.pop("producer.override.sasl.jaas.config", None) is not None:
            self._note(
                "producer.override.sasl.jaas.config",
                "secret",
                "set sasl.username under sink.librdkafka, and put the password into a secrets file "
                "sink__librdkafka__sasl.password",
            )

    def _set_number(self, option: str, setting: str, least: int, most: int) -> None:
        if number := self._number(option, least, most):
            self._set(option, setting, number)

    def _number(self, option: str, least: int, most: int) -> int | None:
        """The number that an option has; None if it is not given, or 0, or not one that cdcd's setting may have."""
        value = self._take(option)
        if value in ("", "0"):
            return None
        if re.fullmatch(r"-?\d{1,18}", value) and least <= int(value) <= most:
            return int(value)
        self._note(option, "no equal", f"the setting is a number from {least:,} to {most:,}")
        return None

    @staticmethod
    def _class_of_transforms(name: str, value: str) -> str:
        return f" ({value.strip()})" if re.fullmatch(r"transforms\.[^.]+\.type", name) else ""


def _key_columns(text: str) -> str:
    """`tables:column,column;tables:column` as a list of columns with their tables; what is not so written stays."""
    parts = [each.strip().rpartition(":") for each in text.split(";") if each.strip()]
    if not all(tables and columns for tables, _, columns in parts):
        return text
    return ",".join(f"{tables}.{column.strip()}" for tables, _, columns in parts for column in columns.split(","))


_TABLE_LISTS: Final = ("table.include.list", "schema.include.list", "table.exclude.list", "schema.exclude.list")
