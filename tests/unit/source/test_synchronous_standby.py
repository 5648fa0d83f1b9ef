from __future__ import annotations

import pytest

from cdcd.source.synchronous_standby import names_standby


@pytest.mark.parametrize(
    ("names", "is_named"),
    [
        ("cdcd", True),
        ("*", True),
        ("FIRST 1 (a, CDCD)", True),
        ('ANY 2 ("cdcd", b)', True),
        ("", False),
        ("cdcd2, other", False),
        ('"my cdcd"', False),
    ],
)
def test_commits_wait_for_a_name_in_the_list(names: str, is_named: bool) -> None:
    assert names_standby(names, "cdcd") is is_named


@pytest.mark.parametrize(
    ("names", "own"), [('"my cdcd"', "my cdcd"), ('"say ""hi"""', 'say "hi"'), ("shop", "Shop"), ('"A.b"', "a.B")]
)
def test_any_application_name_is_recognized(names: str, own: str) -> None:
    assert names_standby(names, own)
