"""The code blocks of the manual's page of errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cdcd.manual.explanations import explanations

_FENCED = re.compile(r"^```([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`((?:cdcd|kafka-[a-z]+\.sh) [^`]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    """A code block. `language`: sh, sql or toml, and perhaps whom it is for."""

    code: str
    language: str
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def statements(self) -> list[str]:
        return [each.strip() for each in self.text.split(";") if each.strip()]


def blocks() -> list[Block]:
    """All blocks, in the order of the page."""
    return [
        Block(each.code, language, text)
        for each in explanations().values()
        for language, text in _FENCED.findall(f"{each.cure}\n{each.cured}\n")
    ]


def inline_commands() -> Iterator[tuple[str, str]]:
    """Each command that stands within a sentence: its code, and the command."""
    for each in explanations().values():
        text = _FENCED.sub("", f"{each.cause}\n{each.cure}\n{each.cured}\n")
        yield from ((each.code, " ".join(command.split())) for command in _INLINE.findall(text))
