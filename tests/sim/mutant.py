"""Plays one mutation until a seed fails: `python tests/sim/mutant.py "trust the disk"`.

Before: `mutations` has the edit; PYTHONPATH says where the uncompiled cdcd is.
After: exit code 0 if a seed noticed, 1 if none did or the simulation itself failed, 2 if the edit does not fit.

This process imports the one module with the edit, and every other module as it is. The edited module is compiled in
memory: neither its source nor its bytecode is written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

sys.path.insert(0, str(Path(__file__).parents[1]))

from sim.mutations import MUTATIONS, Mutation

SEEDS = 400


class EditedModule(SourceFileLoader):
    """Loads the module of one mutation."""

    def __init__(self, mutation: Mutation, path: str) -> None:
        super().__init__(mutation.module, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text()
        before, after = self._mutation.before, self._mutation.after
        if source.count(before) != 1:
            print(f"these lines stand {source.count(before)} times in {self.path}:\n{before}", file=sys.stderr)
            sys.exit(2)
        return compile(source.replace(before, after), self.path, "exec", dont_inherit=True)


class EditingFinder:
    """Finds the module of one mutation; the finders after it find the others."""

    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the edited module; None for any other."""
        if fullname != self._mutation.module:
            return None
        spec = PathFinder.find_spec(fullname, path)
        assert spec is not None, f"there is no {fullname}"
        assert spec.origin is not None
        spec.loader = EditedModule(self._mutation, spec.origin)
        return spec


def caught(mutation: Mutation) -> str | None:
    """Return which seed notices the bug, and how; None if no seed does. Raises the simulation's own mistakes."""
    sys.meta_path.insert(0, EditingFinder(mutation))
    # Imported only now, so that they import the edited module.
    from sim.scenes import SCENES
    from sim.world import Failure, World

    from cdcd.errors import CdcdError

    play = {scene.__name__: scene for scene in (World, *SCENES)}[mutation.scene]
    for seed in range(mutation.first_seed, mutation.first_seed + SEEDS):
        try:
            play(seed).run()
        except Failure as failure:
            if not isinstance(failure.error, AssertionError | CdcdError) and not mutation.damages_frames:
                raise
            return str(failure).splitlines()[0]
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=MUTATIONS, metavar="NAME", help="what is wrong, in the words of the table")
    mutation = MUTATIONS[parser.parse_args().name]
    how = caught(mutation)
    print(how or f"{SEEDS} seeds from {mutation.first_seed} on did not notice: {mutation.name}")
    return 0 if how else 1


if __name__ == "__main__":
    sys.exit(main())
