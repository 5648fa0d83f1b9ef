"""Each message of protocol 1 to 4, whole, cut short, too long, and wrong in each field that can be wrong."""

from __future__ import annotations

import pytest
from support.wire_pgoutput import SAMPLES, Sample

from cdcd.errors import DecodeError
from cdcd.pgoutput import messages as m
from cdcd.pgoutput.decoder import Decoder

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)


def decode(sample: Sample, frame: bytes | None = None, at: int = 0) -> m.Message:
    return Decoder(sample.parallel).decode(sample.frame if frame is None else frame, at, sample.in_stream)


def error_of(frame: str, in_stream: bool = False, parallel: bool = False) -> str:
    with pytest.raises(DecodeError) as caught:
        Decoder(parallel).decode(bytes.fromhex(frame), 0, in_stream)
    return caught.value.message


def test_the_samples_hold_every_message_type() -> None:
    assert {sample.frame[0] for sample in SAMPLES} == set(m.NAMES)


@every_sample
def test_a_message_is_read_from_the_documented_bytes(sample: Sample) -> None:
    message = decode(sample)
    assert message == sample.message
    assert type(message) is type(sample.message)


@every_sample
def test_a_message_is_read_behind_the_header_of_its_frame(sample: Sample) -> None:
    assert decode(sample, bytes(25) + sample.frame, 25) == sample.message


@every_sample
def test_a_base_is_added_to_every_lsn_of_the_server_and_to_nothing_else(sample: Sample) -> None:
    base = 5 << 32
    found = Decoder(sample.parallel, None, base).decode(sample.frame, 0, sample.in_stream)
    for name in type(found).__match_args__:
        was = getattr(sample.message, name)
        is_own = name.endswith("lsn") and name != "origin_lsn" and was is not None
        assert getattr(found, name) == (was + base if is_own else was), name


@every_sample
def test_a_message_cut_short_anywhere_is_an_error_that_names_the_message(sample: Sample) -> None:
    header = b"w" + bytes(24)
    for length in range(len(sample.frame)):
        with pytest.raises(DecodeError) as caught:
            decode(sample, header + sample.frame[:length], 25)
        name = m.NAMES[sample.frame[0]] if length else "pgoutput message"
        assert caught.value.message.startswith(f"{name}: field "), length
        assert "offset" in caught.value.message
        assert caught.value.hint


@every_sample
def test_a_byte_too_many_is_an_error(sample: Sample) -> None:
    for extra in (b"\0", b"I", b"\xff"):
        with pytest.raises(DecodeError, match=f"wants its end at offset {len(sample.frame)}, got 1 bytes more"):
            decode(sample, sample.frame + extra)


def test_the_row_stays_in_the_frame() -> None:
    frame = bytes(25) + bytes.fromhex("49 00004003 4E 0001 74 00000001 31")
    message = Decoder().decode(frame, 25)
    assert isinstance(message, m.Insert)
    assert message.new.frame is frame
    assert (message.new.at, message.new.end, message.new.column_count) == (31, 39, 1)


def test_a_stream_abort_is_read_by_the_option_and_not_by_its_length() -> None:
    short, long = "41 00000001 00000002", "41 00000001 00000002 0000000000000005 0000000000000006"
    assert error_of(short, parallel=True) == "Stream Abort: field abort_lsn at offset 9 wants 8 bytes, got 0"
    assert error_of(long) == "Stream Abort: wants its end at offset 9, got 16 bytes more"


def test_a_streamed_change_read_as_a_plain_one_is_an_error_and_the_reverse() -> None:
    assert "tuple kind at offset 5 wants N" in error_of("49 000002F1 00004003 4E 0000")
    assert "relation_oid at offset 5 wants 4 bytes, got 3" in error_of("49 00004003 4E 0000", in_stream=True)


