"""Build hook of hatchling: compiles the hot modules with mypyc, so that `pip install` gives the fast daemon.

Before: pip or `python -m build` wants a wheel; pyproject.toml lists the hot modules (`compile`, `exclude`).
After: the wheel holds every module as Python and the hot ones also as native code, which Python prefers on import.
`cdcd.build_info` tells at run time which of the two an installation runs.

The environment variable CDCD_COMPILE decides: unset or `auto` compiles where a C compiler and Python's headers are,
and builds the pure wheel where they are not, or do not work; `0` builds the pure wheel; `require` fails if it cannot
compile.
Editable installs are always pure: they run the sources as they are.

Source: hatch.pypa.io, "Custom build hook"; mypyc.readthedocs.io, "Using mypyc with setuptools".
"""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig
import time
from contextlib import chdir
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILD_REQUIREMENTS = ["mypy[mypyc]==2.4.1", "setuptools>=77"]
"""Fetched only where something is compiled. mypyc is pinned: its generated code is part of what the tests test."""

MYPY_OPTIONS = [
    "--config-file=",  # the strict rules of pyproject.toml are for people; a build must not fail on a new mypy's lint
    "--python-version=3.11",
    "--namespace-packages",
    "--explicit-package-bases",
    "--follow-imports=silent",
    "--ignore-missing-imports",  # the build environment holds mypy, not the daemon's dependencies
]


class CompileHotModules(BuildHookInterface):
    """Adds the compiled hot modules to the wheel, all in one mypyc group: calls between them are direct C calls."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """The packages that pip must install before the build; none for a pure build."""
        return [] if self._reason_for_pure() else BUILD_REQUIREMENTS

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile into a temporary directory and have the results packed; `version` is "standard" or "editable"."""
        if self.target_name != "wheel" or version == "editable":
            return
        mode = os.environ.get("CDCD_COMPILE", "auto")
        if reason := self._reason_for_pure():
            if mode == "require":
                raise RuntimeError(f"CDCD_COMPILE=require, but {reason}")
            self.app.display_warning(f"cdcd: pure Python wheel, about 10 times slower: {reason}")
            return
        started = time.monotonic()
        modules = self._hot_modules()
        self._scratch = Path(mkdtemp(prefix="cdcd-build-"))
        try:
            libraries = self._compile(modules)
        except BaseException as problem:
            shutil.rmtree(self._scratch, ignore_errors=True)
            if mode == "require" or not isinstance(problem, Exception):
                raise
            self.app.display_warning(
                f"cdcd: pure Python wheel, about 10 times slower: compiling failed: {str(problem)[:300]}"
            )
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update(libraries)
        self.app.display_info(f"cdcd: {len(modules)} hot modules compiled in {time.monotonic() - started:.0f} s")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary directory, once the wheel holds what it had."""
        if scratch := getattr(self, "_scratch", None):
            shutil.rmtree(scratch, ignore_errors=True)

    def _reason_for_pure(self) -> str:
        """Why this build cannot or must not compile; empty if it compiles."""
        mode = os.environ.get("CDCD_COMPILE", "auto")
        if mode == "0":
            return "CDCD_COMPILE=0 asks for it"
        if mode not in ("auto", "require"):
            raise RuntimeError(f"CDCD_COMPILE must be 0, auto or require, not {mode!r}")
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
        if not shutil.which(compiler):
            return f"there is no C compiler ({compiler}); install gcc"
        if not Path(sysconfig.get_path("include"), "Python.h").exists():
            return "Python's C headers are missing; install python3-dev"
        return ""

    def _hot_modules(self) -> list[str]:
        """The modules that the globs of pyproject.toml name, relative to the project, sorted."""
        root = Path(self.root)
        chosen = {path for glob in self.config["compile"] for path in root.glob(glob)}
        chosen -= {path for glob in self.config["exclude"] for path in root.glob(glob)}
        return sorted(path.relative_to(root).as_posix() for path in chosen)

    def _compile(self, modules: list[str]) -> dict[str, str]:
        """Turn `modules` into extension modules; returns where each library lies and its path inside the wheel."""
        # Imported here because pip installs them only after it has asked `dependencies`.
        from mypyc.build import mypycify
        from setuptools import Distribution

        output = self._scratch / "lib"
        with chdir(self.root):  # mypy names modules by their path from here
            try:
                extensions = mypycify(
                    [*MYPY_OPTIONS, f"--cache-dir={self._scratch / 'cache'}", *modules],
                    opt_level="2",  # with 3, hot_path.py shows no part that is faster
                    debug_level="0",
                    target_dir=str(self._scratch / "c"),
                    group_name="cdcd",
                )
            except SystemExit as refusal:  # mypyc has printed its reasons and leaves the process
                raise RuntimeError(
                    "mypyc refused the hot modules (see above); CDCD_COMPILE=0 builds without"
                ) from refusal
            build = Distribution({"name": "cdcd", "ext_modules": extensions}).get_command_obj("build_ext")
            build.build_lib = str(output)
            build.build_temp = str(self._scratch / "objects")
            build.ensure_finalized()
            build.run()
        return {str(path): path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file()}
