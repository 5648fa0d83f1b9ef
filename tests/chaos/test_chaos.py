"""Two minutes of chaos; `run.py` makes an hour of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from chaos.run import chaos

MINUTES = float(os.environ.get("CDCD_TEST_CHAOS_MINUTES", "2"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_every_transaction_comes_once_and_whole_whatever_breaks(tmp_path: Path) -> None:
    # A new checkout gives a new seed, so CI tries many; the report names the seed.
    seed = int(os.environ.get("CDCD_TEST_CHAOS_SEED", "0")) or int(Path(__file__).stat().st_mtime) % 1_000_000
    report = chaos(tmp_path, MINUTES, seed)
    print(f"\n{report.as_text()}")
    assert not report.problems, "\n".join(report.problems)
    assert report.lost == report.doubled == 0
    assert report.transactions > 500 * MINUTES
    assert sum(report.faults.values()) > 5 * MINUTES
