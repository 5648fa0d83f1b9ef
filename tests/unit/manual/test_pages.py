"""The pages of the manual are there, begin with their title, and name pages, files and commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdcd import manual
from cdcd.cli.parser import build_parser

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "cdcd" / "manual"
FENCED = re.compile(r"^( *)```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)#]*)(#[^)]*)?\)")

each_topic = pytest.mark.parametrize("topic", manual.TOPICS)


def test_each_page_is_listed_once() -> None:
    assert sorted(path.stem for path in PAGES.glob("*.md")) == sorted(manual.TOPICS)


@each_topic
def test_a_page_begins_with_its_title(topic: str) -> None:
    assert manual.page(topic).startswith("# ")
    assert 10 < len(manual.title(topic)) < 80


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(PAGES.glob("*.md"))], ids=lambda page: page.stem)
def test_a_link_leads_to_a_heading_or_a_file(page: Path) -> None:
    for place, anchor in LINK.findall(FENCED.sub("", page.read_text())):
        if place.startswith("https://"):
            continue
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), place
        if anchor:
            assert anchor[1:] in {_anchor(heading) for heading in _headings(target)}, f"{place}{anchor}"


@each_topic
def test_a_command_on_a_page_exists(topic: str) -> None:
    known = _commands()
    for command in re.findall(r"`cdcd ([a-z]+)", manual.page(topic)):
        assert command in known, f"cdcd {command}"


def _commands() -> set[str]:
    [commands] = [action for action in build_parser()._actions if action.dest == "command" or action.choices]
    return {*(commands.choices or ())}


def _headings(path: Path) -> list[str]:
    return re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)


def _anchor(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
