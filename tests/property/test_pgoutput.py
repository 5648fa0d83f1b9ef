"""pgoutput, for any message and for any bytes: encode then decode is identity; bytes give a message or DecodeError."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.wire_pgoutput import SAMPLES, Sample

from cdcd.errors import DecodeError
from cdcd.pgoutput import messages as m
from cdcd.pgoutput.decoder import Decoder
from cdcd.pgoutput.encoder import encode, encode_tuple, tuple_of
from cdcd.pgoutput.tuples import ANY_COUNT, UNCHANGED, Binary, tuple_end

quick = settings(deadline=None, max_examples=150)

lsns = st.integers(1, 2**63 - 1)
lsns_or_zero = st.integers(0, 2**63 - 1)
times = st.integers(-(2**63), 2**63 - 1)
oids = st.integers(0, 2**32 - 1)
xids = st.integers(1, 2**32 - 1)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
namespaces = names.map(lambda name: name or "pg_catalog")
flags = st.booleans()
values = st.none() | st.just(UNCHANGED) | st.binary(max_size=9) | st.binary(max_size=9).map(Binary)
rows = st.lists(values, max_size=6)
tuples = rows.map(tuple_of)
old_kinds = st.sampled_from([m.KEY, m.OLD])
columns = st.builds(m.Column, flags, names, oids, st.integers(-(2**31), 2**31 - 1))
two_phase = (lsns, lsns, times, xids, names)


def changes(xid: st.SearchStrategy[int]) -> st.SearchStrategy[m.Message]:
    """The messages that carry an xid inside a stream block, and 0 outside."""
    identities = st.sampled_from("dnfi")
    return st.one_of(
        st.builds(m.Relation, xid, oids, namespaces, names, identities, st.lists(columns, max_size=4).map(tuple)),
        st.builds(m.Type, xid, oids, namespaces, names),
        st.builds(m.Insert, xid, oids, tuples),
        st.builds(m.Update, xid, oids, st.just(m.NO_OLD), st.none(), tuples),
        st.builds(m.Update, xid, oids, old_kinds, tuples, tuples),
        st.builds(m.Delete, xid, oids, old_kinds, tuples),
        st.builds(m.Truncate, xid, st.lists(oids, max_size=4).map(tuple), flags, flags),
        st.builds(m.LogicalMessage, xid, flags, lsns_or_zero, names, st.binary(max_size=20)),
    )


others = st.one_of(
    st.builds(m.Begin, lsns, times, xids),
    st.builds(m.Commit, lsns, lsns, times),
    st.builds(m.Origin, lsns_or_zero, names),
    st.builds(m.StreamStart, xids, flags),
    st.builds(m.StreamStop),
    st.builds(m.StreamCommit, xids, lsns, lsns, times),
    st.builds(m.BeginPrepare, *two_phase),
    st.builds(m.Prepare, *two_phase),
    st.builds(m.CommitPrepared, *two_phase),
    st.builds(m.StreamPrepare, *two_phase),
    st.builds(m.RollbackPrepared, lsns, lsns, times, times, xids, names),
)
headers = st.integers(0, 30).map(bytes)


def decoded_or_none(frame: bytes, at: int, in_stream: bool, parallel: bool) -> m.Message | None:
    """The message, or None for a DecodeError; any other exception fails the test."""
    try:
        return Decoder(parallel).decode(frame, at, in_stream)
    except DecodeError:
        return None


@quick
@given(changes(st.just(0)) | others, headers, flags)
def test_encode_then_decode_is_identity(message: m.Message, header: bytes, parallel: bool) -> None:
    assert Decoder(parallel).decode(header + encode(message), len(header)) == message


@quick
@given(changes(xids), headers, flags)
def test_encode_then_decode_is_identity_inside_a_stream(message: m.Message, header: bytes, parallel: bool) -> None:
    assert Decoder(parallel).decode(header + encode(message), len(header), in_stream=True) == message


@quick
@given(st.builds(m.StreamAbort, xids, xids), st.builds(m.StreamAbort, xids, xids, lsns_or_zero, times))
def test_encode_then_decode_of_a_stream_abort_is_identity_by_the_option(
    plain: m.StreamAbort, parallel: m.StreamAbort
) -> None:
    assert Decoder(False).decode(encode(plain)) == plain
    assert Decoder(True).decode(encode(parallel)) == parallel


@quick
@given(st.sampled_from(sorted(m.NAMES)), st.binary(max_size=60), flags, flags)
def test_any_bytes_behind_a_type_give_a_message_or_decode_error(
    kind: int, body: bytes, in_stream: bool, parallel: bool
) -> None:
    frame = bytes([kind]) + body
    message = decoded_or_none(frame, 0, in_stream, parallel)
    if message is not None and not names_pg_catalog_in_full(message):
        assert encode(message) == as_read(frame, message), "what was accepted is what a server would have sent"


@quick
@given(st.binary(max_size=40), headers, flags, flags)
def test_any_bytes_give_a_message_or_decode_error(frame: bytes, header: bytes, in_stream: bool, parallel: bool) -> None:
    decoded_or_none(header + frame, len(header), in_stream, parallel)


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(SAMPLES), st.data())
def test_a_damaged_message_is_a_message_or_decode_error(sample: Sample, data: st.DataObject) -> None:
    frame = bytearray(sample.frame)
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    message = decoded_or_none(bytes(frame), 0, sample.in_stream, sample.parallel)
    if message is not None and not names_pg_catalog_in_full(message):
        assert encode(message) == as_read(bytes(frame), message)


def names_pg_catalog_in_full(message: m.Message) -> bool:
    """Whether the message may have been sent with `pg_catalog` spelt out, which no server does and we write short."""
    return isinstance(message, m.Relation | m.Type) and message.nspname == "pg_catalog"


def as_read(frame: bytes, message: m.Message) -> bytes:
    """The frame, where a logical message's prefix is no UTF-8 with the escapes that are read instead."""
    if not isinstance(message, m.LogicalMessage):
        return frame
    behind = 1 + 4 + len(message.content)
    start, end = len(encode(message)) - behind - len(message.prefix.encode()), len(frame) - behind
    return frame[:start] + frame[start:end].decode("utf-8", "backslashreplace").encode() + frame[end:]


@quick
@given(rows, headers, st.binary(max_size=9))
def test_the_end_of_a_tuple_is_where_its_bytes_end(row: list[object], header: bytes, behind: bytes) -> None:
    encoded = encode_tuple(row)  # type: ignore[arg-type]
    frame = header + encoded + behind
    assert tuple_end(frame, len(header), len(row)) == len(header) + len(encoded)
    assert tuple_of(row).values() == row  # type: ignore[arg-type]


@quick
@given(st.binary(max_size=40), st.integers(0, 40))
def test_the_walk_over_any_bytes_stays_inside_the_frame_or_fails(frame: bytes, at: int) -> None:
    try:
        end = tuple_end(frame, at, ANY_COUNT)
    except DecodeError:
        return
    assert at + 2 <= end <= len(frame)
