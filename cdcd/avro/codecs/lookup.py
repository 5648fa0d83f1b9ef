"""Chooses the codec of a column.

Before: `source.catalog` describes the type as a `PgType`.
After: `schema` and `event_encoder` use the codec, which holds the Avro schema and transcodes both modes.

To add a family of types, add a file with a function `register` to this package, and list it here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cdcd.avro.codecs import (
    arrays,
    composites,
    datetimes,
    extensions,
    floats,
    integers,
    interval,
    network,
    numeric,
    ranges,
    text,
)
from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.registry import PARTS_MAX, TypeOptions, TypeRegistry, is_converted
from cdcd.avro.codecs.text_encoding import EscapingColumn, without_encoding
from cdcd.source.pg_types import UNKNOWN, PgType

__all__ = ["REGISTRY", "TypeOptions", "codec_for", "codecs_for", "has_known_binary", "is_converted"]


def _all_families() -> TypeRegistry:
    types = TypeRegistry(text.fallback)
    integers.register(types)
    floats.register(types)
    numeric.register(types)
    text.register(types)
    datetimes.register(types)
    interval.register(types)
    network.register(types)
    extensions.register(types)
    arrays.register(types)
    composites.register(types)
    ranges.register(types)
    return types


REGISTRY: Final = _all_families()
"""The codecs of all types that cdcd knows."""


def codec_for(pgtype: PgType, typmod: int, options: TypeOptions) -> Codec:
    """The codec of a column of type `pgtype` with `typmod` (-1: none). Never fails."""
    codec = REGISTRY.codec(pgtype, typmod, options)
    if not codec.has_text or not (options.any_encoding or options.to_text is not None):
        return codec
    return EscapingColumn(codec, options.to_text or without_encoding)


def codecs_for(columns: Iterable[tuple[PgType, int]], options: TypeOptions) -> list[Codec]:
    """The codecs of a table's columns, each given by its type and typmod. Never fails.

    A column that has too many types, by itself or together with the columns before it, is text.
    """
    codecs = []
    parts = 0
    for pgtype, typmod in columns:
        fits = pgtype.parts == 1 or parts + pgtype.parts <= PARTS_MAX
        parts += pgtype.parts if fits else 1
        known = pgtype if fits else PgType(pgtype.oid, pgtype.schema, pgtype.name, UNKNOWN)
        codecs.append(codec_for(known, typmod, options))
    return codecs


def has_known_binary(pgtype: PgType, encoding: str = "UTF8") -> bool:
    """Whether cdcd can read values of this type in binary, from a database with this encoding.

    If it cannot, the stream must run in text mode.
    """
    return REGISTRY.codec(pgtype, -1, TypeOptions(converted=is_converted(encoding))).has_binary
