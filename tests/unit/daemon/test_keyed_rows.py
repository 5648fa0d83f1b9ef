"""The SQL for the rows of some keys, and what a COPY of the keys tells."""

from __future__ import annotations

import struct

import pytest

from cdcd.daemon.keyed_rows import condition, found_keys, has_index
from cdcd.errors import DecodeError
from cdcd.snapshot.copy_format import SIGNATURE
from cdcd.source.pg_types import PgType
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

INT4 = PgType(23, "pg_catalog", "int4")
MOOD = PgType(20_000, "public", "mood", "e")
GUARDED = PgType(20_001, "public", "guarded", "d", base=INT4)
FORGED = PgType(20_002, "public", "int4")


def relation(*types: PgType) -> ResolvedRelation:
    columns = [ResolvedColumn(f'k"{number}', each, -1, True) for number, each in enumerate(types)]
    return ResolvedRelation(1, "public", "t", "d", [*columns, ResolvedColumn("v", INT4, -1, False)])


def test_a_key_is_compared_by_its_text_and_by_its_value_for_the_index() -> None:
    assert condition(relation(INT4), [("1",), ("2",)]) == (
        """("k""0" OPERATOR(pg_catalog.=) '1'::pg_catalog."int4" AND """
        """pg_catalog.concat("k""0") COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) '1') OR """
        """("k""0" OPERATOR(pg_catalog.=) '2'::pg_catalog."int4" AND """
        """pg_catalog.concat("k""0") COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) '2')"""
    )


def test_no_function_of_whoever_made_a_type_runs() -> None:
    for pgtype in (MOOD, FORGED):
        assert "::" not in condition(relation(pgtype), [("x'y",)])
        assert not has_index(relation(pgtype))
    assert "guarded" not in condition(relation(GUARDED), [("1",)]), "its check would run"
    assert has_index(relation(GUARDED))
    assert has_index(relation(MOOD, INT4))


def test_quotes_in_a_value_end_nothing() -> None:
    assert "'it''s'" in condition(relation(MOOD), [("it's",)])
    assert r" E'a\\''b'" in condition(relation(MOOD), [(r"a\'b",)])


def message(*values: str) -> bytes:
    return struct.pack("!h", len(values)) + b"".join(struct.pack("!i", len(v.encode())) + v.encode() for v in values)


def test_the_keys_that_have_rows_are_read_from_copy() -> None:
    messages = [SIGNATURE + bytes(8) + message("1", "ü"), message("", "b"), b"\xff\xff"]
    assert found_keys(messages, 2) == {("1", "ü"), ("", "b")}
    assert found_keys([SIGNATURE + bytes(8), b"\xff\xff"], 2) == set()
    with pytest.raises(DecodeError):
        found_keys([SIGNATURE + bytes(8) + message("1", "ü")[:8]], 2)
