"""The manual's page about the settings, from their code.

Before: `settings` describes every setting. After: `cdcd help settings` shows the page; a test holds it equal.
"""

from __future__ import annotations

import textwrap
import types
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from cdcd.config.reference import as_toml, bounds, quantity
from cdcd.config.settings import NAMES, Settings, TableSettings

WIDTH: Final = 120
SINCE: Final = "0.1.0"
"""The version that had the first settings. A later one names its own: `json_schema_extra={"since": "0.2.0"}`."""

_HEAD: Final = f"""\
# Reference: every setting

A setting comes from the TOML file, from the environment, or from a file in the secrets directory; the later one wins.
`cdcd config` prints the values in force, and where each came from; `cdcd config --reference` prints all as a TOML file.

The file is the one of `--config`, or of `CDCD_CONFIG`, or `./cdcd.toml`, or `/etc/cdcd/cdcd.toml`. `slot` under
`[source]` is `source.slot` on this page, `CDCD_SOURCE__SLOT` in the environment, and `source__slot` in the secrets
directory. Lists and tables are JSON outside the TOML file. Every setting is there since {SINCE}, unless it says
otherwise.
"""

_ENTRIES: Final = """\
In the environment and in a secrets file they are one list, as JSON: `CDCD_TABLE='[{"match": "public.*", "exclude":
["notes"]}]'`. [Columns](columns.md) and [tables](tables.md#the-topic-of-a-table) say what becomes of them.
"""

_WORDS: Final = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): ""}


def page() -> str:
    """The page, in Markdown."""
    parts = [_HEAD, _described("secrets_dir", Settings.model_fields["secrets_dir"])]
    for section, model in NAMES.sections.items():
        parts.append(f"## `[{section}]`\n\n{model.__doc__}\n")
        parts += [_described(f"{section}.{name}", field) for name, field in model.model_fields.items()]
    parts.append(f"## `[[table]]`\n\n{TableSettings.__doc__}\n\n{_ENTRIES}")
    parts += [_described(f"table.{name}", field) for name, field in TableSettings.model_fields.items()]
    return "\n".join(parts)


def _described(key: str, field: FieldInfo) -> str:
    facts = [f"{kind_of(field)[0].upper()}{kind_of(field)[1:]}.", _default(key, field)]
    if (limits := bounds(key, field).strip()) and limits:
        facts.append(limits)
    if field.examples:
        facts.append(f"Example: `{as_toml(field.examples[0])}`.")
    if (since := _since(field)) != SINCE:
        facts.append(f"Since {since}.")
    return f"### `{key}`\n\n{_wrapped(' '.join(facts))}\n\n{_wrapped(_marked(str(field.description)))}\n"


def kind_of(field: FieldInfo) -> str:
    """The type of a setting's values in plain words."""
    words = dict.fromkeys(word for word in _words(field.annotation) if word)
    return " or ".join(words)


def _words(kind: Any) -> list[str]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _words(arguments[0])
    if origin is Literal:
        return [f"`{as_toml(each)}`" for each in arguments]
    if origin in (Union, types.UnionType):
        return [word for each in arguments for word in _words(each)]
    if origin is tuple:
        return ["list of texts"]
    if origin is dict:
        return ["table"]
    return [_WORDS[kind]]


def _default(key: str, field: FieldInfo) -> str:
    if field.is_required():
        return "Required."
    default = field.get_default(call_default_factory=True)
    if default is None:
        return "Not set by default."
    size = f" ({quantity(key, default)})" if "bytes" in key else ""
    return f"Default: `{as_toml(default)}`{size}."


def _since(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    return str(extra.get("since", SINCE)) if isinstance(extra, dict) else SINCE


def _marked(text: str) -> str:
    """The description as Markdown: a star in it is a star."""
    return text.replace("*", r"\*")


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
