"""Rows of any values, masked in both wire modes, whole and streamed: the same events, without a byte of a secret."""

from __future__ import annotations

import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from support.assembly import Assembly, begin, block, commit, stream_commit

from cdcd.pgoutput import messages as m
from cdcd.pgoutput.encoder import tuple_of
from cdcd.pgoutput.tuples import UNCHANGED, Binary, ColumnValue
from cdcd.source.pg_types import PgType
from cdcd.transaction.column_masks import CONSTANT, HASH, LAST, NOTHING, Mask
from cdcd.transaction.column_rules import ColumnRule, ColumnRules

T = 700
MARK = "\N{KEY}"
"""Is in each secret text, before the four characters that a mask may keep, and in nothing else."""
TYPES = {
    name: PgType(oid, "pg_catalog", name)
    for name, oid in {
        "int2": 21, "int4": 23, "int8": 20, "oid": 26, "bool": 16, "uuid": 2950, "bytea": 17, "text": 25,
        "varchar": 1043, "jsonb": 3802,
    }.items()
}  # fmt: skip

Sent = tuple[bytes, bytes]
"""A value in text mode, and in binary mode."""


def _integer(bits: int, form: str) -> st.SearchStrategy[Sent]:
    low, high = (0, 2**bits - 1) if form == ">I" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return st.integers(low, high).map(lambda n: (str(n).encode(), struct.pack(form, n)))


_text = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12)
VALUES: dict[str, st.SearchStrategy[Sent]] = {
    "int2": _integer(16, ">h"),
    "int4": _integer(32, ">i"),
    "int8": _integer(64, ">q"),
    "oid": _integer(32, ">I"),
    "bool": st.booleans().map(lambda each: (b"t" if each else b"f", bytes([each]))),
    "uuid": st.uuids().map(lambda each: (str(UUID(int=each.int)).encode(), each.bytes)),
    "bytea": st.binary(max_size=12).map(lambda each: (b"\\x" + each.hex().encode(), each)),
    "text": _text.map(lambda each: (f"{MARK}{each}last".encode(), f"{MARK}{each}last".encode())),
    "varchar": _text.map(lambda each: (f"{MARK}{each}last".encode(), f"{MARK}{each}last".encode())),
    "jsonb": _text.map(lambda each: (f"[{MARK}{each}last]".encode(), b"\1" + f"[{MARK}{each}last]".encode())),
}
MASKS = st.sampled_from([
    Mask(HASH), Mask(NOTHING), Mask(CONSTANT, constant=b"x"), Mask(LAST, kept=1), Mask(LAST, kept=4), None,
])  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[Mask | None]]:
    """The types of columns, each with its mask; None: it is left out."""
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=6))
    return names, [draw(MASKS) for _ in names]


def _row(draw: st.DrawFn, types: list[str], *, is_new: bool) -> list[Sent | str | None]:
    row: list[Sent | str | None] = []
    for each in types:
        kinds = [st.none(), VALUES[each]] + ([st.just("unchanged")] if is_new and each in ("text", "jsonb") else [])
        row.append(draw(st.one_of(kinds)))
    return row


@st.composite
def rows(draw: st.DrawFn, types: list[str]) -> tuple[str, list[Sent | str | None], list[Sent | str | None]]:
    """An operation, with the old and the new row."""
    op = draw(st.sampled_from(["insert", "update", "full", "delete"]))
    return op, _row(draw, types, is_new=False), _row(draw, types, is_new=op in ("update", "full"))


def _tuple(key: int, row: list[Sent | str | None], *, binary: bool) -> list[ColumnValue]:
    values: list[ColumnValue] = [Binary(struct.pack(">i", key)) if binary else str(key).encode()]
    for each in row:
        if isinstance(each, str):
            values.append(UNCHANGED)
        elif each is None:
            values.append(None)
        else:
            values.append(Binary(each[1]) if binary else each[0])
    return values


def _message(
    xid: int, key: int, made: tuple[str, list[Sent | str | None], list[Sent | str | None]], *, binary: bool
) -> m.Message:
    op, old, new = made
    olds, news = (tuple_of(_tuple(key, row, binary=binary)) for row in (old, new))
    if op == "insert":
        return m.Insert(xid, 7, news)
    if op == "delete":
        return m.Delete(xid, 7, m.OLD, olds)
    return m.Update(xid, 7, m.OLD if op == "full" else m.NO_OLD, olds if op == "full" else None, news)


@settings(max_examples=60, deadline=None)
@given(st.data(), tables())
def test_all_ways_of_a_row_give_the_same_events_and_none_has_the_secret(
    data: st.DataObject, table: tuple[list[str], list[Mask | None]]
) -> None:
    types, masks = table
    made = [data.draw(rows(types)) for _ in range(data.draw(st.integers(1, 4)))]
    names = [f"c{at}" for at in range(len(types))]
    rule = ColumnRule(
        "public.t",
        exclude=[name for name, mask in zip(names, masks, strict=True) if mask is None],
        masks={name: mask for name, mask in zip(names, masks, strict=True) if mask is not None},
    )
    found = []
    for binary, streamed in ((False, False), (True, False), (False, True), (True, True)):
        with TemporaryDirectory() as folder:
            stream = Assembly(Path(folder), memory_bytes=1, rules=ColumnRules([rule], b"0123456789abcdef"))
            stream.catalog.more_types = {each.oid: each for each in TYPES.values()}
            columns = [m.Column(True, "id", 23, -1)]
            columns += [m.Column(False, name, TYPES[each].oid, -1) for name, each in zip(names, types, strict=True)]
            xid = T if streamed else 0
            inside = [
                m.Relation(xid, 7, "public", "t", "d", tuple(columns)),
                *(_message(xid, key, each, binary=binary) for key, each in enumerate(made)),
            ]
            if streamed:
                stream.feed(*block(T, *inside, first=True))
                assert MARK.encode() not in b"".join(path.read_bytes() for path in stream.files())
                stream.feed(stream_commit(T, 100))
            else:
                stream.feed(begin(100, T), *inside, commit(100))
            batch = stream.take()
            found.append([(each.get("key"), each["value"]) for of in batch.tables for each in of.messages])
            assert MARK not in "".join(text for _, text in batch.schemas)
    assert found[0]
    assert all(each == found[0] for each in found), "the same bytes in both modes, streamed or whole"
    assert MARK.encode() not in b"".join(bytes(part or b"") for pair in found[0] for part in pair)
