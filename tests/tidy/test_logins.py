"""Every connection to a server logs in as the settings say, with all that makes passwords and tokens."""

from __future__ import annotations

import ast

import pytest
from tidy.tree import Module, modules

WHOLE = {"dsn": "login", "primary_dsn": "primary_login", "librdkafka": "client_properties"}
"""Settings that lack what makes passwords and tokens, and what has it."""

MAY = {"database", "dsns_by_setting", "naming_files"}
"""Functions that only look at such a setting."""

CONNECTING = [module for module in modules() if module.package not in {"config", "spark"}]


@pytest.mark.parametrize("module", CONNECTING, ids=lambda module: module.name)
def test_a_module_takes_the_whole_login_from_the_settings(module: Module) -> None:
    looked_at = {
        id(argument)
        for call in ast.walk(module.tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in MAY
        for argument in call.args
    }
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Attribute) or node.attr not in WHOLE or id(node) in looked_at:
            continue
        owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        found = f"{owner}.{node.attr}"
        assert owner not in {"source", "sink"}, f"{module.name}:{node.lineno}: {found} instead of {WHOLE[node.attr]}"
