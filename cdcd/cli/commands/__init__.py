"""The commands, one file each. A file's `execute(given, load, out)` does what the options ask for.

`given` has the options that `cli.parser` describes. `load` reads the settings and sets up the log; it raises
SettingsError. `out` is standard output. `execute` returns whether the exit code is 0, and raises CdcdError, which
`main` prints.

`main` imports the file of a command when it runs it: `cdcd config` must not wait for librdkafka, nor fail without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from cdcd.config.loading import Loaded

Load: TypeAlias = "Callable[[], Loaded]"
