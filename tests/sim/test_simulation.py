"""Seeds of the simulated world: the promises hold, whatever befalls PostgreSQL, Kafka, the disk and the daemon."""

from __future__ import annotations

import os

import pytest
from sim.scenes import SCENES, Scene
from sim.world import World

PORTION = 50
FIRST, END = map(int, os.environ.get("CDCD_TEST_SIMULATIONS", "0-2000").split("-"))
FIRST_OF_SCENE, END_OF_SCENE = map(int, os.environ.get("CDCD_TEST_SCENES", "0-35").split("-"))
EVENTS = 30
"""Short ones, so that there are many; `run.py` plays longer ones."""


@pytest.mark.parametrize("first", range(FIRST, END, PORTION))
def test_every_transaction_is_published_once_and_whole(first: int) -> None:
    for seed in range(first, min(first + PORTION, END)):
        World(seed, EVENTS).run()


@pytest.mark.parametrize("scene", SCENES)
def test_what_was_found_once_does_not_come_back(scene: type[Scene]) -> None:
    for seed in range(FIRST_OF_SCENE, END_OF_SCENE):
        scene(seed).run()
