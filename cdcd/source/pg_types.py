"""A PostgreSQL type: the parts of its `pg_type` row that decide how its values become Avro. Pure.

Before: `catalog` reads it from the server, once per type OID.
After: `avro.codecs.lookup` picks a codec by it; `transaction.relations` keeps it with each column.
Source: PostgreSQL, "pg_type".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

DOMAIN: Final = "d"
RANGE: Final = "r"
UNKNOWN: Final = ""
"""The kind of a type that the catalog does not know."""


@dataclass(frozen=True)
class Attribute:
    """A column as the catalog has it now."""

    number: int
    """`attnum`: a column that is dropped and added again has another one."""
    type_oid: int
    missing_value: str | None
    """`attmissingval` as text: what the rows hold that are older than the column. None: null, or not known."""
    is_required: bool = field(default=False, compare=False)
    """NOT NULL."""
    default: str = field(default="", compare=False)
    """The expression of DEFAULT; empty: there is none, or it is long."""


@dataclass(frozen=True)
class PgType:
    """One type. `kind` is `typtype`: b base, c composite, d domain, e enum, m multirange, p pseudo, r range.

    UNKNOWN if the catalog does not know the type: its schema and name are those of the stream.
    """

    oid: int
    schema: str
    name: str
    kind: str = "b"
    base: PgType | None = None
    """A domain's underlying type."""
    base_typmod: int = -1
    """The typmod that a domain gives its underlying type."""
    element: PgType | None = None
    """An array's element type, a range's subtype, a multirange's range type. None for anything else."""
    is_array: bool = False
    """A true array (`typsubscript` is `array_subscript_handler`), not a fixed-length pseudo-array such as `point`."""
    fields: tuple[tuple[str, PgType, int], ...] = ()
    """A composite's attributes: name, type, typmod."""
    dropped: bool = False
    """A composite that has lost an attribute (ALTER TYPE ... DROP ATTRIBUTE)."""
    asked_lsn: int = field(default=0, compare=False)
    """The server's WAL position just before the catalog was asked. A later ALTER TYPE may not show here."""
    delimiter: str = ","
    """`typdelim`: the character between values of this type in an array's text (`;` for box, else `,`)."""
    labels: tuple[str, ...] = field(default=(), compare=False)
    """An enum's labels, in their order; empty for an enum of very many."""
    parts: int = field(init=False, compare=False)
    """How many types a value is made of, itself included: each as often as it occurs."""
    depth: int = field(init=False, compare=False)
    """How deep types are nested in it, itself included."""

    def __post_init__(self) -> None:
        inside = [each for _, each, _ in self.fields]
        if self.element is not None:
            inside += [self.element] * (2 if self.kind == RANGE else 1)  # two bounds
        own, parts = 1, sum(each.parts for each in inside)
        depth = max((each.depth for each in inside), default=0)
        if self.base is not None:  # a domain's values are those of its underlying type
            own, parts, depth = 0, self.base.parts, self.base.depth
        object.__setattr__(self, "parts", own + parts)
        object.__setattr__(self, "depth", own + depth)

    @property
    def qualified(self) -> str:
        """The name as in SQL: `int4`, or `schema.name` outside `pg_catalog`."""
        return self.name if self.schema == "pg_catalog" else f"{self.schema}.{self.name}"
