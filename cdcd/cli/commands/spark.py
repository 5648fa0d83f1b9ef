"""`cdcd spark`: mirrors topics into a lake, verifies the mirror, or loads tables.

Before: `cli.main` has parsed the options. After: `spark.commands` does the work.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TextIO

from cdcd.cli.commands import Load
from cdcd.errors import SettingsError
from cdcd.monitoring import log_setup


def execute(given: Namespace, load: Load, out: TextIO) -> bool:  # noqa: ARG001  # the jobs have their own settings file
    """Run the job that the options name. Returns what the job returns: for `verify`, whether nothing differs."""
    if given.config is None:
        raise SettingsError("cdcd spark needs --config FILE", "config/mirror.toml shows one")
    log_setup.set_up(given.log_level or "info", "text")
    try:
        from cdcd.spark import commands
    except ImportError as error:
        raise SettingsError(
            f"PySpark is not installed: {error}", "Install it with: pip install 'pyspark==4.1.3'"
        ) from error
    with commands.translating_errors():
        if given.job == "mirror":
            return commands.mirror(given.config, once=given.once, out=out)
        if given.job == "verify":
            return commands.verify(given.config, topics=given.topics, as_json=given.json, out=out)
        return commands.snapshot(given.config, given.tables, out=out)
