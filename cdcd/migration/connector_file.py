"""Reads the configuration of a connector: a file of properties, or the JSON of Kafka Connect's REST interface.

Before: a person has the file that made the connector, or `GET /connectors/NAME/config`.
After: `conversion` judges each option.
Source: Java, `java.util.Properties.load`; Kafka Connect, "REST API".
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from cdcd.errors import SettingsError

SIZE_MAX: Final = 1 << 20
"""Bytes of the file: no configuration is nearly as long."""

_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPACE: Final = " \t\f"


def read_connector(path: str) -> dict[str, str]:
    """Return the options of the connector, by name. `path` ends in `.json`, or the file is one of properties.

    Raises SettingsError (the user's fault) if it cannot be read. No message has a value: it may be a password.
    """
    try:
        content = Path(path).read_bytes()[: SIZE_MAX + 1]
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise _unreadable(path, why or "it is no file") from None
    if len(content) > SIZE_MAX:
        raise _unreadable(path, f"it has more than {SIZE_MAX >> 20} MiB")
    options = _of_json(path, text) if text.lstrip()[:1] == "{" else of_properties(text)
    try:
        options = {_joined(name): _joined(value) for name, value in options.items()}
    except UnicodeDecodeError:
        raise _unreadable(path, "it has one half of a character") from None
    found = options.get("connector.class")
    if not options:
        raise _unreadable(path, "it has no options")
    if found is not None and not found.rpartition(".")[2].startswith("Postgres"):
        raise SettingsError(
            f"{path} is the configuration of {found}, and cdcd reads PostgreSQL only",
            "Name the configuration of a Debezium connector for PostgreSQL",
            code="arguments-invalid",
        )
    return options


def of_properties(text: str) -> dict[str, str]:
    """Return the properties in a text, as Java reads them: the last one of a name counts."""
    found: dict[str, str] = {}
    lines = iter(re.split(r"\r\n|\r|\n", text))
    for line in lines:
        logical = line.lstrip(_SPACE)
        if not logical or logical[0] in "#!":
            continue
        while _ends_in_backslash(logical):
            logical = logical[:-1] + next(lines, "").lstrip(_SPACE)
        name, value = _divided(logical)
        found[_unescaped(name)] = _unescaped(value)
    return found


def _divided(line: str) -> tuple[str, str]:
    """The name and the value of a logical line: the first `=`, `:` or space that has no backslash before it divides."""
    at = 0
    while at < len(line) and line[at] not in f"=:{_SPACE}":
        at += 2 if line[at] == "\\" else 1
    rest = line[at:].lstrip(_SPACE)
    return line[:at], rest[1:].lstrip(_SPACE) if rest[:1] in ("=", ":") else rest


def _ends_in_backslash(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(
        lambda found: chr(int(found[1][1:], 16)) if len(found[1]) > 1 else _ESCAPED.get(found[1], found[1]), text
    )


def _joined(text: str) -> str:
    """The text with whole characters: an escape is one of UTF-16, so some characters have two."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16")


def _of_json(path: str, text: str) -> dict[str, str]:
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):  # a number of too many digits is no JSONDecodeError
        raise _unreadable(path, "it is not JSON") from None
    if isinstance(document.get("config"), dict):  # as the connector is made by; else as its config is shown
        document = document["config"]
    found: dict[str, str] = {}
    for name, value in document.items():
        if isinstance(value, dict | list):
            raise _unreadable(path, f"the value of {name} is no text")
        if value is not None:
            found[name] = value if isinstance(value, str) else json.dumps(value)
    return found


def _unreadable(path: str, why: str) -> SettingsError:
    return SettingsError(
        f"The connector's configuration {path} cannot be read: {why}",
        'Name the file of properties, or the JSON of Connect: {"name": ..., "config": {...}}, or what GET '
        "/connectors/NAME/config answers",
        code="settings-unreadable",
    )
