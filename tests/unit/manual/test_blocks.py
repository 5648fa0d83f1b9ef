"""Each code block of the README and the manual is executed by a test or a script, or is named with its reason."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from support.pages import BLOCKS, ROOT, WHOLE_PAGES, By, Executes, NotExecuted, blocks, executes, pages

TESTS = ROOT / "tests"
PAGES = [path.stem for path in pages()]
LISTS = BLOCKS | WHOLE_PAGES
TOLD = [pytest.param(page, by, id=f"{page}: {words}") for page, told in LISTS.items() for words, by in told.items()]

each_page = pytest.mark.parametrize("page", PAGES)


@each_page
def test_each_block_is_executed_or_named_with_its_reason(page: str) -> None:
    missing = [block.first_line for block in blocks(page) if executes(block) is None]
    assert missing == [], (
        f"say in BLOCKS of tests/support/pages.py what executes these blocks of {page}, by other words"
    )


@each_page
def test_no_block_is_listed_that_the_page_does_not_have(page: str) -> None:
    texts = [block.text for block in blocks(page)]
    for words in BLOCKS.get(page, {}):
        assert len([text for text in texts if text.startswith(words)]) == 1, f"{page}: {words}"


@each_page
def test_each_fence_of_a_page_belongs_to_a_block(page: str) -> None:
    [path] = [path for path in pages() if path.stem == page]
    assert len(re.findall(r"^\s*(?:```|~~~)", path.read_text(), re.MULTILINE)) == 2 * len(blocks(page))


def test_no_page_is_listed_that_does_not_exist() -> None:
    assert {*LISTS} <= {*PAGES}
    assert not {*BLOCKS} & {*WHOLE_PAGES}


@pytest.mark.parametrize(("page", "by"), TOLD)
def test_what_is_said_to_execute_a_block_takes_it_from_the_page(page: str, by: Executes) -> None:
    if isinstance(by, NotExecuted):
        assert len(by.reason.split()) > 4, "a reason is a sentence"
    elif isinstance(by, By):
        text = (TESTS / by.script.partition(" ")[0]).read_text()
        assert f'"{page}"' in text, "the script does not take its blocks from the page"
    else:
        place, _, name = by.partition("::")
        text = (TESTS / place).read_text()
        assert name in _tests_of(text, TESTS / place)
        takes = f'"{page}"' in text or (page == "errors" and "support.error_page" in text)
        is_the_quickstart = page == "README" and "QUICKSTART" in text
        assert takes or is_the_quickstart, "the test does not take its blocks from the page"


def _tests_of(text: str, path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(text, path)) if isinstance(node, ast.FunctionDef)}
