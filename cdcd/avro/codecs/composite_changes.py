"""A composite type that was altered: which attributes a value has that does not look like the type.

Before: `source.catalog` describes the type as it is; `composites` makes a CompositeDefinition of it.
After: `composites.Composite` asks it about every value that does not look like the type.
Source: PostgreSQL, ALTER TYPE ... ADD | DROP ATTRIBUTE; `record_send`, `record_out` in rowtypes.c.

A value in the stream has the attributes that its type had at that point of the stream. No message says that a type was
altered, and the daemon asked the catalog at some other moment. So for a value that does not look like the type:

1. The value may be later than the answer of the catalog (`position` is beyond `asked_lsn`): raise TypeChanged. The
   stream restarts, and the daemon asks the catalog again at a later LSN. The same value never asks a second time.
2. The value is earlier, and the type never lost an attribute. Then the type only grew: the value has the first fields,
   and the others are null, as PostgreSQL itself reads old rows.
3. The value is earlier, and the type has lost an attribute. Nobody can say which fields the value has: it is
   unrepresentable, and the event has its text.

Two cases stay open:

- An attribute was dropped *and* another one added while the daemon was behind. An earlier value has as many fields as
  the type has now. In binary mode their types tell the two apart if they differ; in text mode nothing does.
- A transaction that waits for the daemon, its synchronous standby, is decoded before it is visible. If it altered the
  type, its own values are unrepresentable.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from cdcd.avro.codecs.base import Codec
from cdcd.errors import BinaryFormatUnsupported, TypeChanged
from cdcd.lsn import format_lsn


def at_the_start() -> int:
    """The position of a stream that has none: the catalog was asked later."""
    return 0


def no_codec(_: int) -> Codec | None:
    """Knows no type by its OID."""
    return None


class CompositeDefinition:
    """The attributes of one composite type, as of one moment."""

    def __init__(
        self,
        type_name: str,
        oids: list[int],
        dropped: bool = False,
        asked_lsn: int = 1,
        position: Callable[[], int] = at_the_start,
        built_in: Callable[[int], Codec | None] = no_codec,
    ) -> None:
        """`oids`: the attributes' types. `dropped`: the type has lost an attribute. `asked_lsn`: the server's WAL
        position when the catalog was asked, or before. `position` gives the commit LSN of the transaction at hand.
        `built_in` gives the codec of a built-in type by its OID.
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
        """Raise TypeChanged if the value at hand may be later than the catalog's answer."""
        position = self._position()
        if position >= self._asked_lsn:
            raise TypeChanged(
                f"a value of type {self.type_name}, in the transaction that commits at {format_lsn(position)}, has "
                f"other fields than the type had at {format_lsn(self._asked_lsn)}: the daemon asks the catalog again"
            )

    def codec_of(self, place: i64, oid: i64, fields: list[Codec]) -> Codec:
        """The codec that renders a value's field at `place`, of type `oid`; `fields` are the type's codecs.

        Raises BinaryFormatUnsupported if there is none: in text mode the server sends PostgreSQL's own text.
        """
        if place < len(fields) and self.oids[place] == oid:
            return fields[place]
        for known, codec in zip(self.oids, fields, strict=True):
            if known == oid:
                return codec
        found = self._built_in(oid)
        if found is None:
            raise BinaryFormatUnsupported(
                f"a value of type {self.type_name} has a field of type OID {oid}, which the type no longer has: "
                "the stream goes on in text mode"
            )
        return found
