"""What a reader may rely on in every file: it says what it is, and its name means something."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
from tidy.tree import ROOT, Module, modules

VAGUE = re.compile(r"(^|_)(utils?|helpers?|common|misc|managers?)(_|$)")

TOP_LEVEL = {
    "CHANGELOG.md", "Dockerfile", "LICENSE", "README.md", "cdcd", "config", "deploy", "pyproject.toml", "tests",
}  # fmt: skip

each_module = pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)


def _public(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node


@cache
def _described_methods() -> set[str]:
    classes = [node for module in modules() for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    return {method.name for node in classes for method in _public(node.body) if ast.get_docstring(method)}


@each_module
def test_every_module_says_what_it_does(module: Module) -> None:
    assert ast.get_docstring(module.tree)


@each_module
def test_every_public_class_and_function_is_described(module: Module) -> None:
    described = _described_methods()
    for node in _public(module.tree.body):
        assert ast.get_docstring(node), f"{module.name}.{node.name}"
        if isinstance(node, ast.ClassDef):
            for method in _public(node.body):
                # An override does what its base class says.
                inherits = bool(node.bases) and method.name in described
                assert ast.get_docstring(method) or inherits, f"{module.name}.{node.name}.{method.name}"


def test_every_name_means_something() -> None:
    files = [path for folder in ("cdcd", "tests", "deploy") for path in (ROOT / folder).rglob("*.py")]
    assert files
    assert [str(path.relative_to(ROOT)) for path in files if VAGUE.search(path.stem)] == []


def test_the_top_level_holds_only_what_everybody_looks_for() -> None:
    made = {"build", "dist", "cdcd.toml"}  # by tools, and as README says; ignored by git
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {name for name in made if not {f"/{name}", f"/{name}/"} & {*ignored}} == set()
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".") and path.suffix != ".egg-info"}
    assert found - made - {"PKG-INFO"} - TOP_LEVEL == set()  # a source distribution has that one


@each_module
def test_nothing_is_left_for_later(module: Module) -> None:
    assert not re.search(r"\b(TODO|FIXME|XXX)\b", module.path.read_text())
