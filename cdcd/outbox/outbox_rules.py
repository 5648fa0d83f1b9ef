"""What the settings say of the outbox: its table, its messages, the names of columns, and where events go. Pure.

Before: the section `outbox` of the settings.
After: `outbox_events` publishes; `cdcd check` and `cdcd verify` ask which table it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, final

from cdcd.source.table_selection import TablePattern

AGGREGATE: Final = "{aggregate}"
"""What stands for the type of the aggregate in the template of topics."""

TOPIC: Final = "{topic}"
"""What stands for the event's topic in the template of subjects."""

_SIZE_MAX: Final = 249
"""Kafka's limit on a topic name, in characters."""
_DIGEST_SIZE: Final = 32
_ENCODED: Final = re.compile(r"[^a-zA-Z0-9._-]|-(?![a-zA-Z0-9._]|\Z)")
"""What Kafka does not allow in a name, and a `-` that would make `--`."""


@final
class OutboxRules:
    """The outbox of one daemon. The names are those of columns, and of the fields of a message's JSON."""

    def __init__(
        self,
        match: str | None,
        message_prefix: str | None,
        topic: str,
        names: tuple[str, str, str, str, str],
        headers: Sequence[str] = (),
    ) -> None:
        """`match`: the tables, as schema.table; None: none. `message_prefix`: that of its messages; None: none.

        `topic`: the template, without the prefix of all topics. `names`: those of the event's id, the type of its
        aggregate, the id of the aggregate, the type of the event, and the payload. `headers`: further names.
        """
        self.pattern: Final = None if match is None else TablePattern(match)
        self.message_prefix = message_prefix
        self._topic = topic
        self.id, self.aggregate_type, self.aggregate_id, self.type, self.payload = names
        self.headers: Final = tuple(headers)

    @property
    def required(self) -> tuple[str, str, str]:
        """The names without which there is no event."""
        return self.aggregate_type, self.aggregate_id, self.payload

    def matches(self, schema: str, table: str) -> bool:
        """Whether the table is the outbox."""
        return self.pattern is not None and self.pattern.matches(schema, table)

    def topic(self, aggregate_type: str) -> str:
        """The topic of the aggregate's events, without the prefix of all topics: legal for Kafka, and short.

        An application chooses the type, which may be any text of any size. So no type is an error: a long name keeps
        its start, and ends in `--` and a digest; types that give one name share a topic.
        """
        name = self._topic.replace(AGGREGATE, _ENCODED.sub(_hex, aggregate_type))
        if len(name) <= _SIZE_MAX:
            return name
        return f"{name[: _SIZE_MAX - _DIGEST_SIZE - 2]}--{sha256(name.encode()).hexdigest()[:_DIGEST_SIZE]}"


def _hex(found: re.Match[str]) -> str:
    return "".join(f"-{byte:02x}" for byte in found[0].encode())
