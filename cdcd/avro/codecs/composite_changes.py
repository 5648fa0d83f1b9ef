"""What the catalog said of a composite type's attributes, and when: it decides about values that have others.

Before: `source.catalog` describes the type as it is; `lookup` makes a Shape of it.
After: `nested.Composite` asks it about every value that does not look like the type.
Source: PostgreSQL, ALTER TYPE ... ADD | DROP ATTRIBUTE; `record_send`, `record_out` in rowtypes.c.

A value in the stream has the attributes that its type had at that point of the stream, and no message says that a type
was altered. The catalog was asked at some other moment. So for a value that does not look like the type:

1. It may be later than the question (`position` is beyond `asked_lsn`): TypeChanged. The stream starts again, the
   catalog is asked anew, at a later LSN: the same value never asks for that a second time.
2. It is earlier. If the type never lost an attribute, it only grew: the value's fields are the first ones, the others
   are null, as PostgreSQL itself reads old rows.
3. If the type did lose one, nobody can say which fields these are: the value is unrepresentable, and its text says all.

What stays open: where an attribute was dropped *and* another one added while the daemon was behind, a value from before
has as many fields as the type has now. In binary mode types tell them apart if they differ, in text mode nothing does.
And a transaction that is decoded before it is visible (it waits for us, as its synchronous standby) may have altered
the type: what it added makes its own values unrepresentable.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from cdcd.avro.codecs.base import Codec
from cdcd.errors import BinaryFormatUnsupported, TypeChanged
from cdcd.lsn import format_lsn


def at_the_start() -> int:
    """The position of a stream that has none: everything the catalog knows is later."""
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
        """`oids`: the attributes' types. `dropped`: the type had others once. `asked_lsn`: the server's WAL position
        when the catalog was asked, or before. `position` gives the commit LSN of the transaction at hand, `built_in`
        the codec of a type that has the same OID everywhere.
        """
        self.type_name = type_name
        self.oids = oids
        self.dropped = dropped
        self._asked_lsn = asked_lsn
        self._position = position
        self._built_in = built_in

    def grew_since(self, count: i64) -> bool:
        """Whether the `count` fields of a value are the type's first. Raises TypeChanged if the catalog may know."""
        self.check_age()
        return count < len(self.oids) and not self.dropped

    def check_age(self) -> None:
        """Raise TypeChanged if a value that does not look like the type may be later than what is known of the type."""
        position = self._position()
        if position >= self._asked_lsn:
            raise TypeChanged(
                f"a value of type {self.type_name}, in the transaction that commits at {format_lsn(position)}, has "
                f"other fields than the type had at {format_lsn(self._asked_lsn)}: the catalog is asked anew"
            )

    def codec_of(self, place: i64, oid: i64, fields: list[Codec]) -> Codec:
        """The codec that renders the field at `place`, which says that its type is `oid`; `fields` are the type's own.

        Raises BinaryFormatUnsupported if there is none: PostgreSQL's own text is to be had in text mode.
        """
        if place < len(fields) and self.oids[place] == oid:
            return fields[place]
        for known, codec in zip(self.oids, fields, strict=True):
            if known == oid:
                return codec
        found = self._built_in(oid)
        if found is None:
            raise BinaryFormatUnsupported(
                f"a value of type {self.type_name} has a field of type OID {oid}, which the type has no more: "
                "the stream goes on in text mode"
            )
        return found
