from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from cdcd.cli.event_text import columns_text


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"id": 1, "name": "two words"}, 'id=1 name="two words"'),
        ({"empty": "", "none": None, "quote": 'a"b'}, 'empty="" none=null quote="a\\"b"'),
        ({"total": Decimal("1.50"), "raw": b"\x01", "pair": {"a": 1}}, 'total=1.50 raw=\\x01 pair={"a": 1}'),
        ("key-1", "key-1"),
        (None, ""),
    ],
)
def test_a_value_has_quotes_only_where_it_needs_them(row: Any, text: str) -> None:
    assert columns_text(row) == text
