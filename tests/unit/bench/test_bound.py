from __future__ import annotations

import pytest
from bench.bound import bound_by


@pytest.mark.parametrize(
    ("cores", "machine_share", "bound"),
    [
        ({"walsender": 0.97, "daemon": 0.60, "librdkafka": 0.30, "broker": 0.40}, 1.0, "walsender"),
        ({"walsender": 0.91, "daemon": 0.99, "librdkafka": 0.30, "broker": 0.40}, 0.5, "daemon"),
        ({"walsender": 0.10, "daemon": 0.20, "librdkafka": 0.95, "broker": 0.40}, 0.9, "librdkafka"),
        ({"walsender": 0.10, "daemon": 0.20, "librdkafka": 0.50, "broker": 0.90}, 0.9, "broker"),
        ({"walsender": 0.80, "daemon": 0.60, "librdkafka": 0.20, "broker": 0.40}, 0.97, "machine"),
        ({"walsender": 0.30, "daemon": 0.20, "librdkafka": 0.10, "broker": 0.20}, 0.5, "waits"),
    ],
)
def test_the_busiest_part_binds_else_the_full_machine_else_they_wait(
    cores: dict[str, float], machine_share: float, bound: str
) -> None:
    assert bound_by(cores, machine_share) == bound
