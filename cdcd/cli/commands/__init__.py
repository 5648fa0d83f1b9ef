"""The commands, one file each. The function `execute(args, load, out)` of a file runs the command.

`args` has the options (see `cli.parser`). `load` reads the settings and sets up the log; it raises SettingsError.
`out` is standard output. `execute` returns True if the exit code is 0. It raises CdcdError, which `main` prints.

`main` imports the file of a command only to run it: `cdcd config` must not wait for librdkafka, nor fail without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from cdcd.config.loading import Loaded

Load: TypeAlias = "Callable[[], Loaded]"
