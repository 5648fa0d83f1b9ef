"""The schemas that wrote a table's records, each with the first bytes of its records.

Before: the daemon has put the schemas on the schemas topic, or into a registry. After: `decoding` decodes by them.
Source: Avro specification, "Single-object encoding"; Confluent, "Schema Registry: Wire format".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from cdcd.avro.avro_names import namespace
from cdcd.avro.schema_bounds import TEXT_BYTES_MAX, checked_schema, published_schema
from cdcd.avro.single_object import header
from cdcd.errors import DecodeError, GapError, RequestRejected, without_password
from cdcd.progress.records import kafka_topic
from cdcd.schema_registry_client import registry_client
from cdcd.spark.reading.kafka import EARLIEST, KafkaReader
from cdcd.spark.reading.types import Avro, resolved

_KEY_BYTES: Final = 16
CONFLUENT_HEADER_BYTES: Final = 5
"""Bytes before the Avro payload in Confluent's wire format: a zero byte, and the schema's id."""


@dataclass(frozen=True)
class Writer:
    """One schema of events or of keys."""

    header: bytes
    """The first bytes of its records."""
    text: str = field(repr=False)
    """Its JSON, as published."""
    schema: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def columns(self) -> list[dict[str, Any]]:
        """The row's columns in an event's schema: each one's name, and its type in the form of `types`."""
        return [{"name": each["name"], "type": each["type"]} for each in self._row()["fields"]]

    @property
    def names(self) -> list[str]:
        """The names of the row's columns in an event's schema."""
        return [each["name"] for each in self._row()["fields"]]

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key's columns in a key's schema."""
        return tuple(each["name"] for each in self.schema["fields"] if "pg_type" in each)

    def described(self) -> list[dict[str, Any]]:
        """The row's columns as an event's schema has them: with pg_type, pg_typmod and pg_name."""
        [before] = [each for each in self.schema["fields"] if each["name"] == "before"]
        return list(before["type"][1]["fields"])

    @property
    def masked(self) -> frozenset[str]:
        """The names of the row's columns whose values are not those of the table."""
        return frozenset(each["name"] for each in self.described() if each.get("pg_masked"))

    @property
    def leaves_out(self) -> bool:
        """Whether the table has columns that the row lacks."""
        [before] = [each for each in self.schema["fields"] if each["name"] == "before"]
        return bool(before["type"][1].get("pg_left_out"))

    def renamed(self, names: Mapping[str, str]) -> str:
        """The schema's JSON with other names for the row's columns.

        It reads the same records, because names are not on the wire.
        """
        schema = json.loads(self.text)
        [before] = [each for each in schema["fields"] if each["name"] == "before"]
        for column in before["type"][1]["fields"]:
            column["name"] = names[column["name"]]
        return json.dumps(schema)

    def _row(self) -> dict[str, Any]:
        [before] = [each for each in self.schema["fields"] if each["name"] == "before"]
        found: Avro = resolved(before["type"], {})
        assert isinstance(found, dict)
        return found


def writer(start: bytes, text: str) -> Writer:
    """A writer of its schema's JSON text; `start`: the first bytes of its records."""
    return Writer(start, text, json.loads(text))


def checked_writer(start: bytes, text: str) -> Writer:
    """The same for a text from outside. Raises DecodeError if it is not the schema of keys or events."""
    schema = checked_schema(text)
    if schema["name"] == "Envelope":
        rows = [each["type"] for each in schema["fields"] if each["name"] == "before"]
        columns = rows[0][1].get("fields") if len(rows) == 1 and _is_nullable_record(rows[0]) else None
    else:
        columns = [each for each in schema["fields"] if "pg_type" in each]
    if columns is None or not isinstance(schema.get("namespace"), str):
        raise DecodeError(
            f"the schema {start.hex()} is not the schema of a table's keys or events", code="event-foreign"
        )
    for column in columns:
        if not (isinstance(column.get("pg_type"), str) and isinstance(column.get("pg_name", ""), str)):
            raise DecodeError(f"the schema {start.hex()} does not name the types of its columns", code="event-foreign")
    return Writer(start, text, schema)


def _is_nullable_record(avro: Any) -> bool:
    is_pair = isinstance(avro, list) and len(avro) == 2
    return is_pair and isinstance(avro[1], dict) and avro[1].get("type") == "record"


class Writers:
    """Finds the schemas of tables. Asks Kafka or the registry only for schemas that it does not know."""

    hint = ""
    """Tells a user what to do if the schema of a record is nowhere to be found."""

    def of(self, schema: str, table: str, topic: str, subject: str) -> list[Writer]:
        """All schemas of a table's events (`subject` "value") or keys ("key") that exist now."""
        raise NotImplementedError

    def known(self, schema: str, table: str, topic: str, subject: str) -> list[Writer]:
        """The schemas that an earlier call has found; makes no request."""
        raise NotImplementedError

    def of_others(self, schema: str, table: str) -> list[bytes]:
        """The first bytes of the events of all other tables, as far as `of` has found them."""
        raise NotImplementedError

    def find(self, headers: Sequence[bytes], schema: str, table: str, topic: str, subject: str) -> list[Writer]:
        """The schemas of records that start with these bytes; raises GapError if one of them is nowhere to be found."""
        known = {each.header: each for each in self.known(schema, table, topic, subject)}
        if not known.keys() >= set(headers):
            known = {each.header: each for each in self.of(schema, table, topic, subject)}
        missing = [start.hex() for start in headers if start not in known]
        if missing:
            raise GapError(
                f"{topic}: records begin with {', '.join(missing)}, which names no known schema of {schema}.{table}",
                self.hint,
                code="schema-unknown",
            )
        return [each for start, each in known.items() if start in headers]  # in their order: columns keep theirs


