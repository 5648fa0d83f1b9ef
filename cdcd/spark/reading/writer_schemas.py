"""The schemas that wrote a table's records, each with the bytes that its records start with.

Before: the daemon has put them on the schemas topic, or into a registry. After: `decoding` decodes by them.
Source: Avro specification, "Single-object encoding"; Confluent, "Schema Registry: Wire format".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cdcd.avro.avro_names import namespace
from cdcd.avro.single_object import header
from cdcd.errors import GapError, RequestRejected, without_password
from cdcd.schema_registry_client import registry_client
from cdcd.spark.reading.kafka import EARLIEST, KafkaReader
from cdcd.spark.reading.types import Avro, resolved

_CONFLUENT_HEADER: Final = 5
_SINGLE_OBJECT_HEADER: Final = 10


@dataclass(frozen=True)
class Writer:
    """One schema of events or of keys."""

    header: bytes
    text: str = field(repr=False)
    schema: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def columns(self) -> list[dict[str, Any]]:
        """Of an event's schema: the row's columns, each with its name and type as `types` has them."""
        return [{"name": each["name"], "type": each["type"]} for each in self._row()["fields"]]

    @property
    def key(self) -> tuple[str, ...]:
        """Of a key's schema: the names of the key's columns."""
        return tuple(each["name"] for each in self.schema["fields"] if "pg_type" in each)

    def described(self) -> list[dict[str, Any]]:
        """The row's columns as the schema has them: with pg_type, pg_typmod and pg_name."""
        [before] = [each for each in self.schema["fields"] if each["name"] == "before"]
        return list(before["type"][1]["fields"])

    def renamed(self, names: Mapping[str, str]) -> str:
        """The schema with other names for the row's columns. Names are not on the wire: it reads the same records."""
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
    """A writer from the bytes that its records start with and its schema's JSON text."""
    return Writer(start, text, json.loads(text))


class Writers:
    """Finds the schemas of tables. Asks again only for what it does not know."""

    def of(self, schema: str, table: str, topic: str, subject: str) -> list[Writer]:
        """All schemas of a table's events ("value") or keys ("key") that are known now."""
        raise NotImplementedError

    def known(self, schema: str, table: str, topic: str, subject: str) -> list[Writer]:
        """Those of `of` that were found before."""
        raise NotImplementedError

    def find(self, headers: Sequence[bytes], schema: str, table: str, topic: str, subject: str) -> list[Writer]:
        """The schemas of records that start so. Raises GapError if one is nowhere to be found: never nulls."""
        known = {each.header: each for each in self.known(schema, table, topic, subject)}
        if not known.keys() >= set(headers):
            known = {each.header: each for each in self.of(schema, table, topic, subject)}
        missing = [start.hex() for start in headers if start not in known]
        if missing:
            raise GapError(
                f"{topic}: records begin with {', '.join(missing)}, and no schema of {schema}.{table} is known by that",
                self.hint,
            )
        return [each for start, each in known.items() if start in headers]  # as they came: columns keep their order

    hint = ""


class TopicWriters(Writers):
    """Schemas on `{prefix}.schemas`."""

    hint = "Was it written by something else than cdcd? Check the prefix, and that the schemas topic was never deleted"

    def __init__(self, kafka: KafkaReader, topic: str) -> None:
        self._kafka = kafka
        self._topic = topic
        self._next = EARLIEST
        self._known: dict[str, Writer] = {}

    def of(self, schema: str, table: str, topic: str, subject: str) -> list[Writer]:
        self._refresh()
        return self.known(schema, table, topic, subject)

    def known(self, schema: str, table: str, topic: str, subject: str) -> list[Writer]:
        wanted = (namespace(schema, table), "Key" if subject == "key" else "Envelope")
        return [each for each in self._known.values() if (each.schema["namespace"], each.schema["name"]) == wanted]

    def _refresh(self) -> None:
        with self._kafka.errors(f"reading {self._topic}"):
            records = self._kafka.whole(self._topic, self._next).select("partition", "offset", "key", "value")
            rows = records.where("value IS NOT NULL").orderBy("offset").collect()
        for row in rows:
            digest = bytes.fromhex(bytes(row["key"]).decode())
            self._known[digest.hex()] = writer(header(digest), bytes(row["value"]).decode())
        if rows and all(row["partition"] == 0 for row in rows):
            self._next = rows[-1]["offset"] + 1


class RegistryWriters(Writers):
    """Schemas in a Confluent-compatible registry, under `{topic}-key` and `{topic}-value`."""

    hint = "Check that the registry is the one the daemon uses, and that no version of the subject was deleted"

    def __init__(self, config: Mapping[str, Any]) -> None:
        """`config` and what it raises: as `registry_client`."""
        self._client: Any = registry_client(config)
        self._url = without_password(str(config["url"]))
        self._known: dict[tuple[str, int], Writer] = {}
        """By subject and version."""

    def of(self, schema: str, table: str, topic: str, subject: str) -> list[Writer]:
        name = f"{topic}-{subject}"
        try:
            versions = self._client.get_versions(name)
            for version in versions:
                if (name, version) not in self._known:
                    found = self._client.get_version(name, version)
                    start = b"\x00" + int(found.schema_id).to_bytes(_CONFLUENT_HEADER - 1, "big")
                    self._known[name, version] = writer(start, str(found.schema.schema_str))
        except Exception as error:  # the client raises whatever its HTTP library does
            if getattr(error, "http_status_code", None) == 404:
                return []
            raise RequestRejected(
                f"the schema registry at {self._url} does not give {name}: {without_password(str(error))}",
                "Check its URL",
            ) from error
        return self.known(schema, table, topic, subject)

    def known(self, schema: str, table: str, topic: str, subject: str) -> list[Writer]:
        return [each for (name, _), each in self._known.items() if name == f"{topic}-{subject}"]
