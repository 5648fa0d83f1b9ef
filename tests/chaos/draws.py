"""What a run draws: the format and the encoding of events, their topics, headers, how deletes look, masks, a key.

Before: `run` has a seed. After: the daemon gets `Draw.settings`, `topic_check` the `Draw.form`.

What every run has: an outbox, a table that is copied by a condition, one whose copy is stopped (`counts`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from chaos import counts, masks
from chaos.connect_events import Debezium, Decode, RegistryDecoder, Rows, SharedTopics, json_decoder
from chaos.events import Avro, Format, Json

FORMATS = [f"{form}/{encoding}" for form in ("cdcd", "debezium", "row") for encoding in ("avro", "json", "json-schema")]

HEADERS = ["op", "lsn", "txid", "cloudevents"]
DELETES = ["tombstone", "rewrite", "rewrite-with-tombstone"]
"""How flat rows say a delete. (With "drop" nothing says it, so nobody could judge it.)"""

KEY: dict[str, Any] = {"match": '"odd one".*', "key": ["b", "A"], "partitions": 2}
"""The entry of [[table]] for the table that `writers.KEYLESS` is about."""

ROUTINGS: dict[str, dict[str, str]] = {
    "own topics": {},
    "topics by a pattern": {"public.*": "{prefix}.tables.{table}-of-{schema}"},
    "all tables of a schema in one topic": {"public.*": "{prefix}.together", "counted.*": "{prefix}.counts"},
    "tables of two schemas in one topic": {
        "public.*": "{prefix}.together",
        '"odd one".*': "{prefix}.together",
        "counted.*": "{prefix}.counts",
    },
}
"""What [[table]] says of topics: the topic of what each pattern matches."""

_DEBEZIUM: dict[str, Any] = {"decimal_handling_mode": "string", "schema_name_adjustment_mode": "avro"}
_ROW: dict[str, Any] = {
    "add_fields": ["op", "source.schema", "source.table", "source.lsn", "source.txId", "source.sequence"]
}


@dataclass(frozen=True)
class Draw:
    """What one run has."""

    form: str
    """One of FORMATS."""
    deletes: str
    """One of DELETES, for flat rows."""
    has_headers: bool
    has_masks: bool
    has_key: bool
    """A table has no primary key, and the settings have its key."""
    routing: str
    """One of ROUTINGS."""

    @staticmethod
    def of(seed: int, form: str | None = None, routing: str | None = None) -> Draw:
        """Draw by the seed; `form`, `routing`: this one."""
        deletes = random.Random(f"deletes {seed}").choice(DELETES)
        form = form or random.Random(seed).choice(FORMATS)
        chosen = [random.Random(f"{name} {seed}").random() < 0.5 for name in ("headers", "masks", "key")]
        # Only headers say where a delete without a value stands.
        chosen[0] |= form.startswith("row/") and deletes == "tombstone"
        routing = routing or random.Random(f"routing {seed}").choice([*ROUTINGS])
        headers, has_masks, has_key = chosen
        return Draw(form, deletes, headers, has_masks, has_key, routing)

    @property
    def needs_registry(self) -> bool:
        return self.form in ("debezium/avro", "row/avro")

    @property
    def has_rows(self) -> bool:
        return self.form.startswith("row/")

    def settings(self, registry_url: str) -> dict[str, Any]:
        """The sections of cdcd.toml, and the entries of [[table]], that this comes to."""
        form, _, encoding = self.form.partition("/")
        sink: dict[str, Any] = {"format": form, "encoding": encoding}
        if self.has_headers:
            sink["headers"] = HEADERS
        settings: dict[str, Any] = {"sink": sink, "outbox": counts.OUTBOX, "snapshot": counts.SNAPSHOT}
        if form != "cdcd":
            settings["debezium"] = _DEBEZIUM | ({"truncates": True} if form == "debezium" else {})
        if form == "row":
            settings["row"] = _ROW | {"delete_tombstone_handling_mode": self.deletes}
        if self.needs_registry:
            settings["avro"] = {"registry_url": registry_url}
        if self.has_masks:
            settings["tables"] = {"hash_secret": masks.SECRET}
        topics = ROUTINGS[self.routing]
        entries = [*counts.ENTRIES, *(masks.ENTRIES if self.has_masks else ())]
        if self.has_key:
            # Tables that share a topic have as many partitions.
            left_out = "partitions" if KEY["match"] in topics else ""
            entries.append({name: said for name, said in KEY.items() if name != left_out})
        entries += [{"match": pattern, "topic": topic} for pattern, topic in topics.items()]
        return settings | {"table": entries}

    def topic(self, prefix: str, schema: str, table: str) -> str:
        """The topic of a table with a plain name."""
        topic = ROUTINGS[self.routing].get(f"{schema}.*", "{prefix}.{schema}.{table}")
        return topic.format(prefix=prefix, schema=schema, table=table)

    def reader(self, schemas: list[str], prefix: str) -> Format:
        """What takes the events apart. `schemas`: those of the registry."""
        form, _, encoding = self.form.partition("/")
        with_schemas = encoding == "json-schema"
        if form == "cdcd":
            return Avro() if encoding == "avro" else Json(with_schemas=with_schemas)
        decode: Decode = RegistryDecoder(schemas) if encoding == "avro" else json_decoder(with_schemas=with_schemas)
        topics = ROUTINGS[self.routing].values()
        shared = SharedTopics(prefix, {topic.format(prefix=prefix) for topic in topics if "{table}" not in topic})
        if form == "debezium":
            return Debezium(decode, shared, has_headers=self.has_headers)
        return Rows(
            decode,
            shared,
            has_headers=self.has_headers,
            has_tombstones=self.deletes == "rewrite-with-tombstone",
            has_flags=self.deletes != "tombstone",
        )

    def as_text(self) -> str:
        """What it is, in words."""
        words = [self.form, self.routing, *([f"deletes: {self.deletes}"] if self.has_rows else [])]
        words += [
            name
            for name, has in (
                ("headers", self.has_headers),
                ("masks", self.has_masks),
                ("a key of the settings", self.has_key),
            )
            if has
        ]
        return ", ".join([*words, "an outbox, and snapshots"])
