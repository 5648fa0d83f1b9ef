"""The registry of codecs: every family registers its types here, by name or by kind.

Before: each family (`integers`, `text`, `arrays`, ...) has a function `register` that adds its types.
After: `lookup` asks for the codec of a column. For the way back, readers use `type_forms`.
Source: PostgreSQL, "System Catalogs", pg_type (`typname`, `typtype`); the OIDs of built-in types are in `pg_type.dat`.

Types are registered by name, not by OID: the OIDs of an extension's types differ from server to server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.composite_changes import at_the_start
from cdcd.avro.codecs.text_encoding import ToText, converted, utf8_checked
from cdcd.source.pg_types import DOMAIN, PgType

ENUM: Final = "e"
COMPOSITE: Final = "c"
RANGE: Final = "r"
MULTIRANGE: Final = "m"
ARRAY: Final = "array"
"""The kinds of user-defined types: values of `typtype`, and one more for true arrays."""

_PSEUDO_ARRAYS: Final = ("int2vector", "oidvector")
"""The catalog says that these are arrays, but they count from 0 and have another text form."""


DEPTH_MAX: Final = 32
PARTS_MAX: Final = 5_000
"""The maker of types decides how deep they are nested. The number of types in a value can double with each level. A
type beyond these bounds is text. Readers have bounds, too (`schema_bounds`): a table's schema stays within them."""


@dataclass(frozen=True)
class TypeOptions:
    """The options for codecs, from the settings and the database."""

    numeric: Literal["decimal", "string"] = "decimal"
    """How numeric(p,s) is encoded. Every other numeric becomes a string."""
    any_encoding: bool = False
    """The database has no encoding (SQL_ASCII). Text that is not UTF-8 is unrepresentable."""
    converted: bool = False
    """The database is neither UTF8 nor SQL_ASCII: the server converts its text."""
    to_text: ToText | None = None
    """Not None: text comes as it is stored, because the server cannot convert all of it, and this converts it."""
    position: Callable[[], int] = at_the_start
    """Gives the commit LSN of the current transaction: `composite_changes` compares it with the catalog's LSN."""

    @staticmethod
    def of_database(
        numeric: Literal["decimal", "string"],
        encoding: str,
        position: Callable[[], int] = at_the_start,
        to_text: ToText | None = None,
    ) -> TypeOptions:
        """The options for a database with this encoding, by PostgreSQL's name."""
        return TypeOptions(numeric, encoding == "SQL_ASCII", is_converted(encoding), to_text, position)


def is_converted(encoding: str) -> bool:
    """Whether the server must convert text from this encoding to UTF-8."""
    return encoding not in ("UTF8", "SQL_ASCII")


class TypeRequest:
    """A type that needs a codec: the type of a column, or of a part of its values."""

    def __init__(self, pgtype: PgType, typmod: int, options: TypeOptions, registry: TypeRegistry) -> None:
        """`typmod`: -1 if there is none."""
        self.pgtype = pgtype
        self.name = pgtype.name
        self.typmod = typmod
        self.options = options
        self._registry = registry

    def part(self, pgtype: PgType, typmod: int = -1) -> Codec:
        """The codec of an element, field or bound."""
        return self._registry.codec(pgtype, typmod, self.options)

    def built_in(self, oid: int) -> Codec | None:
        """The codec of a built-in type by its OID, which is the same on every server; None for other types."""
        return self._registry.built_in_codec(oid, self.options)


Factory: TypeAlias = "Callable[[TypeRequest], Codec | None]"
"""Makes the codec of a type. None: the type is encoded as its text."""


class TypeRegistry:
    """Makes the codecs of types. `fallback` makes the codec of a type that is not registered."""

    def __init__(self, fallback: Callable[[TypeRequest], Codec]) -> None:
        self._fallback = fallback
        self._built_in: dict[str, Factory] = {}
        self._names: dict[int, str] = {}
        self._extensions: dict[str, Factory] = {}
        self._kinds: dict[str, Factory] = {}

    def add_built_in(self, name: str, oid: int, factory: Factory) -> None:
        """Make a type of the schema `pg_catalog` known."""
        self._built_in[name] = factory
        self._names[oid] = name

    def add_extension(self, name: str, factory: Factory) -> None:
        """Make the type of an extension known, in any schema but `pg_catalog`."""
        self._extensions[name] = factory

    def add_kind(self, kind: str, factory: Factory) -> None:
        """Make all types of a kind known: ENUM, COMPOSITE, RANGE, MULTIRANGE or ARRAY."""
        self._kinds[kind] = factory

    @property
    def built_in_names(self) -> dict[int, str]:
        """OID -> name of every built-in type."""
        return dict(self._names)

    @property
    def extension_names(self) -> list[str]:
        """The names of all types of extensions."""
        return list(self._extensions)

    def codec(self, pgtype: PgType, typmod: int, options: TypeOptions) -> Codec:
        """The codec of a column, or of a part of its values. Never fails."""
        while pgtype.kind == DOMAIN and pgtype.base is not None:
            pgtype, typmod = pgtype.base, pgtype.base_typmod
        request = TypeRequest(pgtype, typmod, options, self)
        factory: Factory | None = None
        if pgtype.depth <= DEPTH_MAX and pgtype.parts <= PARTS_MAX:
            factory = self._kinds.get(_kind(pgtype)) or self._named(pgtype)
        codec = (factory(request) if factory is not None else None) or self._fallback(request)
        if options.to_text is not None:
            return converted(codec, options.to_text)
        return utf8_checked(codec) if options.any_encoding else codec

    def built_in_codec(self, oid: int, options: TypeOptions) -> Codec | None:
        """The codec of the built-in type with this OID; None if there is no such type."""
        name = self._names.get(oid)
        return None if name is None else self.codec(PgType(oid, "pg_catalog", name), -1, options)

    def _named(self, pgtype: PgType) -> Factory | None:
        if pgtype.schema == "pg_catalog":
            return self._built_in.get(pgtype.name)
        return self._extensions.get(pgtype.name) if pgtype.kind == "b" else None


def _kind(pgtype: PgType) -> str:
    """The kind by which a type is registered; "" for one that is known by its name."""
    if pgtype.kind in (ENUM, COMPOSITE):
        return pgtype.kind
    if pgtype.element is None:
        return ""
    if pgtype.is_array and pgtype.name not in _PSEUDO_ARRAYS:
        return ARRAY
    return pgtype.kind if pgtype.kind in (RANGE, MULTIRANGE) else ""
