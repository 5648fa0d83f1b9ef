"""Where settings come from: a TOML file, then the environment, then a secrets directory; the later one wins.

Before: `cli.main` has parsed `--config FILE`.
After: `load` gives the settings and, for each, where its value came from.

Everything that can be wrong with settings ends here as one SettingsError: a sentence and its hint. No message holds the
value of a setting: it may be secret.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource

from cdcd.config.settings import FREE_FORM, JSON_OUTSIDE_THE_FILE, SECTIONS, Settings, known_keys
from cdcd.errors import SettingsError
from cdcd.sink.kafka.client_config import check_properties
from cdcd.sink.topics import TopicNames

Finding = tuple[str, Any, str]
"""What a source says: `section.name` (or the name of a top-level setting), the value, where it stands."""

OURS_ELSEWHERE = re.compile(r"CDCD_(COMPILE|TEST_\w*)", re.ASCII)
"""Variables that are ours without being settings: the build reads the first, the tests read the others."""

KUBERNETES = re.compile(r"CDCD_(?!.*__)(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)", re.ASCII)
"""What Kubernetes puts into every pod for a Service whose name begins with cdcd: CDCD_SERVICE_HOST, CDCD_PORT, ...

Ours have two underscores after their section."""


@dataclass(frozen=True)
class Loaded:
    """The effective settings, and where each value came from by `section.name`; one that is absent is the default."""

    settings: Settings
    origins: Mapping[str, str]


def load(path: str | None, options: Mapping[str, tuple[str, Any]] | None = None) -> Loaded:
    """Read every source; `path` is the TOML file, or None for none.

    `options` are those of the command line, which wins: by `section.name`, how the option is called, and its value.

    Raises SettingsError (the user's fault): a file cannot be read, a key is unknown, a value is missing or wrong.
    """
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    if path is not None:
        _lay_over(merged, origins, _from_file(path))
    _lay_over(merged, origins, _from_environment())
    if secrets_dir := merged.get("secrets_dir"):
        _lay_over(merged, origins, _from_secrets(str(secrets_dir)))
    _lay_over(merged, origins, ((key, value, option) for key, (option, value) in (options or {}).items()))
    return Loaded(_validated(merged, origins), origins)


def _from_file(path: str) -> Iterator[Finding]:
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        hint = "Name another with --config FILE"
        raise SettingsError(f"The settings file {path} cannot be read: {error.strerror}", hint) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        hint = "`cdcd config --reference` shows its form"
        raise SettingsError(f"The settings file {path} is not TOML: {error}", hint) from error
    except RecursionError:
        raise SettingsError(f"The settings file {path} is nested too deep", "No setting needs that") from None
    for key, value in _leaves(content):
        _refuse_unknown(key, key, f"file {path}")
        yield key, value, f"file {path}"


def _from_environment() -> Iterator[Finding]:
    # pydantic-settings leaves out what it does not know: a misspelled variable would be passed over in silence.
    for variable in sorted(os.environ):
        name = variable.upper()
        if not name.startswith("CDCD_") or OURS_ELSEWHERE.fullmatch(name) or KUBERNETES.fullmatch(name):
            continue
        key = _key(name[5:].lower())
        if key in SECTIONS:
            hint = f"Set one of its keys, as {_variable(known_keys(key)[0])}"
            raise SettingsError(f"{variable} is no setting, but a section of settings", hint)
        _refuse_unknown(key, variable, "environment")
    for key, value in _leaves(EnvSettingsSource(Settings)()):
        origin = f"environment {_variable(key)}"
        yield key, _decoded(key, value, origin), origin


def _from_secrets(directory: str) -> Iterator[Finding]:
    if not Path(directory).is_dir():
        raise SettingsError(f"The secrets directory {directory} does not exist", "Mount it, or leave out secrets_dir")
    for entry in sorted(Path(directory).iterdir()):
        if entry.name.startswith(".") or not entry.is_file():
            continue  # Kubernetes keeps the mounted versions in `..data`
        origin = f"secret {entry}"
        key = _key(entry.name)
        try:
            value = entry.read_text(encoding="utf-8").strip()  # editors end a file with a line break that is no secret
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise SettingsError(f"The secret {entry} cannot be read: {why}", "Mount it as readable text") from None
        free, _, name = entry.name.replace("__", ".", 1).partition("__")
        if name and free in FREE_FORM:
            yield free, {name: value}, origin
        else:
            _refuse_unknown(key, key.replace(".", "__", 1), f"secret {entry}")
            yield key, _decoded(key, value, origin), origin


def _key(spelled: str) -> str:
    return spelled.replace("__", ".", 1)


def _variable(key: str) -> str:
    return f"CDCD_{key.replace('.', '__', 1).upper()}"


def _leaves(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each `section.name` that `content` gives, with its value; a free-form table is one value."""
    for section, values in content.items():
        if section in SECTIONS and isinstance(values, dict):
            for name, value in values.items():
                yield f"{section}.{name}", value
        else:
            yield section, values


def _decoded(key: str, value: Any, origin: str) -> Any:
    if key not in JSON_OUTSIDE_THE_FILE or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (json.JSONDecodeError, RecursionError):
        example = '["public.*"]' if key == "source.tables" else '{"name": "value"}'
        raise SettingsError(f"{key} is not JSON ({origin})", f"Write it like {example}") from None


def _refuse_unknown(key: str, spelled: str, place: str) -> None:
    known = known_keys()
    if key in known or key in SECTIONS or any(key.startswith(f"{free}__") for free in FREE_FORM):
        return
    # `slot` for `source.slot` is the right name in the wrong place: nearer than any that only looks alike.
    name = key.rpartition(".")[2]
    nearest = [k for k in known if k.rpartition(".")[2] == name] or get_close_matches(key, known, n=1, cutoff=0.5)
    if not nearest:
        hint = "`cdcd config --reference` lists every setting"
    else:
        hint = f"Did you mean {_variable(nearest[0]) if place == 'environment' else nearest[0]}?"
    raise SettingsError(f"There is no setting {spelled} ({place})", hint)


def _lay_over(merged: dict[str, Any], origins: dict[str, str], findings: Iterator[Finding]) -> None:
    """Put one source over those before it. Free-form tables merge key by key, so that a password joins the rest."""
    for key, value, origin in findings:
        section, _, name = key.rpartition(".")
        target = merged.setdefault(section, {}) if section else merged
        if not isinstance(target, dict):
            continue  # `source = 5` in the file: validation names it
        if key in FREE_FORM and isinstance(value, dict) and isinstance(target.get(name), dict):
            target[name] = target[name] | value
            origins[key] = f"{origins[key]}, {origin}"
        else:
            target[name] = value
            origins[key] = origin


def _validated(merged: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
    # `from None` below: pydantic's own text holds the values.
    try:
        settings = Settings(**merged)
        # The sink knows what it can work with: it says so now, not after the start.
        TopicNames(settings.sink.prefix, settings.sink.topic)
        check_properties(settings.sink.librdkafka)
        return settings
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
    missing: list[str] = []
    wrong: dict[str, list[str]] = {}
    for problem in problems:
        place = ".".join(str(part) for part in problem["loc"][:2])
        if problem["type"] == "missing":
            missing.append(_required(place))
        else:
            message = problem["msg"].removeprefix("Value error, ")
            wrong.setdefault(place, []).append(message[0].lower() + message[1:])
    said, cures = [], []
    if missing:
        sections = " and ".join(f"[{each.partition('.')[0]}]" for each in missing)
        are, them = ("is", "it") if len(missing) == 1 else ("are", "them")
        said.append(f"{' and '.join(missing)} {are} not set")
        cures.append(f"Set {them} in the file under {sections}, or as {' and '.join(map(_variable, missing))}")
    if wrong:
        # A union's members each say what they want: any of it is right.
        said += [f"{key}: {', or '.join(wanted)} ({origins.get(key, 'default')})" for key, wanted in wrong.items()]
        cures.append(f"`cdcd config --reference` describes {'it' if len(wrong) == 1 else 'them'}")
    raise SettingsError("; ".join(said), ". ".join(cures))


def _required(place: str) -> str:
    """The setting that is missing; of a section that is absent as a whole, the one that it lacks."""
    if place not in SECTIONS:
        return place
    return next(key for key in known_keys(place) if SECTIONS[place].model_fields[key.partition(".")[2]].is_required())
