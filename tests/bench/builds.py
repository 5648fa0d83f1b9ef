"""The compiled cdcd of a commit, in an environment of its own.

Before: a commit of this checkout's repository.
After: `guard` measures two of them next to each other.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path[:0] = [str(HERE.parent)]
import servers  # noqa: E402
from bench.measuring import refuse_uncompiled  # noqa: E402


def commit_of(name: str) -> str:
    """The commit, in full, that a branch, a tag or an abbreviation names. Ends the benchmark if there is none."""
    command = ["git", "-C", str(REPOSITORY), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or sys.exit(f"{name} is no commit of {REPOSITORY}")


def command_of(commit: str) -> str:
    """The command that runs the compiled cdcd of a commit, for this Python; builds it the first time: some minutes.

    The environments lie next to the servers, in CDCD_TEST_HOME, one a commit. An environment that was not finished is
    made again. The libraries are the newest that the commit's pyproject.toml allows on the day of the build. Nobody
    removes them but you. Ends the benchmark if the commit does not build.
    """
    version = hashlib.sha256(sys.version.encode()).hexdigest()[:8]
    home = servers.default_home() / f"bench-{commit[:12]}-{version}"
    finished = home / "finished"
    python = str(home / "bin" / "python")
    command = f"{python} -I -m cdcd"  # whatever PYTHONPATH says
    if not finished.exists():
        print(f"building cdcd of {commit[:12]} in {home}", file=sys.stderr, flush=True)
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        with tempfile.TemporaryDirectory() as sources:
            files = subprocess.run(["git", "-C", REPOSITORY, "archive", commit], capture_output=True, check=True).stdout
            with tarfile.open(fileobj=io.BytesIO(files)) as archive:
                archive.extractall(sources, filter="data")
            pip = [python, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            environment = os.environ | {"CDCD_COMPILE": "require"}
            if subprocess.run([*pip, sources], env=environment, check=False).returncode:
                shutil.rmtree(home)
                sys.exit(f"cdcd of {commit[:12]} does not build, see above")
        finished.touch()
    refuse_uncompiled(command)
    return command
