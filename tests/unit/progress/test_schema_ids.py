"""The records of the ids that a schema registry gave."""

from __future__ import annotations

import pytest

from cdcd.progress.schema_ids import SchemaId, is_schema_id, parse_schema_id

RECORD = SchemaId("cdcd", "shop.public.t-value", bytes(range(32)), 17, "http://registry:8081", 2)


def test_what_is_written_is_read_back() -> None:
    assert parse_schema_id(RECORD.value()) == RECORD
    assert is_schema_id(RECORD.key())


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"[]", b"{}", b'{"version":2}', b"[" * 100_000),
        *(RECORD.value().replace(b":17", b":-1"), RECORD.value().replace(b":17", b":2147483648")),
        *(RECORD.value().replace(b":1}", b":9}"), RECORD.value().replace(b'"sha256":"00', b'"sha256":"x')),
    ],
)
def test_a_record_that_cannot_be_understood_says_nothing(value: bytes) -> None:
    assert parse_schema_id(value) is None
