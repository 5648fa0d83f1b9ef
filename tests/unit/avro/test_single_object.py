from __future__ import annotations

import pytest
from fastavro.schema import fingerprint as oracle
from hypothesis import given
from hypothesis import strategies as st

from cdcd.avro.single_object import HEADER_SIZE, fingerprint, header, split


@given(st.text(max_size=60))
def test_the_fingerprint_is_the_one_that_fastavro_computes_for_the_same_text(text: str) -> None:
    assert fingerprint(text).hex() == oracle(text, "CRC-64-AVRO")


def test_the_fingerprint_of_the_specification_example_is_javas() -> None:
    assert fingerprint('"int"').hex() == "8f5c393f1ad57572"  # 0x7275d51a3f395c8f in Java's test data, little-endian


def test_two_scales_of_one_decimal_have_two_fingerprints() -> None:
    two = '{"type":"bytes","logicalType":"decimal","precision":12,"scale":2}'
    assert fingerprint(two) != fingerprint(two.replace("2}", "4}"))


@given(st.binary(min_size=8, max_size=8), st.binary(max_size=20))
def test_split_gives_back_what_header_wrote(eight: bytes, payload: bytes) -> None:
    assert split(header(eight) + payload) == (eight.hex(), HEADER_SIZE)


@pytest.mark.parametrize(
    "value", [b"", b"\xc3", b"\xc3\x01" + b"1234567", b"\x00\x00\x00\x00\x01payload!", b"\xc3\x02" + b"x" * 9]
)
def test_a_value_of_another_format_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="opens with c301"):
        split(value)


def test_a_fingerprint_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="8 bytes, not 7"):
        header(b"1234567")
