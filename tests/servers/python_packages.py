"""Python environments with packages that the tests' own one does not need.

Before: PyPI. After: tests that read the lake by engines that nobody here wrote.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from servers.jars import ServerError, install, say_on_stderr
from servers.processes import default_home


def python_with(*requirements: str) -> Path:
    """Return the Python of an environment that has these packages; make it if it is missing. Raises ServerError."""

    def unpack(target: Path) -> None:
        say_on_stderr(f"fetching {', '.join(requirements)} (PyPI) into {target}")
        pip = [str(target / "bin" / "python"), "-m", "pip", "install", "-q", *requirements]
        for command in ([sys.executable, "-m", "venv", str(target)], pip):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise ServerError(f"cannot fetch {requirements}: {done.stderr[-1_000:]}")

    name = re.sub(r"[^a-z0-9.]+", "-", "-".join(requirements))
    return install(default_home(), f"python-{name}", unpack) / "bin" / "python"
