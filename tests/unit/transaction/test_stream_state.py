"""The table of states: which message may come where, and an error that names the place for every other one."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.assembly import (
    Assembly,
    begin,
    begin_prepare,
    commit,
    commit_prepared,
    insert,
    message,
    prepare,
    relation,
    rollback_prepared,
    stream_commit,
    stream_prepare,
    truncate,
)

from cdcd.errors import DecodeError
from cdcd.pgoutput import messages as m
from cdcd.pgoutput.encoder import tuple_of
from cdcd.transaction.stream_state import REPLAYING

XID = 700
DURABLE_LSN = 1000
ROW = tuple_of([b"1"])


def every_message(xid: int) -> dict[str, m.Message]:
    """One of every kind, by type byte; `m` is a Message that is not transactional. `xid` is 0 outside stream blocks."""
    return {
        "B": begin(2000), "C": commit(2000), "O": m.Origin(0, "far"), "R": relation(xid),
        "Y": m.Type(xid, 70_000, "public", "mood"),
        "I": insert(1, xid), "U": m.Update(xid, 7, m.NO_OLD, None, ROW), "D": m.Delete(xid, 7, m.KEY, ROW),
        "T": truncate(xid), "M": message(b"x", xid), "m": message(b"x", xid, 2000, transactional=False),
        "S": m.StreamStart(XID + 1, True), "E": m.StreamStop(), "c": stream_commit(XID, 2000),
        "A": m.StreamAbort(XID, XID), "p": stream_prepare(XID, 2000),
        "b": begin_prepare(XID + 1, 2000), "P": prepare(XID, 2000),
        "K": commit_prepared(XID, 900), "r": rollback_prepared(XID, 2000),
    }  # fmt: skip


BLOCK = [m.StreamStart(XID, True), relation(XID)]
STATES: dict[str, tuple[list[m.Message], str]] = {
    "between transactions": ([relation(), *BLOCK, m.StreamStop()], "RYBmSAcpbKr"),
    "inside a transaction": ([begin(1500), relation()], "RYIUDTOMC"),
    "inside a transaction that Kafka has": ([begin(900), relation()], "RYIUDTOMC"),
    "inside a stream block": (BLOCK, "RYIUDTOME"),
    "between Begin Prepare and Prepare": ([begin_prepare(XID, 1500), relation()], "RYIUDTOMP"),
}
"""How the stream gets there, and what may come then."""


@pytest.mark.parametrize("where", STATES)
@pytest.mark.parametrize("kind", every_message(0))
def test_a_message_is_taken_where_it_may_come_and_refused_with_the_place_elsewhere(
    where: str, kind: str, tmp_path: Path
) -> None:
    before, allowed = STATES[where]
    stream = Assembly(tmp_path, durable_lsn=DURABLE_LSN)
    stream.feed(*before)
    found = every_message(XID if where == "inside a stream block" else 0)[kind]
    if kind in allowed:
        stream.feed(found)
    else:
        name = m.NAMES[ord(kind.upper() if kind == "m" else kind)]
        with pytest.raises(DecodeError, match=rf"^{name} \(\d+ bytes, LSN 0/5\)") as caught:
            stream.feed(found)
        assert caught.value.message.endswith(f"must not come {where}")


def test_nothing_may_come_while_a_spooled_transaction_is_handed_on() -> None:
    assert not any(REPLAYING.allows(kind) for kind in range(256))


@pytest.mark.parametrize("ending", ["c", "p"])
def test_the_end_of_a_stream_that_never_started_is_an_error_that_names_it(ending: str, tmp_path: Path) -> None:
    with pytest.raises(DecodeError, match=r"of transaction 700, for which no Stream Start came"):
        Assembly(tmp_path).feed(every_message(0)[ending])
