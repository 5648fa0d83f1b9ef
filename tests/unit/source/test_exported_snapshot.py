"""A snapshot whose tables are altered is taken again, and not for ever."""

from __future__ import annotations

import pytest

from cdcd.errors import RequestRejected
from cdcd.source.exported_snapshot import TRIES, until_unaltered
from cdcd.source.server_errors import SnapshotGone


def test_a_snapshot_is_taken_again_until_it_shows_its_tables() -> None:
    answers = [SnapshotGone("public.t was altered"), SnapshotGone("public.t was altered"), None]

    def take() -> int:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return 7

    assert until_unaltered(take) == 7
    assert not answers


def test_tables_that_are_altered_all_the_time_are_named() -> None:
    calls = []

    def take() -> None:
        calls.append(1)
        raise SnapshotGone("public.t was altered while the snapshot was taken")

    with pytest.raises(RequestRejected, match=rf"public\.t was altered .*, {TRIES} times"):
        until_unaltered(take)
    assert len(calls) == TRIES
