"""Masks in PostgreSQL's bytes: what a frame, a row of COPY and a Relation become, in both wire modes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import blake2b
from uuid import UUID

import pytest

from cdcd.errors import BinaryFormatUnsupported, DecodeError
from cdcd.pgoutput import messages as m
from cdcd.pgoutput.decoder import Decoder
from cdcd.pgoutput.encoder import encode, tuple_of
from cdcd.pgoutput.tuples import UNCHANGED, Binary, ColumnValue
from cdcd.source.pg_types import Attribute
from cdcd.source.stream_messages import XLogData
from cdcd.transaction.column_masks import (
    CONSTANT,
    HASH,
    LAST,
    MASKED,
    NOTHING,
    Mask,
    Masking,
    RelationMasking,
    StoredText,
    text_of,
)
from cdcd.transaction.column_rules import ColumnRule, ColumnRules

SECRET = b"0123456789abcdef"


def digest(text: bytes) -> bytes:
    return blake2b(text, key=SECRET, digest_size=16).hexdigest().encode()


def table(*columns: tuple[str, int]) -> m.Relation:
    return m.Relation(0, 7, "public", "t", "d", tuple(m.Column(name == "id", name, oid, -1) for name, oid in columns))


def masking(message: m.Relation, exclude: tuple[str, ...] = (), **masks: Mask) -> RelationMasking:
    found = ColumnRules([ColumnRule("public.t", exclude=exclude, masks=masks)], SECRET).masking(message)
    assert found is not None
    return found


def frame(message: m.Message) -> bytes:
    return XLogData(5, 5, 0, encode(message)).encode()


def masked(by: RelationMasking, message: m.Insert | m.Update | m.Delete) -> m.Message:
    """The message as it is behind the masks."""
    made = by.frame(frame(message), 30)
    assert made[0] == MASKED
    assert made[1:25] == frame(message)[1:25], "the positions stay"
    return Decoder().decode(made, 25)


def new(by: RelationMasking, *values: ColumnValue) -> list[ColumnValue]:
    found = masked(by, m.Insert(0, 7, tuple_of(values)))
    assert isinstance(found, m.Insert)
    return found.new.values()


@pytest.mark.parametrize(
    ("mask", "value", "wanted"),
    [
        (Mask(HASH), b"ada@example.org", digest(b"ada@example.org")),
        (Mask(HASH), b"", digest(b"")),
        (Mask(NOTHING), b"ada", None),
        (Mask(CONSTANT, constant=b"x"), b"ada", b"x"),
        (Mask(LAST, kept=4), b"0151-2345678", b"****5678"),
        (Mask(LAST, kept=4), b"5678", b"****"),
        (Mask(LAST, kept=4), b"", b"****"),
        (Mask(LAST, kept=2), "Grüße äö".encode(), "****äö".encode()),
        (Mask(LAST, kept=2), "äö".encode(), b"****"),
        (Mask(LAST, kept=2), b"\xff\xfe\xfd", b"****\xfe\xfd"),
    ],
)
def test_each_mask_takes_the_place_of_a_value(mask: Mask, value: bytes, wanted: bytes | None) -> None:
    by = masking(table(("id", 23), ("c", 25), ("z", 25)), c=mask)
    assert new(by, b"1", value, b"z") == [b"1", wanted, b"z"]
    assert new(by, b"1", Binary(value), b"z") == [b"1", wanted, b"z"], "in binary mode"


def test_a_hash_is_the_same_whether_it_is_kept_or_made_again() -> None:
    kept = Masking(SECRET)
    texts = [b"%d" % number for number in range(10_000)] + [b"long " * 100]
    for text in [*texts, *reversed(texts), *texts[-50:]]:
        assert kept.digest(text) == digest(text)


def test_a_null_stays_a_null_and_an_unchanged_value_stays_unchanged() -> None:
    by = masking(
        table(("a", 25), ("b", 25), ("c", 25), ("d", 25)),
        a=Mask(HASH), b=Mask(LAST, kept=4), c=Mask(CONSTANT, constant=b"x"), d=Mask(NOTHING),
    )  # fmt: skip
    assert new(by, None, None, None, None) == [None] * 4
    assert new(by, *[UNCHANGED] * 4) == [UNCHANGED, UNCHANGED, UNCHANGED, None]


def test_columns_that_are_left_out_are_gone_wherever_they_stand() -> None:
    columns = [("a", 25), ("id", 23), ("b", 25), ("c", 25)]
    by = masking(table(*columns), exclude=("a", "c"), b=Mask(CONSTANT, constant=b"x"))
    assert new(by, b"a", b"1", b"b", b"c") == [b"1", b"x"]
    relation = by.relation(table(*columns))
    assert [(column.name, column.type_oid, column.is_key) for column in relation.columns] == [
        ("id", 23, True), ("b", 25, False),
    ]  # fmt: skip


def test_the_old_row_of_an_update_and_of_a_delete_is_masked_too() -> None:
    by = masking(table(("id", 23), ("c", 25)), c=Mask(HASH))
    update = masked(by, m.Update(0, 7, m.OLD, tuple_of([b"1", b"old"]), tuple_of([b"1", b"new"])))
    assert isinstance(update, m.Update)
    assert update.old is not None
    assert (update.old.values(), update.new.values()) == ([b"1", digest(b"old")], [b"1", digest(b"new")])
    delete = masked(by, m.Delete(0, 7, m.KEY, tuple_of([b"1", None])))
    assert isinstance(delete, m.Delete)
    assert (delete.old_kind, delete.old.values()) == (m.KEY, [b"1", None])


@pytest.mark.parametrize(
    ("oid", "binary", "text"),
    [
        (21, struct.pack(">h", -3), b"-3"),
        (23, struct.pack(">i", 2**31 - 1), b"2147483647"),
        (20, struct.pack(">q", -(2**63)), b"-9223372036854775808"),
        (26, struct.pack(">I", 2**32 - 1), b"4294967295"),
        (16, b"\1", b"t"),
        (16, b"\0", b"f"),
        (17, b"\x00\xff", b"\\x00ff"),
        (2950, UUID(int=7 << 64).bytes, b"00000000-0000-0007-0000-000000000000"),
        (3802, b'\1{"a": 1}', b'{"a": 1}'),
        (1043, "ä".encode(), "ä".encode()),
    ],
)
def test_the_binary_form_of_a_value_has_the_same_mask_as_its_text(oid: int, binary: bytes, text: bytes) -> None:
    assert text_of("c", oid, binary) == text
    by = masking(table(("id", 23), ("c", oid)), c=Mask(HASH))
    assert by.text_only == []
    assert new(by, b"1", Binary(binary)) == new(by, b"1", text) == [b"1", digest(text)]


def test_a_type_without_a_text_here_asks_for_text_mode() -> None:
    by = masking(table(("id", 23), ("c", 1700), ("d", 1700)), c=Mask(HASH), d=Mask(NOTHING))
    assert by.text_only == ["c"]
    with pytest.raises(BinaryFormatUnsupported) as caught:
        new(by, b"1", Binary(b"secret"), None)
    assert "secret" not in str(caught.value)
    assert new(by, b"1", b"1.50", b"2") == [b"1", digest(b"1.50"), None]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data + b"N",
        lambda data: data[:31] + b"\0\3" + data[33:],
        lambda data: data[:33] + b"x" + data[34:],
    ],
)
def test_a_damaged_frame_is_an_error_that_shows_no_value(damage: Callable[[bytes], bytes]) -> None:
    by = masking(table(("id", 23), ("c", 25)), c=Mask(HASH))
    with pytest.raises(DecodeError) as caught:
        by.frame(damage(frame(m.Insert(0, 7, tuple_of([b"1", b"very-secret"])))), 30)
    assert "very-secret" not in str(caught.value)


def row(*values: bytes | None) -> bytes:
    """The columns of a row as COPY has them."""
    return b"".join(
        struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value for value in values
    )


def test_a_row_of_copy_has_the_same_masks_and_lacks_what_is_left_out_already() -> None:
    by = masking(
        table(("id", 23), ("gone", 25), ("c", 25), ("d", 25), ("e", 25), ("f", 23)),
        exclude=("gone",), c=Mask(HASH), d=Mask(NOTHING), e=Mask(LAST, kept=2),
    )  # fmt: skip
    copied = b"head" + row(b"\0\0\0\1", b"ada", b"x", b"12345", b"\0\0\0\2")
    assert by.row(copied, 4) == b"head" + row(b"\0\0\0\1", digest(b"ada"), None, b"****45", b"\0\0\0\2")
    nulls = row(b"\0\0\0\1", None, None, None, None)
    assert by.row(nulls, 0) == nulls
    for size in (0, 3, 6, 9, 12):
        with pytest.raises(DecodeError):
            by.row(copied[4 : 4 + size], 0)


def test_missing_values_of_added_columns_are_masked_and_never_twice() -> None:
    by = masking(
        table(("a", 23), ("b", 25), ("c", 25), ("d", 23)),
        a=Mask(HASH), b=Mask(LAST, kept=2), c=Mask(NOTHING), d=Mask(CONSTANT, constant=b"x"),
    )  # fmt: skip
    wanted = {
        "a": Attribute(1, 25, digest(b"1234").decode()),
        "b": Attribute(1, 25, "****34"),
        "c": Attribute(1, 23, None),
        "d": Attribute(1, 25, "x"),
    }
    for name, attribute in wanted.items():
        once = by.attribute(name, Attribute(1, 23, "1234"))
        assert once == attribute
        assert by.attribute(name, once, again=True) == attribute
        assert by.attribute(name, Attribute(1, 25, "1234"), again=True).missing_value == attribute.missing_value
    assert by.attribute("z", Attribute(1, 23, "1")) == Attribute(1, 23, "1")


def test_text_that_comes_as_it_is_stored_has_the_same_hash_and_keeps_whole_characters() -> None:
    rules = ColumnRules([ColumnRule("*.*", masks={"a": Mask(HASH), "b": Mask(LAST, kept=1)})], SECRET)
    by = rules.masking(table(("a", 25), ("b", 25)))
    assert by is not None
    stored = "日本".encode("euc_jp")
    rules.take_stored_text(StoredText(lambda raw: raw.decode("euc_jp"), lambda raw: [raw[:2], raw[2:]]))
    assert new(by, stored, stored) == [digest("日本".encode()), b"****" + stored[2:]]
    rules.take_stored_text(None)
    assert new(by, "日本".encode(), b"x") == [digest("日本".encode()), b"****"]