class TopicWriters(Writers):
    """Schemas on the topic `{prefix}.schemas`."""

    hint = "Did another program write it? Check the prefix, and that the schemas topic was never deleted"

    def __init__(self, kafka: KafkaReader, topic: str) -> None:
        self._kafka = kafka
        self._topic = topic
        self._next = EARLIEST
        self._end: int | None = None
        """The topic's, before it was read; None: nobody has asked."""
        self._known: dict[str, Writer] = {}

    def of(self, schema: str, table: str, topic: str, subject: str) -> list[Writer]:
        self._refresh()
        return self.known(schema, table, topic, subject)

    def known(self, schema: str, table: str, topic: str, subject: str) -> list[Writer]:
        wanted = (namespace(schema, table), "Key" if subject == "key" else "Envelope")
        return [each for each in self._known.values() if (each.schema["namespace"], each.schema["name"]) == wanted]

    def of_others(self, schema: str, table: str) -> list[bytes]:
        own = namespace(schema, table)
        values = (each for each in self._known.values() if each.schema["name"] == "Envelope")
        return [each.header for each in values if each.schema["namespace"] != own]

    def _refresh(self) -> None:
        end = self._kafka.end(self._topic)
        if end is not None and end == self._end:
            return
        since = EARLIEST if end is not None and end < self._next else self._next  # it may have been made again
        with self._kafka.errors(f"reading {self._topic}"):
            records = self._kafka.whole(self._topic, since).select("partition", "offset", "key", "value")
            schemas = records.where(f"length(key) = {_KEY_BYTES} AND length(value) <= {TEXT_BYTES_MAX}")
            rows = sorted(schemas.collect(), key=lambda row: int(row["offset"]))  # Spark would look through them twice
        for row in rows:
            text = published_schema(bytes(row["key"]), bytes(row["value"]))
            if text is not None:
                self._note(bytes(row["key"]).decode(), text)
        if rows and all(row["partition"] == 0 for row in rows):
            self._next = rows[-1]["offset"] + 1
        self._end = end

    def _note(self, digest: str, text: str) -> None:
        """Note a schema. One that cannot be used is passed over: a record that names it is refused by name."""
        try:
            known = checked_writer(header(bytes.fromhex(digest)), text)
        except DecodeError:
            return
        self._known.setdefault(digest, known)


class RegistryWriters(Writers):
    """Schemas in a Confluent-compatible registry, under `{topic}-key` and `{topic}-value`."""

    hint = "Check that the daemon uses this registry, and that no version of the subject was deleted"

    def __init__(self, client: Any, url: str) -> None:
        """`client`: a SchemaRegistryClient. `url`: for messages, without a password."""
        self._client = client
        self._url = url
        self._known: dict[tuple[str, int], Writer] = {}
        """By subject and version."""

    @classmethod
    def connect(cls, config: Mapping[str, Any]) -> Self:
        """Make the client; `config`, and the errors that this raises, are those of `registry_client`."""
        return cls(registry_client(config), without_password(str(config["url"])))

    def of(self, schema: str, table: str, topic: str, subject: str) -> list[Writer]:
        if kafka_topic(topic) != topic:
            raise RequestRejected(
                f"{schema}.{table} shares the topic {kafka_topic(topic)} with other tables, and Spark cannot ask a "
                "schema registry for the schemas of one of them",
                "Read the topic by another program; or give the table a topic of its own, by topic in [[table]]",
                code="format-unsupported",
            )
        name = f"{topic}-{subject}"
        try:
            versions = self._client.get_versions(name)
            for version in versions:
                if (name, version) not in self._known:
                    found = self._client.get_version(name, version)
                    start = b"\x00" + int(found.schema_id).to_bytes(CONFLUENT_HEADER_BYTES - 1, "big")
                    self._known[name, version] = checked_writer(start, str(found.schema.schema_str))
        except DecodeError:
            raise
        except Exception as error:  # the client raises every error of its HTTP library
            if getattr(error, "http_status_code", None) == 404:
                return []
            raise RequestRejected(
                f"the schema registry at {self._url} does not give {name}: {without_password(str(error))}",
                "Check its URL",
                code="schema-unknown",
            ) from error
        return self.known(schema, table, topic, subject)

    def of_others(self, schema: str, table: str) -> list[bytes]:
        return []  # `of` refuses topics that tables share

    def known(self, schema: str, table: str, topic: str, subject: str) -> list[Writer]:
        return [each for (name, _), each in self._known.items() if name == f"{topic}-{subject}"]
