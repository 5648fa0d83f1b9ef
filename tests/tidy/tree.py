"""The source tree as data: every module of cdcd with its imports, parsed once."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "cdcd"


@dataclass(frozen=True)
class Module:
    path: Path
    tree: ast.Module

    @property
    def name(self) -> str:
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def package(self) -> str:
        """The package under `cdcd/` that it stands in; empty for what stands directly there."""
        parts = self.path.relative_to(PACKAGE).parts
        return parts[0] if len(parts) > 1 else ""

    @property
    def imports(self) -> frozenset[str]:
        """The modules that it imports, wherever in it: `from cdcd.sink import topics` counts as cdcd.sink.topics."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                below = {f"{node.module}.{alias.name}" for alias in node.names}
                found.update(name if _is_module(name) else node.module for name in below)
        return frozenset(found)

    @property
    def ours(self) -> frozenset[str]:
        """The modules of cdcd among them."""
        return frozenset(name for name in self.imports if name == "cdcd" or name.startswith("cdcd."))


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


@cache
def modules() -> tuple[Module, ...]:
    return tuple(Module(path, ast.parse(path.read_text())) for path in sorted(PACKAGE.rglob("*.py")))
