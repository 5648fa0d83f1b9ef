"""Judges the headers of events: each says what its event says, and no id is that of two events.

Before: `checker` reads the records of a committed Kafka transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from cdcd.transaction.record_headers import rfc3339

CHOICES: list[tuple[str, ...]] = [
    ("op", "table", "lsn", "txid", "commit_time", "schema_version", "cloudevents"),
    ("op", "table"),
    ("lsn",),
    ("cloudevents",),
]
WITH_HEADERS = 0.25
"""The share of worlds whose events have headers."""


def choice(seed: int) -> tuple[str, ...]:
    """The headers of a world's events."""
    rng = Random(f"headers {seed}")
    return rng.choice(CHOICES) if rng.random() < WITH_HEADERS else ()


class HeadersChecker:
    """The headers of one world."""

    def __init__(self, names: tuple[str, ...], encoding: str, demand: Callable[[bool, str], None]) -> None:
        self._names = names
        self._content_type = b"application/avro" if encoding == "avro" else b"application/json"
        self._demand = demand
        self._ids: dict[bytes, object] = {}

    def judge(self, table: str, key: bytes | None, headers: Mapping[str, bytes], event: Any) -> None:
        """Compare the headers of a record with its event. `table`: schema.name; empty for logical messages."""
        source, version = event["source"], headers.get("__schema_version")
        time = rfc3339(round(source["commit_ts"].timestamp() * 1_000_000))
        shown = {
            "op": event["op"].encode(),
            "table": table.encode(),
            "lsn": b"%d" % source["lsn"],
            "txid": b"%d" % source["xid"] if source["xid"] else b"",
            "commit_time": time,
            "schema_version": version if version is not None and table else b"",
        }
        wanted = {f"__{name}": value for name, value in shown.items() if name in self._names and value}
        if "cloudevents" in self._names:
            wanted |= {"ce_time": time, "ce_source": b"/cdcd/p/s", "ce_specversion": b"1.0"}
            wanted |= {"ce_subject": table.encode()} if table else {}
            wanted["content-type"] = self._content_type
            name, kind = headers.get("ce_id", b""), headers.get("ce_type", b"")
            place = b"%d-%d" % (source["commit_lsn"], source["seq"])
            self._demand(not source["xid"] or name == place, f"the id of {place!r} is {name!r}")
            wanted |= {"ce_id": name, "ce_type": kind}
            is_same = self._ids.setdefault(name, (table, key, event["op"], source["seq"]))
            self._demand(is_same == (table, key, event["op"], source["seq"]), f"{name!r} is the id of two events")
        self._demand(dict(headers) == wanted, f"{table}: headers {dict(headers)}, wanted {wanted}")
        self._demand("schema_version" not in self._names or not table or len(version or b"") == 16, "a schema version")
