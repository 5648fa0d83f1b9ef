"""The simulation can fail: some seed notices each deliberate bug."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sim.mutations import MUTATIONS

import cdcd.transaction.assembler

MUTANT = Path(__file__).with_name("mutant.py")
SOURCES = Path(cdcd.transaction.assembler.__file__).parents[2]

pytestmark = pytest.mark.skipif(
    not cdcd.transaction.assembler.__file__.endswith(".py"), reason="mutations edit sources, and cdcd is compiled"
)


@pytest.mark.parametrize("name", MUTATIONS)
def test_an_edit_fits_its_module(name: str) -> None:
    mutation = MUTATIONS[name]
    home = SOURCES if mutation.module.startswith("cdcd.") else MUTANT.parents[1]  # some are about the world itself
    module = home.joinpath(*mutation.module.split(".")).with_suffix(".py")
    assert module.read_text().count(mutation.before) == 1


@pytest.mark.in_turns(6)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_bug_is_caught(name: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    command = [sys.executable, str(MUTANT), name]
    played = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
