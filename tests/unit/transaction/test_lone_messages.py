"""A logical message outside of transactions: the server names the end of its record, where the next one may commit."""

from __future__ import annotations

from pathlib import Path

from support.one_table import RELATION, Stream, begin, commit, insert

from cdcd.pgoutput import messages as m

END = 1000
MESSAGE = m.LogicalMessage(0, False, END, "p", b"x")


def test_a_transaction_that_commits_right_behind_a_message_is_not_taken_for_durable_with_it(tmp_path: Path) -> None:
    first = Stream(tmp_path / "first")
    first.feed(MESSAGE)
    batch = first.take()
    assert batch.commit_lsn < batch.end_lsn == END, "what is acknowledged must not reach into the next record"
    after = Stream(tmp_path / "after", batch.end_lsn)
    after.feed(MESSAGE, begin(END), RELATION, insert(1), commit(END))
    assert after.take().rows == 1, "the transaction's row, and not the message again"


def test_a_message_whose_record_ends_at_the_barrier_is_before_it(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.assembler.pause_before(END)
    stream.feed(MESSAGE, begin(END), RELATION, insert(1), commit(END))
    assert stream.take().rows == 1
    assert stream.assembler.is_paused
