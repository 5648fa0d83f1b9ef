"""The manual's page about the commands, from their parser.

Before: `parser` has every command with its options. After: `cdcd help commands` shows the page; a test holds it equal.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from typing import Final

WIDTH: Final = 120

_HEAD: Final = """\
# Reference: every command

`cdcd COMMAND --help` prints the same. Exit codes: 0 the command succeeded, 1 it failed, 2 a setting or an argument is
wrong, 128 and the number of a signal that ended it. An error is one sentence with a hint; `--log-level debug` adds a
traceback.
"""
_COMMON: Final = ("config", "log_level", "help")
"""Options of nearly every command: told once."""
_ALIKE: Final = ("log_level", "help")
"""Those that are the same everywhere; the file of `--config` is another one for some."""


def page(parser: argparse.ArgumentParser) -> str:
    """The page, in Markdown."""
    commands = dict(_commands(parser))
    common = max((_common(each) for each in commands.values()), key=len)
    told = {action.help for action in common}
    parts = [_HEAD, "Nearly every command has these options:\n", _options(common)]
    parts += [_described(name, command, told) for name, command in commands.items()]
    return "\n".join(parts)


def _common(command: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in command._actions if action.dest in _COMMON]  # noqa: SLF001


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each command that does something, with its name: `cdcd slot drop`."""
    for action in parser._actions:  # noqa: SLF001  # argparse tells them in no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                parts = list(_commands(command))
                yield from parts or [(command.prog, command)]


def _described(name: str, command: argparse.ArgumentParser, told: set[str | None]) -> str:
    """The section of a command. `told`: the help of the options that stand above all sections."""
    own = [action for action in command._actions if action.dest not in _ALIKE and action.help not in told]  # noqa: SLF001
    example = str(command.epilog).removeprefix("Example: ")
    options = f"\n{_options(own)}" if own else ""
    return f"## `{name}`\n\n{_wrapped(f'{command.description} Example: `{example}`')}\n{options}"


def _options(actions: list[argparse.Action]) -> str:
    return "".join(f"{_wrapped(f'- {_spelled(action)}: {action.help}.', '  ')}\n" for action in actions)


def _spelled(action: argparse.Action) -> str:
    if not action.option_strings:
        many = {"*": " ...", "+": " ..."}.get(str(action.nargs), "")
        choices = f" ({', '.join(map(str, action.choices))})" if action.choices and action.metavar is None else ""
        return f"`{action.metavar or action.dest}{many}`{choices}"
    choices = f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper()
    value = "" if action.nargs == 0 else f" {action.metavar or choices}"
    return ", ".join(f"`{option}{value}`" for option in action.option_strings)


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
