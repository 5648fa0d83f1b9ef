"""The quickstart as a newcomer runs it: one command, events on the screen, and no files left after --clean."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import servers
from demo.quickstart import alone

pytestmark = pytest.mark.slow

QUICKSTART = Path(servers.__file__).parents[1] / "quickstart"


def quickstart(home: Path, *arguments: str) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["CDCD_TEST_HOME"] = str(servers.default_home())  # use the servers' programs that are fetched already
    environment["CDCD_COMPILE"] = "0"  # it saves a minute
    command = [sys.executable, str(QUICKSTART), "--home", str(home), *arguments]
    done = subprocess.run(command, env=environment, cwd=home.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_nothing_is_removed_while_it_runs(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    with alone(tmp_path):
        done = subprocess.run(
            [sys.executable, QUICKSTART, "--home", tmp_path, "--clean"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert f"it is running in {tmp_path} (process {os.getpid()})" in done.stderr
        assert (tmp_path / "venv").exists()
    assert quickstart(tmp_path, "--clean") == f"removed {tmp_path}\n"


@pytest.fixture
def home() -> Iterator[Path]:
    """Give a directory that PostgreSQL's unprivileged user can reach; pytest's directories are private."""
    within = Path(tempfile.mkdtemp(prefix="quickstart-", dir=servers.default_home() / "run"))
    within.chmod(0o755)
    yield within / "home"
    shutil.rmtree(within)


def rows(shown: str) -> dict[str, int]:
    """The number of rows of each topic in the last table that was printed."""
    found = re.findall(r"^(shop\.\S+) +([\d,]+)", shown, re.MULTILINE)
    return {topic: int(count.replace(",", "")) for topic, count in found}


def test_events_of_every_table_arrive_and_a_second_run_goes_on(home: Path) -> None:
    first = quickstart(home, "--for", "8")
    assert "fetching" in first
    assert "first events" in first
    assert re.search(r"^cdcd \S+ \(pure\), Python ", first, re.MULTILINE), "it does not say what it runs"
    assert "not compiled" in first
    assert all(count > 0 for count in rows(first).values()), first
    assert set(rows(first)) == {f"shop.public.{table}" for table in ("customers", "products", "orders", "order_items")}

    second = quickstart(home, "--for", "4")
    assert "fetching" not in second
    assert rows(second)["shop.public.orders"] > rows(first)["shop.public.orders"]

    assert quickstart(home, "--clean") == f"removed {home}\n"
    assert not home.exists()
