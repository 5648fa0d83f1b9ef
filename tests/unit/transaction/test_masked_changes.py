"""A secret value on every way through a stream: it is neither in an event nor in the spool."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from support.assembly import (
    Assembly,
    begin,
    begin_prepare,
    block,
    commit,
    commit_prepared,
    prepare,
    stream_commit,
)

from cdcd.errors import DecodeError
from cdcd.pgoutput import messages as m
from cdcd.pgoutput.encoder import tuple_of
from cdcd.transaction.column_masks import HASH, Mask
from cdcd.transaction.column_rules import ColumnRule, ColumnRules

SECRET = b"the-secret-value"
KEY = b"0123456789abcdef"
HASHED = blake2b(SECRET, key=KEY, digest_size=16).hexdigest()
T = 700


def relation(xid: int = 0, *names: str, oid: int = 7, name: str = "t") -> m.Relation:
    columns = [m.Column(True, "id", 23, -1), *(m.Column(False, each, 25, -1) for each in names or ("gone", "a"))]
    return m.Relation(xid, oid, "public", name, "d", tuple(columns))


def insert(value: int, xid: int = 0, *more: bytes, oid: int = 7) -> m.Insert:
    return m.Insert(xid, oid, tuple_of([str(value).encode(), *(more or (SECRET, SECRET))]))


@pytest.fixture(params=[1 << 20, 1], ids=["memory", "disk"])
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> Assembly:
    rules = ColumnRules([ColumnRule("public.t", exclude=["gone"], masks={"a": Mask(HASH)})], KEY)
    return Assembly(tmp_path, memory_bytes=request.param, rules=rules)


def values(stream: Assembly) -> list[dict[str, Any]]:
    return [value["after"] for _, _, value in stream.records()]


def spooled(stream: Assembly) -> bytes:
    """All bytes that the spool keeps, in memory and in files."""
    kept = [frame for each in stream.spool._spooled.values() for frame in each._frames]
    return b"".join([*kept, *(path.read_bytes() for path in stream.files())])


def test_a_whole_transaction_is_masked(stream: Assembly) -> None:
    stream.feed(begin(50), relation(), insert(1), commit(50))
    assert values(stream) == [{"id": 1, "a": HASHED}]


def test_a_streamed_transaction_is_masked_before_the_spool_has_it(stream: Assembly) -> None:
    stream.feed(*block(T, relation(T), insert(1, T), first=True), *block(T, insert(2, T)))
    kept = spooled(stream)
    assert (SECRET in kept, kept.count(HASHED.encode())) == (False, 2)
    stream.feed(stream_commit(T, 100), begin(110), insert(3), commit(110))
    assert values(stream) == [{"id": each, "a": HASHED} for each in (1, 2, 3)], "the session masks what follows"


def test_a_prepared_transaction_is_masked_before_the_spool_has_it(stream: Assembly) -> None:
    stream.feed(begin(50), relation(), insert(1), commit(50))
    stream.feed(begin_prepare(T, 60), insert(2), m.Prepare(60, 70, 1, T, "g"))
    assert SECRET not in spooled(stream)
    stream.feed(begin_prepare(T + 1, 70, "h"), relation(0, "a", "gone"), insert(3), prepare(T + 1, 70, "h"))
    assert SECRET not in spooled(stream)
    stream.feed(commit_prepared(T, 80), commit_prepared(T + 1, 90, "h"), begin(110), insert(4), commit(110))
    assert values(stream) == [{"id": each, "a": HASHED} for each in (1, 2, 3, 4)]


def test_each_transaction_has_the_columns_that_the_server_told_it(stream: Assembly) -> None:
    """ALTER TABLE in one transaction in progress: another one still has the old order of columns."""
    stream.feed(*block(T, relation(T, "a", "gone"), insert(1, T, SECRET, b"x-gone"), first=True))
    stream.feed(*block(T + 50, relation(T + 50, "gone", "a"), insert(2, T + 50, b"x-gone", SECRET), first=True))
    stream.feed(*block(T, insert(3, T, SECRET, b"x-gone")), *block(T + 50, insert(4, T + 50, b"x-gone", SECRET)))
    kept = spooled(stream)
    assert (SECRET in kept, b"x-gone" in kept) == (False, False)
    stream.feed(stream_commit(T, 100), stream_commit(T + 50, 120))
    assert values(stream) == [{"id": each, "a": HASHED} for each in (1, 3, 2, 4)]


def test_a_rolled_back_relation_does_not_count(stream: Assembly) -> None:
    stream.feed(
        *block(T, relation(T), insert(1, T), relation(T + 1, "a", "b"), insert(2, T + 1, SECRET, b"b"), first=True)
    )
    stream.feed(m.StreamAbort(T, T + 1), *block(T, relation(T), insert(3, T)))
    assert SECRET not in spooled(stream)
    stream.feed(stream_commit(T, 100))
    assert values(stream) == [{"id": 1, "a": HASHED}, {"id": 3, "a": HASHED}]


def test_a_row_whose_relation_is_not_known_never_reaches_the_spool(stream: Assembly) -> None:
    stream.feed(begin(50), relation(), commit(50))
    with pytest.raises(DecodeError, match="before any Relation message"):
        stream.feed(*block(T, insert(1, T), first=True))
    assert SECRET not in spooled(stream)


def test_another_table_of_the_name_is_masked_and_the_one_that_lost_it_too(stream: Assembly) -> None:
    stream.feed(
        begin(50), relation(), insert(1), relation(0, "gone", "a", oid=8), insert(2, oid=8), insert(3), commit(50)
    )
    stream.feed(begin_prepare(T, 60), insert(4), insert(5, oid=8), prepare(T, 60))
    assert SECRET not in spooled(stream)
    stream.feed(commit_prepared(T, 80))
    assert values(stream) == [{"id": each, "a": HASHED} for each in (1, 2, 3, 4, 5)]


def test_tables_without_masks_keep_their_frames(stream: Assembly) -> None:
    stream.feed(
        *block(T, relation(T, oid=9, name="u"), insert(1, T, b"g", b"v", oid=9), first=True), stream_commit(T, 90)
    )
    assert values(stream) == [{"id": 1, "gone": "g", "a": "v"}]


def test_an_oversize_row_is_masked(stream: Assembly) -> None:
    large = SECRET * 100_000
    stream.feed(begin(50), relation(), insert(1, 0, large, large), commit(50))
    assert values(stream) == [{"id": 1, "a": blake2b(large, key=KEY, digest_size=16).hexdigest()}]
