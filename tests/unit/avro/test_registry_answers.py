from __future__ import annotations

import pytest

from cdcd.avro.registry_answers import Meaning, meaning


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        # Confluent's own codes, as its table of errors has them.
        (404, 40401, Meaning.MISSING),
        (404, 40402, Meaning.MISSING),
        (404, 40403, Meaning.MISSING),
        (404, 40404, Meaning.MISSING),
        (404, 40406, Meaning.MISSING),
        (409, 40901, Meaning.REFUSED),
        (409, 409, Meaning.REFUSED),
        (422, 42201, Meaning.REFUSED),
        (422, 42205, Meaning.FORBIDDEN),
        (422, 42207, Meaning.REFUSED),
        (422, 42208, Meaning.REFUSED),
        (422, 42209, Meaning.REFUSED),
        (422, 42210, Meaning.REFUSED),
        (500, 50001, Meaning.PASSING),
        (500, 50002, Meaning.PASSING),
        (500, 50003, Meaning.PASSING),
        (500, 50004, Meaning.PASSING),
        # HTTP's, as proxies and gateways answer.
        (302, -1, Meaning.NO_REGISTRY),
        (400, -1, Meaning.REFUSED),
        (401, 40101, Meaning.UNKNOWN_USER),
        (403, 40301, Meaning.FORBIDDEN),
        (404, -1, Meaning.NO_REGISTRY),
        (404, None, Meaning.NO_REGISTRY),
        (405, -1, Meaning.FORBIDDEN),
        (407, -1, Meaning.UNKNOWN_USER),
        (408, -1, Meaning.PASSING),
        (413, -1, Meaning.REFUSED),
        (429, 42901, Meaning.PASSING),
        (429, -1, Meaning.PASSING),
        (501, -1, Meaning.NO_REGISTRY),
        (502, -1, Meaning.PASSING),
        (503, -1, Meaning.PASSING),
        (504, -1, Meaning.PASSING),
        (599, -1, Meaning.PASSING),
    ],
)
def test_every_answer_means_one_thing(status: int, code: int | None, expected: Meaning) -> None:
    assert meaning(status, code) is expected


def test_a_client_error_that_nobody_listed_stops_one_table_and_not_the_daemon() -> None:
    listed = {401, 404, 407}
    for status in set(range(400, 500)) - listed:
        assert meaning(status, -1) in (Meaning.REFUSED, Meaning.FORBIDDEN, Meaning.PASSING), status