@pytest.mark.parametrize(
    ("frame", "in_stream", "wanted"),
    [
        ("", False, "pgoutput message: field type at offset 0 wants 1 bytes, got 0"),
        ("00", False, "field type at offset 0 wants one of BCORYIUDTM, SEcA or bPKrp, got byte 0x00"),
        ("42 0000000000000000", False, "Begin: field final_lsn at offset 1 wants an LSN, got 0/0"),
        ("42 8000000000000000", False, "offset 1 wants an LSN below 80000000/0, got 80000000/0"),
        ("42 FFFFFFFFFFFFFFFF", False, "got FFFFFFFF/FFFFFFFF"),
        ("42 0000000000000001 0000000000000001 00000000", False, "xid at offset 17 wants a transaction id, got 0"),
        ("43 01", False, "Commit: field flags at offset 1 wants flags within 0x00, got 0x01"),
        ("43 00 0000000000000001 0000000000000000", False, "end_lsn at offset 10 wants an LSN"),
        (
            "4F 0000000000000001 616263",
            False,
            "Origin: field name at offset 9 has no terminating zero byte within 3 bytes",
        ),
        (
            "52 00000001 6100 6200 78 0000",
            False,
            "Relation: field replica_identity at offset 9 wants d, n, f or i, got byte 0x78",
        ),
        ("52 00000001 6100 6200 64 FFFF", False, "Relation: field natts at offset 10 wants 0 or more, got -1"),
        ("52 00000001 6100 6200 64 0001 02", False, "column flags at offset 12 wants flags within 0x01, got 0x02"),
        (
            "52 00000000 00000001 6100 6200 64 0000",
            True,
            "Relation: field xid at offset 1 wants a transaction id, got 0",
        ),
        ("49 00000001 4B 0000", False, "Insert: field tuple kind at offset 5 wants N, got byte 0x4b"),
        ("55 00000001 58 0000", False, "Update: field tuple kind at offset 5 wants K, O or N, got byte 0x58"),
        ("55 00000001 4B 0000 4B 0000", False, "Update: field tuple kind at offset 8 wants N, got byte 0x4b"),
        ("44 00000001 4E 0000", False, "Delete: field tuple kind at offset 5 wants K or O, got byte 0x4e"),
        (
            "49 00000001 4E 0001 76",
            False,
            "new tuple (column 1 of 1) at offset 8 wants kind n, u, t or b, got byte 0x76",
        ),
        ("54 7FFFFFFF 00 00000001", False, "Truncate: field relation_oid at offset 10 wants 4 bytes, got 0"),
        ("54 80000000 00", False, "Truncate: field nrelids at offset 1 wants 0 or more, got -2147483648"),
        ("54 00000000 04", False, "Truncate: field options at offset 5 wants flags within 0x03, got 0x04"),
        (
            "4D 02 0000000000000001 00 00000000",
            False,
            "Message: field flags at offset 1 wants flags within 0x01, got 0x02",
        ),
        ("4D 00 0000000000000001 00 FFFFFFFF", False, "Message: field content at offset 11 wants 0 or more, got -1"),
        (
            "4D 00 0000000000000001 00 7FFFFFFF",
            False,
            "Message: field content at offset 15 wants 2147483647 bytes, got 0",
        ),
        ("53 00000001 02", False, "Stream Start: field first_segment at offset 5 wants flags within 0x01, got 0x02"),
        ("63 00000001 80", False, "Stream Commit: field flags at offset 5 wants flags within 0x00, got 0x80"),
        ("41 00000001 00000000", False, "Stream Abort: field subxid at offset 5 wants a transaction id, got 0"),
    ],
)
def test_what_the_protocol_forbids_is_named(frame: str, in_stream: bool, wanted: str) -> None:
    assert wanted in error_of(frame, in_stream)


def test_a_name_that_is_not_utf8_is_an_error_with_the_database_encoding_as_hint() -> None:
    with pytest.raises(DecodeError) as caught:
        Decoder().decode(bytes.fromhex("4F 0000000000000001 61FF00"))
    assert (
        caught.value.message == "Origin: field name at offset 9 wants UTF-8, got another encoding's byte at offset 10"
    )
    assert "SQL_ASCII" in caught.value.hint
    assert caught.value.__context__ is None, "Python's own error would carry the bytes along"


def test_a_message_of_another_encoding_keeps_the_bytes_of_its_prefix_in_sight() -> None:
    message = Decoder().decode(bytes.fromhex("4D 00 0000000000000001 636166E9 00 00000001 FF"))
    assert isinstance(message, m.LogicalMessage)
    assert (message.prefix, message.content) == ("caf\\xe9", b"\xff")


def test_the_number_by_which_compiled_code_marks_an_error_is_a_value_like_any_other() -> None:
    minus_113 = "FFFFFFFFFFFFFF8F"
    assert Decoder().decode(bytes.fromhex(f"42 0000000000000001 {minus_113} 00000002")) == m.Begin(1, -113, 2)
    relation = Decoder().decode(bytes.fromhex("52 FFFFFF8F 7300 7400 64 0001 00 6100 FFFFFF8F FFFFFF8F"))
    column = m.Column(False, "a", 2**32 - 113, -113)
    assert relation == m.Relation(0, 2**32 - 113, "s", "t", "d", (column,))


def test_no_error_shows_a_rows_value() -> None:
    secret = b"hunter2"
    good = bytes.fromhex("49 00004003 4E 0002 74 00000007") + secret + bytes.fromhex("74 00000007") + secret
    for length in range(len(good)):
        with pytest.raises(DecodeError) as caught:
            Decoder().decode(good[:length])
        assert "hunt" not in str(caught.value)
    with pytest.raises(DecodeError) as caught:
        Decoder().decode(good + secret)
    assert "hunt" not in str(caught.value)
