"""`cdcd spark`: mirrors topics into a lake, verifies the mirror, or loads tables.

Before: `cli.main` has parsed the options. After: `spark.commands` does the work.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TextIO

from cdcd.cli.commands import Load
from cdcd.errors import SettingsError
from cdcd.monitoring import log_setup


def execute(args: Namespace, load: Load, out: TextIO) -> bool:  # noqa: ARG001  # the jobs have their own settings file
    """Run the job that the options name. Returns what the job returns: for `verify`, whether nothing differs."""
    if args.config is None:
        raise SettingsError(
            "cdcd spark needs --config FILE", "cdcd files spark/mirror.toml prints one", code="arguments-invalid"
        )
    log_setup.set_up(args.log_level or "info", "text")
    try:
        from cdcd.spark import commands
    except ImportError as error:
        raise SettingsError(
            f"PySpark is not installed: {error}",
            "Install it with: pip install 'pyspark==4.1.3'",
            code="spark-unfit",
        ) from error
    with commands.translating_errors():
        if args.job == "mirror":
            return commands.mirror(args.config, once=args.once, out=out)
        if args.job == "status":
            return commands.status(args.config, as_json=args.json, out=out)
        if args.job == "verify":
            return commands.verify(args.config, topics=args.topics, as_json=args.json, out=out)
        return commands.snapshot(args.config, args.tables, out=out)
