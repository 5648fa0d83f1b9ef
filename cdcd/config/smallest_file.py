"""The smallest settings file: only what differs from the defaults, and no secret.

Before: `cdcd init` or `cdcd migrate` has made the settings. After: a person keeps the file; `loading` reads it.
"""

from __future__ import annotations

from typing import Any, Final

from cdcd.config.reference import as_toml, is_secret, toml_key
from cdcd.config.settings import NAMES, Settings

_HEAD: Final = "# Written by `{}`. `cdcd config --reference` explains every setting.\n"


def smallest_file(settings: Settings, comments: str = "", by: str = "cdcd init") -> str:
    """The TOML text. `comments`: lines for its head. `by`: the command that writes it.

    Secret properties of librdkafka are left out.
    """
    parts = [_HEAD.format(by), *(f"# {line}\n" for line in comments.splitlines())]
    for section in NAMES.sections:
        values = getattr(settings, section)
        lines, tables = [], []
        for name, field in type(values).model_fields.items():
            value = getattr(values, name)
            if not field.is_required() and value == field.get_default(call_default_factory=True):
                continue
            if f"{section}.{name}" in NAMES.free_form:
                tables.append(_table(f"{section}.{name}", value))
            else:
                lines.append(f"{name} = {as_toml(value)}\n")
        if lines or any(tables):
            parts += [f"\n[{section}]\n", *lines, *filter(None, tables)]
    for entry in settings.table:
        values = entry.model_dump(mode="json", exclude_defaults=True)
        parts += ["\n[[table]]\n", *(f"{name} = {as_toml(value)}\n" for name, value in values.items())]
    return "".join(parts)


def _table(name: str, values: dict[str, Any]) -> str:
    lines = [f"{toml_key(key)} = {as_toml(value)}\n" for key, value in values.items() if not is_secret(key)]
    return "".join([f"\n[{name}]\n", *lines]) if lines else ""
