"""A minute and a half of chaos on one broker, as long on three; `run.py` makes an hour of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from chaos.run import chaos
from servers.jars import KAFKA, NEWEST

MINUTES = float(os.environ.get("CDCD_TEST_CHAOS_MINUTES", "1.5"))
POSTGRES = int(os.environ.get("CDCD_TEST_POSTGRES", NEWEST))


@pytest.mark.in_turns(2)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("brokers", [1, 3])
def test_every_transaction_comes_once_and_whole_whatever_breaks(tmp_path: Path, brokers: int) -> None:
    # A new checkout gives a new seed, so CI tries many; the report names the seed.
    seed = int(os.environ.get("CDCD_TEST_CHAOS_SEED", "0")) or int(Path(__file__).stat().st_mtime) % 1_000_000
    kafka = os.environ.get("CDCD_TEST_KAFKA", KAFKA)
    report = chaos(tmp_path, MINUTES, seed, version=POSTGRES, kafka_version=kafka, brokers=brokers)
    print(f"\n{report.as_text()}")
    assert not report.problems, "\n".join(report.problems)
    assert report.lost == report.doubled == 0
    assert report.transactions > (500 if brokers == 1 else 200) * MINUTES
    assert sum(report.faults.values()) > 5 * MINUTES
