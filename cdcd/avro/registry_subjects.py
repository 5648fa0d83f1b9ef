"""Names the subjects of a schema registry. Pure.

Before: the setting `avro.subject_strategy`, and the topics' names.
After: `registry_store` asks the registry under these names; `cdcd check` and `cdcd schema` use the same.
Source: Confluent, "Formats, Serializers, and Deserializers": Subject name strategy.

- `topic` (TopicNameStrategy): `{topic}-key` and `{topic}-value`.
- `record` (RecordNameStrategy): the full name of the record, such as `public.orders.Envelope`.
- `topic-record` (TopicRecordNameStrategy): `{topic}-`, then the full name of the record.

A record's full name begins with the table's schema and name, so no two tables of a database share a subject.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Literal, TypeAlias

Strategy: TypeAlias = Literal["topic", "record", "topic-record"]


class SubjectNames:
    """The subjects of one daemon's schemas."""

    def __init__(self, strategy: Strategy, topic_of: Callable[[str, str], str]) -> None:
        """`topic_of(schema, name)` gives the table's topic."""
        self._strategy = strategy
        self._topic_of = topic_of

    def name(self, schema: str, name: str, part: str, text: str) -> str:
        """The subject of a schema. `schema` and `name` are the table's, `part` is "key" or "value", `text` is JSON."""
        topic = self._topic_of(schema, name)
        if self._strategy == "topic":
            return f"{topic}-{part}"
        record = json.loads(text)
        full_name = f"{record['namespace']}.{record['name']}"
        return full_name if self._strategy == "record" else f"{topic}-{full_name}"
