"""The code blocks of the manual's page of errors, and what runs its commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cdcd.manual.explanations import explanations

_FENCED = re.compile(r"^```([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`((?:cdcd|kafka-[a-z]+\.sh) [^`]+)`(?!`)")

ELSEWHERE = {
    "cdcd migrate debezium connector.json --take-over --config cdcd.toml": "acceptance/test_migrate.py",
    "cdcd schema --register public.orders --config cdcd.toml": "acceptance/test_registry.py",
    "cdcd spark mirror --once --config mirror.toml": "spark/chaos.py",
    "cdcd spark snapshot public.orders --config mirror.toml": "spark/test_against_postgresql.py",
    "cdcd spark verify --config mirror.toml": "spark/test_against_postgresql.py",
}
"""Commands that need a connector, a registry or Spark: the file that runs them."""

NOT_RUN = {
    "pip install 'cdcd[aws]'": "a test installs nothing into its own environment",
    "pip install 'cdcd[registry]'": "a test installs nothing into its own environment",
    "pip install 'pyspark==4.1.3'": "a test installs nothing into its own environment",
    "cdcd files spark/mirror.toml": "it needs no servers: unit/manual/test_shipped_files.py has it",
    "openssl x509 -enddate -noout -in /etc/cdcd/tls.crt": "it is a tool of others, for a file of yours",
    "kafka-transactions.sh find-hanging": "Kafka's tools for it are not among the jars of the tests",
    "kafka-transactions.sh abort": "Kafka's tools for it are not among the jars of the tests",
}
"""Commands that no test runs, each with the reason."""


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


def blocks_of(program: str) -> set[str]:
    """The commands of the page that begin with this word."""
    return {line for each in blocks() if each.language == "sh" for line in each.lines if line.startswith(program)}
