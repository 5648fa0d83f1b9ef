"""Progress records: a stable format, read strictly."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.errors import GapError
from cdcd.lsn import format_lsn
from cdcd.progress.records import (
    DeferredTable,
    ParkedTable,
    SlotRecord,
    SnapshotState,
    TableRecord,
    TableRecordForm,
    TopicState,
    parse_record,
    parse_slot_record,
    slot_key,
    table_key,
)

SLOT = SlotRecord(
    slot="cdcd",
    lsn=0x16_B374_D890,
    commit_lsn=0x16_B374_D848,
    commit_ts=1_700_000_000_000_000,
    system_id="7300000000000000001",
    timeline=2,
    transactions=3,
    rows=40,
    cluster_id="4L6g3nShT-eMCtK--X86sw",
    own_topics={"shop.schemas": TopicState("uO8xhBqWSiCfPDKq3Lhk1g", (3,))},
    tables_offset=9,
)
TABLE = TableRecord(
    slot="cdcd",
    topic="shop.public.orders",
    schema="public",
    table="orders",
    commit_lsn=0x16_B374_D848,
    offsets=(7, 0, 12),
    snapshot=SnapshotState(lsn=0x15_0000_0001, done=True, rows=99),
    topic_id="AAAAAAAAAAAAAAAAAAAAAQ",
)


def test_the_format_of_a_slot_record_is_stable() -> None:
    assert SLOT.key() == b"cdcd"
    assert SLOT.value() == (
        b'{"cluster_id":"4L6g3nShT-eMCtK--X86sw","commit_lsn":"16/B374D848","commit_ts":1700000000000000,'
        b'"lsn":"16/B374D890","own_topics":{"shop.schemas":{"offsets":[3],"topic_id":"uO8xhBqWSiCfPDKq3Lhk1g"}},'
        b'"rows":40,"slot":"cdcd","system_id":"7300000000000000001","tables_offset":9,"timeline":2,"transactions":3,'
        b'"version":2}'
    )


def test_a_base_is_written_only_where_there_is_one_and_gives_the_servers_own_lsn() -> None:
    moved = replace(SLOT, lsn_base=0x15 << 32)
    assert parse_slot_record(b"cdcd", moved.value()) == moved
    assert json.loads(moved.value())["lsn_base"] == "15/0"
    assert "lsn_base" not in json.loads(SLOT.value())
    assert moved.server_lsn == 0x1_B374_D890


def test_a_pause_of_the_snapshots_is_written_only_while_it_lasts() -> None:
    paused = replace(SLOT, snapshots_paused=True)
    assert parse_slot_record(b"cdcd", paused.value()) == paused
    assert json.loads(paused.value())["snapshots_paused"] is True
    assert "snapshots_paused" not in json.loads(SLOT.value())


def test_the_format_of_a_table_record_is_stable() -> None:
    assert TABLE.key() == b"cdcd/shop.public.orders"
    assert TABLE.value() == (
        b'{"commit_lsn":"16/B374D848","offsets":[7,0,12],"schema":"public","slot":"cdcd",'
        b'"snapshot":{"done":true,"lsn":"15/1","rows":99},"table":"orders","topic":"shop.public.orders",'
        b'"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","version":2}'
    )


def test_a_table_record_keeps_a_key_if_it_has_one() -> None:
    for key in ((), ("id", "tenant")):
        record = replace(TABLE, key_columns=key)
        assert f'"key_columns":{json.dumps(list(key), separators=(",", ":"))}' in record.value().decode()
        assert parse_record(record.key(), record.value()) == record
    with pytest.raises(GapError, match="texts were expected, not 7"):
        parse_record(TABLE.key(), TABLE.value().replace(b'"offsets"', b'"key_columns":[7],"offsets"'))


lsns = st.integers(0, 2**64 - 1)
counts = st.integers(0, 2**63 - 1)
snapshots = st.none() | st.builds(SnapshotState, lsn=lsns, done=st.booleans(), rows=counts)
slot_records = st.builds(
    SlotRecord,
    slot=st.from_regex("[a-z0-9_]{1,63}", fullmatch=True),
    lsn=lsns,
    commit_lsn=lsns,
    commit_ts=counts,
    system_id=st.text(),
    timeline=counts,
    transactions=counts,
    rows=counts,
    cluster_id=st.text(),
    own_topics=st.dictionaries(st.text(), st.builds(TopicState, st.text(), st.lists(counts).map(tuple))),
    tables_offset=counts,
)
table_records = st.builds(
    TableRecord,
    slot=st.from_regex("[a-z0-9_]{1,63}", fullmatch=True),
    topic=st.from_regex("[a-zA-Z0-9._-]{1,249}", fullmatch=True),
    schema=st.text(),
    table=st.text(),
    commit_lsn=lsns,
    offsets=st.lists(counts).map(tuple),
    snapshot=snapshots,
    topic_id=st.text(),
)


@given(slot_records | table_records)
def test_what_is_written_is_read_back(record: SlotRecord | TableRecord) -> None:
    assert parse_record(record.key(), record.value()) == record


scalars = st.none() | st.booleans() | st.floats() | st.text() | st.integers()
documents = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(st.binary(), st.binary() | documents.map(lambda document: json.dumps(document).encode()))
def test_anything_else_is_a_gap_and_never_another_exception(key: bytes, value: bytes) -> None:
    with pytest.raises(GapError, match="progress record"):
        parse_record(key, value)


def test_a_record_that_is_nested_without_end_is_a_gap() -> None:
    with pytest.raises(GapError, match="progress record"):
        parse_record(b"s", b"[" * 100_000)


@pytest.mark.parametrize("lsn", ["-1/0", " 1/0", "1_0/0", "+1/0", "٣/0", "0x1/0", "1/0\n", "123456789/0"])
def test_a_text_that_is_no_lsn_is_a_gap(lsn: str) -> None:
    document = json.loads(SLOT.value())
    with pytest.raises(GapError, match="an LSN looks like"):
        parse_slot_record(b"s", json.dumps({**document, "lsn": lsn}).encode())


@pytest.mark.parametrize("record", [SLOT, TABLE])
@pytest.mark.parametrize("bad", [None, True, 1.5, -1, "x", [], {}, [-1], [True], ["1"]])
def test_a_field_that_is_missing_or_of_another_type_is_named(record: SlotRecord | TableRecord, bad: object) -> None:
    document = json.loads(record.value())
    for field, good in document.items():
        if (type(good), bad) in [(str, "x"), (list, []), (dict, {})] and "lsn" not in field and field != "snapshot":
            continue  # another value of the right type
        if field == "snapshot" and bad is None:
            continue
        with pytest.raises(GapError) as caught:
            parse_record(record.key(), json.dumps({**document, field: bad}).encode())
        assert repr(record.key().decode()) in caught.value.message
        if field == "snapshot" or "lsn" in field or field == "version":
            continue
        assert repr(field) in caught.value.message


@pytest.mark.parametrize("version", [1, 3])
def test_a_field_of_the_future_is_ignored_but_another_version_is_refused(version: int) -> None:
    document = json.loads(SLOT.value())
    assert parse_slot_record(b"cdcd", json.dumps({**document, "more": 1}).encode()) == SLOT
    with pytest.raises(GapError, match=f"version {version}; this cdcd reads version 2"):
        parse_slot_record(b"cdcd", json.dumps({**document, "version": version}).encode())


def test_keys_of_slots_and_tables_never_meet() -> None:
    assert slot_key("a") == b"a"
    assert table_key("a", "b") == b"a/b"


def test_the_slot_record_carries_parked_and_deferred_tables() -> None:
    parked = (
        ParkedTable("public", "a", "too large", 0x100, 7),
        ParkedTable("x", "y", "z", 0, 0, is_replaying=True),
        ParkedTable("x", "z", "its key is not known", 0, 0, is_keyless=True, shares_topic=True),
    )
    deferred = (
        DeferredTable("public", "b", 0x200, 9),
        DeferredTable("public", "c", 0, 0, is_replaying=True, shares_topic=True),
    )
    record = SlotRecord("s", 2, 1, 1, "7", 1, 1, 1, parked, deferred=deferred)
    assert parse_slot_record(record.key(), record.value()) == record
    assert record.incomplete == parked + deferred
    bare = SlotRecord("s", 2, 1, 1, "7", 1, 1, 1).value()
    assert b"parked" not in bare
    assert b"deferred" not in bare


@pytest.mark.parametrize("name", ["t", 'x"offsets":[]', '"commit_lsn":"0/0"', "é\\", "a" * 300])
@pytest.mark.parametrize("snapshot", [None, SnapshotState(0, True, 3, where='"offsets":[]')])
def test_the_form_of_a_tables_records_gives_what_each_record_gives(name: str, snapshot: SnapshotState | None) -> None:
    record = TableRecord("s", f"p.{name}", name, name, 0x1_0000_00FF, (5, 0, 1 << 40), snapshot, "id", True, (name,), 7)
    for each in (record, replace(record, lacks_records=False, key_columns=None, oid=None), replace(record, offsets=())):
        form = TableRecordForm(replace(each, commit_lsn=9, offsets=(1,)))
        assert form.value(format_lsn(each.commit_lsn), each.offsets) == each.value()
