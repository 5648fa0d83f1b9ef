"""Loads the daemon's settings from a TOML file, the environment and a secrets directory. The later value wins.

Before: `cli` has parsed `--config FILE` and the options.
After: the commands have the settings, and `reference` prints where each value came from.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic_settings import EnvSettingsSource

from cdcd.config import layers
from cdcd.config.format_choice import check_format
from cdcd.config.layers import Layers, Setting, from_file
from cdcd.config.settings import NAMES, Settings
from cdcd.errors import SettingsError
from cdcd.sink.kafka.client_config import check_properties

Loaded: TypeAlias = "layers.Loaded[Settings]"

FILE_VARIABLE: Final = "CDCD_CONFIG"
"""The variable that names the settings file."""
FILES: Final = ("cdcd.toml", "/etc/cdcd/cdcd.toml")
"""Where the settings file is looked for if nothing names one."""

OTHER_VARIABLES = re.compile(r"CDCD_(COMPILE|CONFIG|TEST_\w*|SPARK_DSN)", re.ASCII)
"""Variables that are not settings of the daemon: the settings file, those of the build, the tests and `cdcd spark`."""

KUBERNETES = re.compile(r"CDCD_(?!.*__)(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)", re.ASCII)
"""Variables that Kubernetes sets in every pod if a Service's name begins with cdcd: CDCD_SERVICE_HOST, CDCD_PORT.

They are not settings: a setting has two underscores after its section."""


def settings_file(named: str | None) -> str | None:
    """The path of the settings file: the one that the command line names, or CDCD_CONFIG, or the first of FILES.

    None if there is none: the environment may have all settings.
    """
    found = (path for path in FILES if Path(path).is_file())
    return named or os.environ.get(FILE_VARIABLE) or next(found, None)


def load(path: str | None, options: Mapping[str, tuple[str, Any]] | None = None) -> Loaded:
    """Read every layer. `path` is the TOML file, None for none.

    `options` are those of the command line, which override all layers: for `section.name`, the option and its value.

    Raises SettingsError (the user's fault) if a file cannot be read, a key is unknown, or a value is missing or wrong.
    """
    merged, files = Layers(NAMES), {}
    if path is not None:
        files["the settings file"] = path
        merged.add(from_file(path, NAMES))
    merged.add(_from_environment())
    if path is None and not merged.values:
        raise SettingsError(
            f"There is no settings file: neither {FILES[0]} in this directory nor {FILES[1]}",
            "cdcd init writes one, and --config FILE names another one",
            code="settings-unreadable",
        )
    if secrets_dir := merged.values.get("secrets_dir"):
        merged.add(_from_secrets(str(secrets_dir)))
        files["secrets_dir"] = str(secrets_dir)
        files |= {each.name: str(each) for each in Path(str(secrets_dir)).iterdir() if not each.name.startswith(".")}
    merged.add((key, value, option) for key, (option, value) in (options or {}).items())
    loaded = merged.validated()
    check_sink(loaded.settings)  # now, before the daemon connects to any server
    check_format(loaded.settings)
    return replace(loaded, files=files, again=partial(load, path, options))


def check_sink(settings: Settings) -> None:
    """Raise SettingsError for names of topics and properties of Kafka's client that cannot be used."""
    settings.topic_names()
    check_properties(settings.sink.client_properties)


def _from_environment() -> Iterator[Setting]:
    # pydantic-settings ignores unknown variables. But a misspelled variable must be an error.
    of_tables: list[Setting] = []
    for variable in sorted(os.environ):
        name = variable.upper()
        if not name.startswith(NAMES.env_prefix) or OTHER_VARIABLES.fullmatch(name) or KUBERNETES.fullmatch(name):
            continue
        key = _key(name.removeprefix(NAMES.env_prefix).lower())
        if key in NAMES.sections:
            hint = f"Set one of its keys, as {NAMES.variable(NAMES.known(key)[0])}"
            raise SettingsError(f"{variable} is a section, not a setting", hint, code="setting-unknown")
        NAMES.refuse_unknown(key, variable, "environment")
        if one := _of_free_form(key):
            of_tables.append((one[0], {one[1]: os.environ[variable]}, f"environment {name}"))
    for key, value in NAMES.leaves(EnvSettingsSource(Settings)()):
        # pydantic-settings takes the table as JSON or its keys, and not both.
        if key not in NAMES.free_form or isinstance(value, str):
            origin = f"environment {NAMES.variable(key)}"
            yield key, _decoded(key, value, origin), origin
    yield from of_tables


def _from_secrets(directory: str) -> Iterator[Setting]:
    if not Path(directory).is_dir():
        raise SettingsError(
            f"The secrets directory {directory} does not exist",
            "Mount it, or leave out secrets_dir",
            code="settings-unreadable",
        )
    for entry in sorted(Path(directory).iterdir()):
        if entry.name.startswith(".") or not entry.is_file():
            continue  # Kubernetes keeps the mounted files in `..data`
        origin = f"secret {entry}"
        key = _key(entry.name)
        try:
            value = entry.read_text(encoding="utf-8").strip()  # editors add a line break
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise SettingsError(
                f"The secret {entry} cannot be read: {why}", "Mount it as readable text", code="settings-unreadable"
            ) from None
        if one := _of_free_form(key):
            yield one[0], {one[1]: value}, origin
        else:
            NAMES.refuse_unknown(key, key.replace(".", "__", 1), f"secret {entry}")
            yield key, _decoded(key, value, origin), origin


def _key(spelled: str) -> str:
    return spelled.replace("__", ".", 1)


def _of_free_form(key: str) -> tuple[str, str] | None:
    """The free-form table and the name in it, if the key is `sink.librdkafka__client.id` or the like."""
    table, _, name = key.partition("__")
    return (table, name) if name and table in NAMES.free_form else None


def _decoded(key: str, value: Any, origin: str) -> Any:
    if key not in NAMES.json_outside_the_file or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (json.JSONDecodeError, RecursionError):
        example = '{"name": "value"}' if key in NAMES.free_form else '["public.*"]'
        if key in NAMES.lists:
            example = '[{"match": "public.customers", "exclude": ["notes"]}]'
        raise SettingsError(
            f"{key} is not JSON ({origin})", f"Write it like {example}", code="setting-invalid"
        ) from None
