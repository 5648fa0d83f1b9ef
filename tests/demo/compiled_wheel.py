"""The compiled wheel that .build/release has made of exactly this checkout, if there is one for this Python.

Before: `.build/release wheels` may have run; `tests/quickstart` asks, with a bare Python.
After: the quickstart installs it in place of compiling for a minute.
"""

from __future__ import annotations

import platform
import sys
import zipfile
from pathlib import Path


def fitting_wheel(checkout: Path) -> Path | None:
    """The newest wheel in dist/ that fits this machine and has the checkout's modules, byte for byte."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    made = (checkout / "dist").glob(f"cdcd-*-{python}-{python}-manylinux*_{platform.machine()}.whl")
    if sys.implementation.name != "cpython" or platform.libc_ver()[0] != "glibc":
        return None
    newest_first = sorted(made, key=lambda wheel: wheel.stat().st_mtime, reverse=True)
    return next((wheel for wheel in newest_first if _is_of(wheel, checkout)), None)


def _is_of(wheel: Path, checkout: Path) -> bool:
    here = {path.relative_to(checkout).as_posix(): path for path in (checkout / "cdcd").rglob("*.py")}
    here |= {f"cdcd/{path.relative_to(checkout).as_posix()}": path for path in (checkout / "deploy").rglob("*.py")}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.endswith(".py")}
        return packed == here.keys() and all(archive.read(name) == path.read_bytes() for name, path in here.items())
