"""Loads the daemon's settings: a TOML file, then the environment, then a secrets directory. The later one wins.

Before: `cli` has parsed `--config FILE` and the options.
After: the commands have the settings, and `reference` prints where each value came from.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pydantic_settings import EnvSettingsSource

from cdcd.config import layers
from cdcd.config.layers import Layers, Setting, from_file
from cdcd.config.settings import NAMES, Settings
from cdcd.errors import SettingsError
from cdcd.sink.kafka.client_config import check_properties
from cdcd.sink.topics import TopicNames

Loaded: TypeAlias = "layers.Loaded[Settings]"

OTHER_VARIABLES = re.compile(r"CDCD_(COMPILE|TEST_\w*|SPARK_DSN)", re.ASCII)
"""Variables of cdcd that are not settings: of the build, of the tests, and of `cdcd spark`."""

KUBERNETES = re.compile(r"CDCD_(?!.*__)(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)", re.ASCII)
"""Variables that Kubernetes sets in every pod for a Service whose name begins with cdcd: CDCD_SERVICE_HOST, CDCD_PORT.

A setting has two underscores after its section."""


def load(path: str | None, options: Mapping[str, tuple[str, Any]] | None = None) -> Loaded:
    """Read every layer. `path` is the TOML file, None for none.

    `options` come from the command line, which overrides everything: by `section.name`, the option's name and value.

    Raises SettingsError (the user's fault): a file cannot be read, a key is unknown, a value is missing or wrong.
    """
    merged = Layers(NAMES)
    if path is not None:
        merged.add(from_file(path, NAMES))
    merged.add(_from_environment())
    if secrets_dir := merged.values.get("secrets_dir"):
        merged.add(_from_secrets(str(secrets_dir)))
    merged.add((key, value, option) for key, (option, value) in (options or {}).items())
    loaded = merged.validated()
    # The sink's own checks run now, so that a mistake is found before anything starts.
    sink = loaded.settings.sink
    TopicNames(sink.prefix, sink.topic)
    check_properties(sink.librdkafka)
    return loaded


def _from_environment() -> Iterator[Setting]:
    # pydantic-settings ignores variables that it does not know. A misspelled one must be an error.
    for variable in sorted(os.environ):
        name = variable.upper()
        if not name.startswith(NAMES.env_prefix) or OTHER_VARIABLES.fullmatch(name) or KUBERNETES.fullmatch(name):
            continue
        key = _key(name.removeprefix(NAMES.env_prefix).lower())
        if key in NAMES.sections:
            hint = f"Set one of its keys, as {NAMES.variable(NAMES.known(key)[0])}"
            raise SettingsError(f"{variable} is no setting, but a section of settings", hint)
        NAMES.refuse_unknown(key, variable, "environment")
    for key, value in NAMES.leaves(EnvSettingsSource(Settings)()):
        origin = f"environment {NAMES.variable(key)}"
        yield key, _decoded(key, value, origin), origin


def _from_secrets(directory: str) -> Iterator[Setting]:
    if not Path(directory).is_dir():
        raise SettingsError(f"The secrets directory {directory} does not exist", "Mount it, or leave out secrets_dir")
    for entry in sorted(Path(directory).iterdir()):
        if entry.name.startswith(".") or not entry.is_file():
            continue  # Kubernetes keeps the mounted versions in `..data`
        origin = f"secret {entry}"
        key = _key(entry.name)
        try:
            value = entry.read_text(encoding="utf-8").strip()  # editors end a file with a line break: not the secret's
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise SettingsError(f"The secret {entry} cannot be read: {why}", "Mount it as readable text") from None
        free, _, name = entry.name.replace("__", ".", 1).partition("__")
        if name and free in NAMES.free_form:
            yield free, {name: value}, origin
        else:
            NAMES.refuse_unknown(key, key.replace(".", "__", 1), f"secret {entry}")
            yield key, _decoded(key, value, origin), origin


def _key(spelled: str) -> str:
    return spelled.replace("__", ".", 1)


def _decoded(key: str, value: Any, origin: str) -> Any:
    if key not in NAMES.json_outside_the_file or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (json.JSONDecodeError, RecursionError):
        example = '{"name": "value"}' if key in NAMES.free_form else '["public.*"]'
        raise SettingsError(f"{key} is not JSON ({origin})", f"Write it like {example}") from None
