"""`cdcd run`: the daemon, until SIGTERM or Ctrl-C.

Before: `cli.main` has parsed the options. After: `daemon.process` streams the slot into Kafka.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TextIO

from cdcd.cli.commands import Load
from cdcd.daemon import process


def execute(args: Namespace, load: Load, out: TextIO) -> bool:
    """Run the daemon. With `--snapshot-only`, print a summary at the end; returns whether the snapshot is complete."""
    settings = process.run(load())
    if not args.snapshot_only:
        return True
    from cdcd.cli.commands.snapshot import summary  # here: a daemon makes no requests to itself

    return summary(settings, out)
