"""The page `errors`, taken apart: what each code means, what cures it, and how to see that it is cured.

Before: people write the page. After: `cdcd explain` shows the section of a code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from cdcd.manual import page

_GROUP: Final = re.compile(r"^## (.+)\n", re.MULTILINE)
_SECTION: Final = re.compile(
    r"^### (?P<code>\S+)\n(?P<cause>.+?)^\*\*Cure:\*\* (?P<cure>.+?)^\*\*Cured:\*\* (?P<cured>.+?)(?=^##|\Z)",
    re.MULTILINE | re.DOTALL,
)
_CLAUSE_END: Final = re.compile(r"[.:;]\s")


@dataclass(frozen=True)
class Explanation:
    """The section of one code, in Markdown."""

    code: str
    group: str
    """The heading above it."""
    cause: str
    cure: str
    cured: str
    """How to see that it is cured."""

    @property
    def summary(self) -> str:
        """The first clause of the cause, in one line."""
        return " ".join(_CLAUSE_END.split(self.cause, maxsplit=1)[0].split()).removesuffix(".")

    @property
    def text(self) -> str:
        """The whole section, as the page has it."""
        return f"## {self.code}\n\n{self.cause}\n\n**Cure:** {self.cure}\n\n**Cured:** {self.cured}\n"


@cache
def explanations() -> dict[str, Explanation]:
    """All explanations by code, in the order of the page."""
    _, *parts = _GROUP.split(page("errors"))
    found = {}
    for group, sections in zip(parts[::2], parts[1::2], strict=True):
        for section in _SECTION.finditer(sections):
            words = {name: text.strip() for name, text in section.groupdict().items()}
            found[words["code"]] = Explanation(group=group, **words)
    return found
