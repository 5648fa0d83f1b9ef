"""Runs any number of seeds, on all cores: `python tests/sim/run.py --seeds 10000 [--start N]`.

Before: nothing; PYTHONPATH or the installed package says which cdcd. After: exit code 0 if every seed held, else the
short trace of each that failed; `--seed N` runs one and shows the traceback, too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sim.world import Failure, World


def failures(seeds: range, events: int) -> list[str]:
    """What goes wrong in these seeds: a text each."""
    found = []
    for seed in seeds:
        try:
            World(seed, events).run()
        except Failure as failure:
            found.append(str(failure))
    return found


def chunks(start: int, seeds: int, size: int) -> Iterator[range]:
    """The seeds in portions."""
    for first in range(start, start + seeds, size):
        yield range(first, min(first + size, start + seeds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seed", type=int, help="this one only, with its traceback")
    parser.add_argument("--events", type=int, default=60, help="about how much is done in SQL in each")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.seed is not None:
        try:
            World(options.seed, options.events).run()
        except Failure as failure:
            traceback.print_exception(failure.__cause__)
            print(failure)
            return 1
        return 0
    began = time.monotonic()
    failed: list[str] = []
    done = 0
    portions = list(chunks(options.start, options.seeds, 50))
    with ProcessPoolExecutor(options.jobs) as pool:
        results = pool.map(failures, portions, [options.events] * len(portions))
        for portion, found in zip(portions, results, strict=True):
            done += len(portion)
            failed += found
            for text in found:
                print(text, flush=True)
            if sys.stderr.isatty():
                print(f"\r{done:,} of {options.seeds:,}", end="", file=sys.stderr, flush=True)
    seconds = time.monotonic() - began
    print(f"{done:,} seeds from {options.start:,} in {seconds:.0f} s: {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
