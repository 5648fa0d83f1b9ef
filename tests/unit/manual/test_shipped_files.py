"""What the manual names of `deploy/` is at hand wherever cdcd is installed.

`.build/release test` runs this on each wheel.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from cdcd import manual
from cdcd.manual import shipped_files

ROOT = Path(__file__).parents[3]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
OF_A_CHECKOUT = {"deploy/compose/"}
"""The manual says of these that they need a checkout."""


def test_every_file_of_the_checkout_is_there_unchanged() -> None:
    here = {
        path.relative_to(ROOT / "deploy").as_posix(): path.read_text()
        for folder in shipped_files.FOLDERS
        for path in (ROOT / "deploy" / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert {name: shipped_files.text(name) for name in shipped_files.names()} == here
    assert {"prometheus/alerts.yml", "grafana/cdcd.json", "helm/.helmignore"} <= here.keys()


def test_the_wheel_has_every_folder_that_is_listed() -> None:
    assert WHEEL["force-include"] == {f"deploy/{each}": f"cdcd/deploy/{each}" for each in sorted(shipped_files.FOLDERS)}
    assert "!deploy" in (ROOT / ".dockerignore").read_text().splitlines(), "the image builds the wheel, too"
    others = {path.name for path in (ROOT / "deploy").iterdir()} - shipped_files.FOLDERS.keys()
    assert others == {Path(each).name for each in OF_A_CHECKOUT}


@pytest.mark.parametrize("topic", manual.TOPICS)
def test_a_file_that_a_page_names_is_there(topic: str) -> None:
    text = manual.page(topic)
    # kubectl's deploy/cdcd is a Deployment; a link leads to the file in the repository.
    paths = {*re.findall(r"(?<![/\w])deploy/\w[\w./-]*", text)} - OF_A_CHECKOUT - {"deploy/cdcd"}
    for name in paths | {*re.findall(r"cdcd\s+files\s+([a-z][\w./-]+)", text)}:
        assert shipped_files.named(name), name
    if paths:
        assert re.search(r"cdcd\s+files", text), "the page says how to get the file"


def test_a_folder_names_its_files_and_a_part_of_a_name_none() -> None:
    assert shipped_files.named("kafka") == ["kafka/acls.sh", "kafka/topics.sh"]
    assert shipped_files.named("deploy/kafka/") == shipped_files.named("kafka")
    assert shipped_files.named("deploy/kafka/acls.sh") == ["kafka/acls.sh"]
    for name in ("", "kaf", "../pyproject.toml", "compose", "/etc/passwd"):
        assert shipped_files.named(name) == []
