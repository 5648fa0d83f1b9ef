"""Where the tuples of a change are; a frame that is malformed is named with its relation and its transaction."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.errors import DecodeError
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.source.pg_types import PgType
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation
from cdcd.transaction.tuple_checks import TupleChecks

INT4 = PgType(23, "pg_catalog", "int4")
CHECKS = TupleChecks(
    ResolvedRelation(1, "s", "t", "d", [ResolvedColumn("a", INT4, -1, True), ResolvedColumn("b", INT4, -1, False)])
)
ROW = encode_tuple([b"1", b"22"])
LSN = 0x16_B374_8000


def updated(frame: bytes, at: int) -> tuple[int, int]:
    old = CHECKS.old_of_update(frame, at, LSN)
    return old, CHECKS.new_of_update(frame, at, old, LSN)


def test_each_tuple_is_found_behind_its_letter() -> None:
    assert CHECKS.inserted(b"??N" + ROW, 2, LSN) == 3
    assert CHECKS.deleted(b"??K" + ROW, 2, LSN) == CHECKS.deleted(b"??O" + ROW, 2, LSN) == 3
    assert updated(b"??N" + ROW, 2) == (0, 3)
    assert updated(b"??K" + ROW + b"N" + ROW, 2) == updated(b"??O" + ROW + b"N" + ROW, 2) == (3, 4 + len(ROW))


@pytest.mark.parametrize(
    ("what", "frame", "message"),
    [
        ("inserted", b"", "Insert of 0 bytes .* lacks its N tuple"),
        ("inserted", b"K" + ROW, "lacks its N tuple"),
        ("inserted", b"N" + ROW + b"xy", "Insert .* has 2 bytes too many"),
        ("updated", b"", "Update .* is cut off before its tuples"),
        ("updated", b"K" + ROW, "Update .* lacks its N tuple"),
        ("updated", b"N" + ROW + b"x", "Update .* has 1 bytes too many"),
        ("deleted", b"", "Delete .* has neither a key nor an old tuple"),
        ("deleted", b"N" + ROW, "Delete .* has neither a key nor an old tuple"),
        ("deleted", b"K" + ROW + b"x", "Delete .* has 1 bytes too many"),
    ],
)
def test_a_malformed_frame_is_named(what: str, frame: bytes, message: str) -> None:
    check = updated if what == "updated" else partial(getattr(CHECKS, what), commit_lsn=LSN)
    with pytest.raises(DecodeError, match=message) as raised:
        check(frame, 0)
    assert "for s.t, in the transaction that commits at 16/B3748000," in raised.value.message


@pytest.mark.parametrize("identity", ["f", "d"])
def test_a_key_of_the_settings_needs_the_old_row_if_that_is_the_identity_of_the_whole(identity: str) -> None:
    """A new partition has the identity DEFAULT, whatever its root has."""
    relation = ResolvedRelation(
        1, "s", "t", identity, [ResolvedColumn("a", INT4, -1, True), ResolvedColumn("b", INT4, -1, False)]
    )
    TupleChecks(relation).deleted(b"K" + ROW, 0, LSN)
    relation.has_chosen_key = True
    checks = TupleChecks(relation)
    assert checks.deleted(b"O" + ROW, 0, LSN) == checks.old_of_update(b"O" + ROW + b"N" + ROW, 0, LSN) == 1
    calls = (
        partial(checks.deleted, b"K" + ROW, 0, LSN),
        partial(checks.old_of_update, b"N" + ROW, 0, LSN),
        partial(checks.old_of_update, b"K" + ROW + b"N" + ROW, 0, LSN),
    )
    for call in calls:
        if identity == "d":
            call()
            continue
        with pytest.raises(DecodeError, match=r"without the old row, which has the key \(a\)") as raised:
            call()
        assert raised.value.code == "partition-identity-lesser"


def test_a_malformed_row_of_copy_is_named() -> None:
    assert "a row of COPY of 3 bytes for s.t is cut off at 2" in CHECKS.malformed_row(b"abc", "is cut off at 2").message


@given(st.binary(max_size=60) | st.sampled_from([b"N" + ROW, b"K" + ROW + b"N" + ROW]).map(lambda f: f[:-1]))
def test_any_bytes_are_tuples_or_a_decode_error(frame: bytes) -> None:
    for check in (lambda: CHECKS.inserted(frame, 0, LSN), lambda: CHECKS.deleted(frame, 0, LSN)):
        try:
            assert check() == 1
        except DecodeError:
            pass
    try:
        old, new = updated(frame, 0)
    except DecodeError:
        return
    assert frame[new - 1 : new] == b"N"
    assert old in (0, 1)
