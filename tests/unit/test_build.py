from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOOK = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["hooks"]["custom"]


@pytest.mark.parametrize("glob", [*HOOK["compile"], *HOOK["exclude"]])
def test_every_glob_of_hot_modules_names_modules_that_exist(glob: str) -> None:
    assert list(ROOT.glob(glob)), f"{glob} in pyproject.toml fits no module"


def test_the_compiler_that_builds_the_wheel_is_the_one_that_the_tests_check_with() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (pinned,) = (need for need in project["optional-dependencies"]["test"] if need.startswith("mypy"))
    assert pinned.replace("mypy==", "mypy[mypyc]==") in (ROOT / ".build" / "compile_hook.py").read_text()


def test_the_source_distribution_is_the_whole_repository() -> None:
    sdist = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]
    assert sdist == {"exclude": ["/PKG-INFO"]}
    assert (ROOT / HOOK["path"]).exists()
