"""What the server sends again is what Kafka has, or the stream ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.assembly import Assembly, insert, relation

from cdcd.avro.avro_format import AvroFormat
from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.debezium.debezium_format import DebeziumFormat
from cdcd.debezium.modes import DeleteMode, Modes, RowModes
from cdcd.errors import GapError
from cdcd.outbox.outbox_format import OutboxFormat
from cdcd.outbox.outbox_rules import OutboxRules
from cdcd.pgoutput import messages as m
from cdcd.pgoutput.decoder import Decoder
from cdcd.transaction.assembler import Assembler
from cdcd.transaction.column_masks import HASH, Mask
from cdcd.transaction.column_rules import ColumnRule, ColumnRules
from cdcd.transaction.event_format import EventFormat
from cdcd.transaction.headed_events import HeadedFormat
from cdcd.transaction.record_headers import HeaderChoice
from cdcd.transaction.relations import Relations
from cdcd.transaction.sent_again import SentAgain

DURABLE, LAST, LAST_TS = 0x1000, 0x800, 1_700_000_000_000_000


def after_restart(*, confirmed: int = 0x100, since: int = 0, last: int = LAST) -> SentAgain:
    return SentAgain(DURABLE, last, LAST_TS, confirmed, since)


def test_the_last_published_transaction_that_comes_again_proves_the_history() -> None:
    sent = after_restart()
    assert sent.has(0x400, 1)
    assert sent.awaits_last_published
    assert sent.has(LAST, LAST_TS)
    assert not sent.awaits_last_published
    assert not sent.has(DURABLE, LAST_TS + 1)


@pytest.mark.parametrize("commit_lsn", [LAST + 8, DURABLE, DURABLE + 8])
def test_another_transaction_where_it_should_have_come_is_another_history(commit_lsn: int) -> None:
    with pytest.raises(GapError, match=r"the last transaction in Kafka committed at 0/800 \(2023-.*does not have it"):
        after_restart().has(commit_lsn, LAST_TS)


def test_another_commit_time_at_the_same_position_is_another_history() -> None:
    with pytest.raises(GapError, match=r"the one that the server has there committed at 2023-11-14 22:13:20\.000001"):
        after_restart().has(LAST, LAST_TS + 1)


def test_a_message_outside_of_transactions_is_known_by_its_position_alone() -> None:
    sent = after_restart(last=0x7FF)
    assert sent.has(0x7FF, LAST_TS + 5)
    assert not sent.awaits_last_published


def test_a_keepalive_beyond_it_is_another_history_and_one_before_it_says_nothing() -> None:
    sent = after_restart()
    sent.on_position(LAST)
    with pytest.raises(GapError, match="the server's stream is at 0/808"):
        sent.on_position(LAST + 8)


def test_a_slot_confirmed_beyond_it_has_lived_through_it() -> None:
    sent = after_restart(confirmed=LAST + 8)
    assert not sent.awaits_last_published
    sent.on_position(DURABLE)
    assert not sent.has(DURABLE, 1)


def test_before_the_beginning_of_the_stream_nothing_must_come_again() -> None:
    sent = after_restart(since=DURABLE)
    assert sent.has(LAST + 8, 1)
    sent.check_rows()


def test_rows_where_the_progress_says_that_there_is_nothing_are_another_history() -> None:
    sent = after_restart()
    assert sent.has(LAST, LAST_TS)
    sent.check_rows()
    assert sent.has(LAST + 8, LAST_TS)  # a server before 15 sends transactions without rows, too
    with pytest.raises(GapError, match=r"a transaction with events that commits at 0/808, but the progress in Kafka"):
        sent.check_rows()


STREAMED = [
    m.StreamStart(8, True),
    relation(xid=8),
    insert(1, xid=8),
    m.StreamStop(),
    m.StreamCommit(8, 0x820, 0x828, 0),
]
PREPARED = [
    m.BeginPrepare(0x810, 0x818, 0, 8, "g"),
    relation(),
    insert(1),
    m.Prepare(0x810, 0x818, 0, 8, "g"),
    m.CommitPrepared(0x820, 0x828, 0, 8, "g"),
]
PLAIN = [m.Begin(0x820, 0, 8), relation(), insert(1), m.Commit(0x820, 0x828, 0)]


WAYS = pytest.mark.parametrize("messages", [STREAMED, PLAIN, PREPARED], ids=["streamed", "plain", "prepared"])


@WAYS
def test_rows_of_another_history_end_the_stream_however_they_come(tmp_path: Path, messages: list[m.Message]) -> None:
    stream = Assembly(tmp_path, sent_again=after_restart(confirmed=LAST + 8))
    stream.feed(m.Begin(0x810, 0, 7), m.Commit(0x810, 0x818, 0))
    with pytest.raises(GapError, match="a transaction with events"):
        stream.feed(*messages)


@WAYS
@pytest.mark.parametrize("kind", ["truncate", "truncate of several", "message"])
def test_truncates_and_messages_of_another_history_end_the_stream_too(
    tmp_path: Path, messages: list[m.Message], kind: str
) -> None:
    stream = Assembly(tmp_path, sent_again=after_restart(confirmed=LAST + 8))
    requests = m.Relation(0, 9, "cdcd", "requests", "d", relation().columns)
    stream.feed(requests, relation())
    xid = next((each.xid for each in messages if isinstance(each, m.Insert)), 0)
    oid = relation().relation_oid
    event = {
        "truncate": m.Truncate(xid, (oid,), False, False),
        "truncate of several": m.Truncate(xid, (9, oid), False, False),
        "message": m.LogicalMessage(xid, True, 0x818, "p", b"x"),
    }[kind]
    with pytest.raises(GapError, match="a transaction with events"):
        stream.feed(*(event if isinstance(each, m.Insert) else each for each in messages))


def test_a_message_outside_of_transactions_where_there_is_nothing_is_another_history(tmp_path: Path) -> None:
    stream = Assembly(tmp_path, sent_again=after_restart(confirmed=LAST + 8))
    with pytest.raises(GapError, match="a transaction with events that commits at 0/817"):
        stream.feed(m.LogicalMessage(0, False, 0x818, "p", b"x"))


def as_request(message: m.Message) -> m.Message:
    if not isinstance(message, m.Relation):
        return message
    return m.Relation(message.xid, message.relation_oid, "cdcd", "requests", "d", message.columns)


@WAYS
def test_a_truncate_of_the_requests_is_no_event(tmp_path: Path, messages: list[m.Message]) -> None:
    stream = Assembly(tmp_path, sent_again=after_restart(confirmed=LAST + 8))
    xid = next((each.xid for each in messages if isinstance(each, m.Insert)), 0)
    event = m.Truncate(xid, (relation().relation_oid,), False, False)
    stream.feed(*(event if isinstance(each, m.Insert) else as_request(each) for each in messages))
    assert not stream.take().rows


@WAYS
@pytest.mark.parametrize("is_known", [False, True], ids=["announced in it", "announced before"])
def test_requests_that_were_passed_over_are_no_rows_of_another_history(
    tmp_path: Path, messages: list[m.Message], is_known: bool
) -> None:
    stream = Assembly(tmp_path, sent_again=after_restart(confirmed=LAST + 8))
    if is_known:
        stream.feed(as_request(relation()))
        messages = [each for each in messages if not isinstance(each, m.Relation) or each.xid]
    stream.feed(*map(as_request, messages))
    assert not stream.take().rows


@WAYS
def test_a_row_beside_a_request_is_one_of_another_history(tmp_path: Path, messages: list[m.Message]) -> None:
    stream = Assembly(tmp_path, sent_again=after_restart(confirmed=LAST + 8))
    stream.feed(relation(oid=9))
    xid = next((each.xid for each in messages if isinstance(each, m.Insert)), 0)
    at = next(at for at, each in enumerate(messages) if isinstance(each, m.Insert))
    more = [relation(xid, oid=9), insert(2, xid, oid=9)]
    with pytest.raises(GapError, match="a transaction with events"):
        stream.feed(*map(as_request, messages[: at + 1]), *more, *messages[at + 1 :])


def test_requests_to_a_table_that_lost_its_name_since_are_no_rows_either(tmp_path: Path) -> None:
    stream = Assembly(tmp_path, sent_again=after_restart(confirmed=LAST + 8))
    stream.feed(as_request(relation()), as_request(relation(oid=9)))
    stream.feed(*(each for each in PLAIN if not isinstance(each, m.Relation)))
    assert not stream.take().rows


def debezium(modes: Modes) -> EventFormat:
    return DebeziumFormat(modes, ("p", "db"), "UTF8", lambda: 0)


def flat_rows(deletes: DeleteMode) -> EventFormat:
    return debezium(Modes(truncates=True, rows=RowModes(deletes=deletes)))


OUTBOX = OutboxRules("*.*", None, "outbox.{aggregate}", ("", "id", "id", "", "id"))
FORMATS: dict[str, tuple[EventFormat, str]] = {
    "own": (AvroFormat("string", "UTF8"), "IUDT"),
    "debezium": (debezium(Modes(truncates=True)), "IUDT"),
    "debezium without truncates": (debezium(Modes()), "IUD"),
    "rows with tombstones": (flat_rows("tombstone"), "IU"),
    "rows that are rewritten": (flat_rows("rewrite"), "IUD"),
    "rows alone": (flat_rows("drop"), "IU"),
    "outbox": (OutboxFormat(AvroFormat("string", "UTF8"), OUTBOX, TypeOptions()), "I"),
}
"""Formats, and the changes that are always events."""


@WAYS
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("has_masks", [False, True])
def test_a_change_that_need_not_be_an_event_of_the_format_is_no_evidence_of_another_history(
    tmp_path: Path, messages: list[m.Message], name: str, has_masks: bool
) -> None:
    events, always = FORMATS[name]
    headed = HeadedFormat(events, HeaderChoice(("op",), "p", "s", ""))
    rules = ColumnRules([ColumnRule("*.*", masks={"id": Mask(HASH)})] if has_masks else [], b"secret")
    xid = next((each.xid for each in messages if isinstance(each, m.Insert)), 0)
    oid, row = relation().relation_oid, insert(1).new
    changes = {
        "I": insert(1, xid),
        "U": m.Update(xid, oid, m.NO_OLD, None, row),
        "D": m.Delete(xid, oid, m.KEY, row),
        "T": m.Truncate(xid, (oid,), False, False),
    }
    for letter, change in changes.items():
        stream = Assembly(tmp_path / letter)
        stream.assembler = Assembler(
            Decoder(),
            Relations(stream.catalog, rules=rules),
            headed.stream_encoder(stream.batches),
            stream.spool,
            after_restart(confirmed=LAST + 8),
        )
        changed = [change if isinstance(each, m.Insert) else each for each in messages]
        if letter in always:
            with pytest.raises(GapError, match="a transaction with events"):
                stream.feed(*changed)
        else:
            stream.feed(*changed)
