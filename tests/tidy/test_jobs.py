"""An object has one job: its size in arguments, attributes and imports says when it has more."""

from __future__ import annotations

import ast

import pytest
from tidy.tree import Module, modules

ARGUMENTS_MAX = 8
ATTRIBUTES_MAX = 15
IMPORTS_MAX = 15

EXEMPT: dict[str, str] = {
    "cdcd.daemon.wiring": "it joins all parts of a stream: the one module that knows them",
    "cdcd.daemon.clients": "it makes every client of the daemon: the one module that a test replaces",
}
"""Module or `module.Class`, and the reason: three at most."""

each_module = pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)


def arguments_of(function: ast.FunctionDef) -> int:
    """Without `self`."""
    named = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
    return len(named) - bool(named and named[0].arg in ("self", "cls"))


def attributes_of(node: ast.ClassDef) -> set[str]:
    """The attributes that its methods set on `self`."""
    return {
        attribute.attr
        for method in node.body
        if isinstance(method, ast.FunctionDef)
        for attribute in ast.walk(method)
        if isinstance(attribute, ast.Attribute)
        and isinstance(attribute.ctx, ast.Store)
        and isinstance(attribute.value, ast.Name)
        and attribute.value.id == "self"
    }


@each_module
def test_no_function_takes_more_than_eight_arguments(module: Module) -> None:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef):
            count = arguments_of(node)
            assert count <= ARGUMENTS_MAX, f"{module.name}:{node.lineno} {node.name} takes {count} arguments"


@each_module
def test_no_class_has_more_than_fifteen_attributes(module: Module) -> None:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef) and f"{module.name}.{node.name}" not in EXEMPT:
            found = attributes_of(node)
            assert len(found) <= ATTRIBUTES_MAX, f"{module.name}.{node.name} has {len(found)}: {sorted(found)}"


@each_module
def test_no_module_imports_more_than_fifteen_of_ours(module: Module) -> None:
    if module.name not in EXEMPT:
        assert len(module.ours) <= IMPORTS_MAX, f"{module.name} imports {len(module.ours)}"


def test_the_exemptions_are_few_and_needed() -> None:
    assert len(EXEMPT) <= 3
