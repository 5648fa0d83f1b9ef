"""Altered composite types: decides which attributes a value has if it does not match the catalog's type.

Before: `source.catalog` describes the type; `composites` makes a CompositeDefinition from it.
After: `composites.Composite` asks the definition about every value that does not match.
Source: PostgreSQL, ALTER TYPE ... ADD | DROP ATTRIBUTE; `record_send`, `record_out` in rowtypes.c.

A value in the stream has the attributes that its type had at that point of the stream. No message says that a type was
altered, and the daemon asked the catalog at another moment. For a value that does not match the type:

1. The value may be later than the catalog's answer (`position` is at or above `asked_lsn`): raise TypeChanged. The
   stream restarts, and the daemon asks the catalog at a later LSN. The same value does not cause a second restart.
2. The value is earlier, and the type has never lost an attribute. Then the type only grew. The value has the first
   fields; the others are null, as PostgreSQL itself reads old rows.
3. The value is earlier, and the type has lost an attribute. The fields of the value cannot be known: the value is
   unrepresentable, and the event has its text.

Two cases stay open:

- An attribute was dropped *and* another one added before the daemon asked. An earlier value then has as many fields as
  the type has now. In binary mode the fields' type OIDs show the difference, if they differ. Text mode shows nothing.
- A synchronous COMMIT waits for the daemon, so the daemon sees the transaction before the catalog shows it. If the
  transaction altered the type, its own values are unrepresentable.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from cdcd.avro.codecs.base import Codec
from cdcd.errors import BinaryFormatUnsupported, TypeChanged
from cdcd.lsn import format_lsn


def at_the_start() -> int:
    """The position for callers without a stream: every value is earlier than the catalog's answer."""
    return 0


def no_codec(_: int) -> Codec | None:
    """No codec, for any OID."""
    return None


class CompositeDefinition:
    """The attributes of one composite type, as the catalog had them at one moment."""

    def __init__(
        self,
        type_name: str,
        oids: list[int],
        dropped: bool = False,
        asked_lsn: int = 1,
        position: Callable[[], int] = at_the_start,
        built_in: Callable[[int], Codec | None] = no_codec,
    ) -> None:
        """`oids`: the attributes' types. `dropped`: the type has lost an attribute.

        `asked_lsn`: the server's WAL position just before the catalog was asked. `position` gives the commit LSN of the
        current transaction. `built_in` gives the codec of a built-in type by its OID.
        """
        self.type_name = type_name
        self.oids = oids
        self.dropped = dropped
        self._asked_lsn = asked_lsn
        self._position = position
        self._built_in = built_in

    def is_prefix(self, count: i64) -> bool:
        """Whether the `count` fields of a value are the type's first fields. Raises as `raise_if_stale`."""
        self.raise_if_stale()
        return count < len(self.oids) and not self.dropped

    def raise_if_stale(self) -> None:
        """Raise TypeChanged if the current transaction may be later than the catalog's answer."""
        position = self._position()
        if position >= self._asked_lsn:
            raise TypeChanged(
                f"a value of type {self.type_name}, in the transaction that commits at {format_lsn(position)}, has "
                f"other fields than the type had at {format_lsn(self._asked_lsn)}: the daemon asks the catalog again",
                code="stream-restarted",
            )

    def codec_of(self, place: i64, oid: i64, fields: list[Codec]) -> Codec:
        """The codec that renders field `place` (from 0) of a value, of type `oid`. `fields` are the type's codecs.

        Raises BinaryFormatUnsupported if there is no such codec: in text mode the server sends the text itself.
        """
        if place < len(fields) and self.oids[place] == oid:
            return fields[place]
        for known, codec in zip(self.oids, fields, strict=True):
            if known == oid:
                return codec
        built_in = self._built_in(oid)
        if built_in is None:
            raise BinaryFormatUnsupported(
                f"a value of type {self.type_name} has a field of type OID {oid}, which the type no longer has: "
                "the stream goes on in text mode",
                code="stream-restarted",
            )
        return built_in
