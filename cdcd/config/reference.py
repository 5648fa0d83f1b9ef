"""Settings as text: the default file with its comments, and the values in force with their secrets masked.

Before: `settings` describes every setting; `loading` has the values in force. After: `cdcd config` prints one of the
two. A test holds config/cdcd.toml equal to `reference()`, byte by byte.
"""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from cdcd.config.loading import Loaded
from cdcd.config.settings import NAMES, Settings, TableSettings

MASK = "********"

SECRET_WORDS = (
    "password",
    "secret",
    "token",
    "credential",
    "user.info",
    "jaas",
    "key.pem",
    "passphrase",
    "keystore.key",
    "oauthbearer.config",  # a text for sink.token_function
)
"""If the key of a free-form setting contains one of these, the value is secret."""

_HEAD = """\
# cdcd: every setting with its default. Made by `cdcd config --reference`.
# The environment overrides this file: CDCD_SOURCE__SLOT is slot under [source]. Lists and tables are JSON there.
# Files in the secrets directory override both: source__dsn, or sink__librdkafka__sasl.password.
"""


def reference() -> str:
    """The default file with its comments. The two required settings are comments, too: only a person knows them."""
    lines = [_HEAD, *_described("secrets_dir", Settings.model_fields["secrets_dir"])]
    for section, model in NAMES.sections.items():
        lines += ["", f"# {model.__doc__}", f"[{section}]"]
        for name, field in model.model_fields.items():
            lines += ["", *_described(name, field)]
    lines += ["", f"# {TableSettings.__doc__}"]
    for at, (name, field) in enumerate(TableSettings.model_fields.items()):
        described = _described(name, field)
        kept = [line for line in described if line.startswith("#")]
        lines += ["", *(["# [[table]]"] if at == 0 else []), *kept]
    return "\n".join(lines) + "\n"


def effective(loaded: Loaded) -> list[tuple[str, Any, str]]:
    """Every setting in force: `section.name`, the value with secrets masked, and its origin."""
    values = loaded.settings.model_dump(mode="json")
    rows = [("secrets_dir", values["secrets_dir"], loaded.origins.get("secrets_dir", "default"))]
    for section in NAMES.sections:
        for name, value in values[section].items():
            key = f"{section}.{name}"
            rows.append((key, masked(name, value), loaded.origins.get(key, "default")))
    entries = [each.model_dump(mode="json", exclude_defaults=True) for each in loaded.settings.table]
    rows.append(("table", entries, loaded.origins.get("table", "default")))
    return rows


def as_toml(value: Any) -> str:
    """A value as TOML. None, which TOML does not have, is `(not set)`."""
    if value is None:
        return "(not set)"
    if isinstance(value, dict):
        inside = ", ".join(f"{toml_key(key)} = {as_toml(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(as_toml(item) for item in value)}]"
    return json.dumps(value, ensure_ascii=False)


def masked(name: str, value: Any) -> Any:
    """`value` without its secrets: passwords in connection strings, and secret keys of free-form settings."""
    if isinstance(value, dict):
        return {key: masked(key, item) for key, item in value.items()}
    if name == "password_command":  # the name of the program is no secret; its other words may be
        return [*value[:1], *[MASK for _ in value[1:]]]
    if is_secret(name):
        return MASK
    return mask_connection(value) if isinstance(value, str) else value


def is_secret(name: str) -> bool:
    """Whether the value of a free-form setting with this key is secret."""
    # The name of a function is none.
    return not name.endswith("_function") and any(word in name.lower() for word in SECRET_WORDS)


def mask_connection(text: str) -> str:
    """A conninfo string or a URI without its passwords. It may mask too much, never too little."""
    # scheme://user:password@host - the password ends at the last @ before the path
    text = re.sub(r"(\w+://[^:/?#\s]*):[^/\s]*@", rf"\1:{MASK}@", text)
    # password = 'with \' quotes' or password=bare; also sslpassword, and ?password= of a URI
    return re.sub(r"(\w*password\s*=\s*)('(?:\\.|[^'\\])*'?|(?:\\.|[^\s&])*)", rf"\1{MASK}", text, flags=re.IGNORECASE)


def toml_key(key: str) -> str:
    """A key as TOML: in quotes if it needs them."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _described(name: str, field: FieldInfo) -> list[str]:
    lines = [
        f"# {line}"
        for line in textwrap.wrap(f"{field.description}{bounds(name, field)}{_default_size(name, field)}", 110)
    ]
    example = field.examples[0] if field.examples else None
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    if default is None:  # no example is in force by accident
        return [*lines, f"# {name} = {as_toml(example)}"]
    if example is not None:
        lines.append(f"# Example: {name} = {as_toml(example)}")
    return [*lines, f"{name} = {as_toml(default)}"]


def bounds(name: str, field: FieldInfo) -> str:
    """Text such as ` From 1 to 100.`, from the constraints of the field."""
    low = next((rule.ge for rule in field.metadata if isinstance(rule, Ge)), None)
    high = next((rule.le for rule in field.metadata if isinstance(rule, Le)), None)
    if low is None or high is None:
        return ""
    return f" From {quantity(name, low)} to {quantity(name, high)}."


def _default_size(name: str, field: FieldInfo) -> str:
    return f" Default: {quantity(name, field.default)}." if "bytes" in name and field.default is not None else ""


def quantity(name: str, number: Any) -> str:
    """A number as text: a setting of bytes has its unit, such as `64 MiB`."""
    if "bytes" not in name:
        return f"{number:_}" if isinstance(number, int) else str(number)
    units = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
    unit, size = next(((u, s) for u, s in units if number >= s), ("bytes", 1))
    return f"{number / size:g} {unit}"
