"""Settings in layers: each layer overrides the ones before it, and a pydantic model checks the result.

Before: `loading` (the daemon) or `spark.settings` decides which layers there are, and in which order.
After: `Loaded` holds the settings and, for each one that is set, where its value came from.

Every mistake in the settings raises SettingsError, with a sentence and a hint. No message contains the value of a
setting, because it may be secret.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from cdcd.config.wrong_values import wanted
from cdcd.errors import SettingsError

M = TypeVar("M", bound=BaseModel)

Setting: TypeAlias = "tuple[str, Any, str]"
"""One value of a layer: its key, the value, its origin. The key is `section.name`, or `name` outside the sections."""


class SettingNames(Generic[M]):
    """The names of all settings of a model, as `section.name`. A section is a field that is itself a model."""

    def __init__(self, model: type[M], reference: str, env_prefix: str = "") -> None:
        """`reference`: the command or file that describes all settings. `env_prefix` "": no variables."""
        self.model = model
        self.reference = reference
        self.env_prefix = env_prefix
        fields = model.model_fields
        found = {name: _section(field.annotation) for name, field in fields.items()}
        self.sections: dict[str, type[BaseModel]] = {name: section for name, section in found.items() if section}
        """The TOML tables, in the order of the file."""
        kinds = {key: get_origin(self.field(key).annotation) for key in self.known()}
        self.free_form = frozenset(key for key, kind in kinds.items() if kind is dict)
        """Settings that are tables with the keys of other software. Their keys are not checked here."""
        self.lists = frozenset(key for key, kind in kinds.items() if kind is tuple and "." not in key)
        """Settings outside the sections that are arrays of tables: `[[name]]`."""
        self.json_outside_the_file = frozenset(key for key, kind in kinds.items() if kind in (dict, tuple))
        """Lists and tables: in the environment and in secret files they are JSON."""

    def known(self, section: str = "") -> list[str]:
        """The keys of all settings, or of those in `section`, in the order of the file."""
        return [
            key
            for name in self.model.model_fields
            if section in ("", name)
            for key in (
                [f"{name}.{each}" for each in self.sections[name].model_fields] if name in self.sections else [name]
            )
        ]

    def field(self, key: str) -> Any:
        """The model's FieldInfo for a key."""
        section, _, name = key.rpartition(".")
        return (self.sections[section] if section else self.model).model_fields[name]

    def variable(self, key: str) -> str:
        """The environment variable that sets `key`."""
        return f"{self.env_prefix}{key.replace('.', '__', 1).upper()}"

    def refuse_unknown(self, key: str, spelled: str, place: str, *, is_table: bool = False) -> None:
        """Raise SettingsError, with the nearest name, if `key` is no setting. `spelled`: as the user wrote it.

        `is_table`: the user wrote it as a table of TOML.
        """
        known = self.known()
        if key in known or key in self.sections or any(key.startswith(f"{free}__") for free in self.free_form):
            return
        section = key.partition(".")[0]
        if is_table and section not in self.sections:
            tables = [name for name in self.model.model_fields if name in self.sections or name in self.free_form]
            nearest = get_close_matches(section, tables, n=1, cutoff=0.5)
            hint = f"Did you mean [{nearest[0]}]?" if nearest else f"There are [{'], ['.join(tables)}]"
            raise SettingsError(f"There is no section [{section}] ({place})", hint, code="setting-unknown")
        # A slip in a name of this section is nearest. For `slot`, `source.slot` is nearer than a name with similar
        # letters: the name is right, the section is missing.
        name = key.rpartition(".")[2]
        nearest = (
            get_close_matches(key, self.known(section) if section in self.sections else [], n=1, cutoff=0.9)
            or [k for k in known if k.rpartition(".")[2] == name]
            or get_close_matches(key, known, n=1, cutoff=0.5)
        )
        if not nearest:
            hint = f"{self.reference} lists every setting"
        else:
            hint = f"Did you mean {self.variable(nearest[0]) if place == 'environment' else nearest[0]}?"
        raise SettingsError(f"There is no setting {spelled} ({place})", hint, code="setting-unknown")

    def leaves(self, content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Each key in `content`, with its value. A free-form table is one value, and an empty section is one value.

        If a section is not a table, as in `source = 5`, its key is the section: the model then refuses the value.
        """
        for section, values in content.items():
            if section in self.sections and isinstance(values, dict) and values:
                for name, value in values.items():
                    yield f"{section}.{name}", value
            else:
                yield section, values


@dataclass(frozen=True)
class Loaded(Generic[M]):
    """The settings in force."""

    settings: M
    origins: Mapping[str, str]
    """The origin of each value, by its key. Other keys have their default."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The files and folders that were read: the path of each by a name for it."""
    again: Callable[[], Loaded[M]] | None = None
    """Reads the same layers once more, as they are then. Raises SettingsError."""


class Layers(Generic[M]):
    """The layers so far, merged."""

    def __init__(self, names: SettingNames[M]) -> None:
        self._names = names
        self.values: dict[str, Any] = {}
        """By section, then by name."""
        self._origins: dict[str, str] = {}

    def add(self, layer: Iterable[Setting]) -> None:
        """Override the layers so far. Free-form tables are merged key by key, so a secret file can add one password."""
        for key, value, origin in layer:
            if key in self._names.sections and value == {}:
                self.values.setdefault(key, {})
                continue
            section, _, name = key.rpartition(".")
            target = self.values.setdefault(section, {}) if section else self.values
            if not isinstance(target, dict):
                continue  # `source = 5` in the file: the model refuses it
            if key in self._names.free_form and isinstance(value, dict) and isinstance(target.get(name), dict):
                target[name] = target[name] | value
                self._origins[key] = f"{self._origins[key]}, {origin}"
            else:
                target[name] = value
                self._origins[key] = origin

    def validated(self) -> Loaded[M]:
        """Check the merged layers. Raises one SettingsError (the user's fault) for everything that is wrong."""
        try:
            return Loaded(self._names.model(**self.values), self._origins)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False)
        # After the `except`, not in it: a chained ValidationError would show the values.
        missing: list[str] = []
        wrong: dict[tuple[str, str], list[ErrorDetails]] = {}
        for problem in problems:
            key, name = self._place(problem["loc"])
            if problem["type"] == "missing" and key not in self._names.lists:
                missing.append(self._required(key))
            else:
                wrong.setdefault((key, name), []).append(problem)
        messages, hints = [], []
        if missing:
            are, them = ("is", "it") if len(missing) == 1 else ("are", "them")
            messages.append(f"{' and '.join(missing)} {are} not set")
            hints.append(f"Set {them} {self._places(missing)}")
        if wrong:
            # A field with several types has one problem for each type; one of them is enough.
            messages += [self._wrong(key, name, found) for (key, name), found in wrong.items()]
            hints.append(f"{self._names.reference} describes {'it' if len(wrong) == 1 else 'them'}")
        raise SettingsError("; ".join(messages), ". ".join(hints), code="setting-invalid")

    def _place(self, location: tuple[int | str, ...]) -> tuple[str, str]:
        """The setting that a problem is in, and its name for people: of a list, which entry and what in it."""
        key = ".".join(map(str, location[:2]))
        if location and location[0] in (*self._names.lists, *self._names.free_form):
            key = str(location[0])
        if key not in self._names.lists or len(location) == 1:
            return key, key
        number = int(location[1])
        entry = self.values[key][number]
        match = entry.get("match") if isinstance(entry, dict) else None
        name = f"[[{key}]] with match = {match!r}" if isinstance(match, str) else f"[[{key}]] number {number + 1}"
        return key, f"{location[2]} in {name}" if len(location) > 2 else name

    def _wrong(self, key: str, name: str, found: Sequence[ErrorDetails]) -> str:
        """Say what is wrong with the setting `key`; empty: with several settings together."""
        return f"{name} {self._wanted(key, found)} ({self._origins.get(key, 'default')})" if key else wanted(found)

    def _wanted(self, key: str, found: Sequence[ErrorDetails]) -> str:
        """The value that the setting must have, or the form that TOML must give it, if only the form is wrong."""
        section, _, name = key.rpartition(".")
        value = (self.values.get(section, {}) if section else self.values).get(name)
        if key in self._names.lists and found[0]["type"] == "tuple_type":
            return f"must be written as [[{key}]], once for each entry"
        if key in self._names.lists and found[0]["type"] == "extra_forbidden":
            entry: type[BaseModel] = get_args(self._names.field(key).annotation)[0]
            nearest = get_close_matches(str(found[0]["loc"][-1]), entry.model_fields, n=1, cutoff=0.5)
            return "is no setting" + (f"; did you mean {nearest[0]}?" if nearest else "")
        if key in self._names.sections and isinstance(value, list):
            nearest = get_close_matches(key, self._names.lists, n=1, cutoff=0.5)
            return f"must be one section, [{key}]" + (f"; did you mean [[{nearest[0]}]]?" if nearest else "")
        if key in self._names.free_form and isinstance(value, dict):
            nested = next((each for each in _dotted(value) if "." in each and each not in value), None)
            if nested is not None:
                return f'must have names with a dot in quotes: "{nested}" = ...'
        return wanted(found)

    def _required(self, place: str) -> str:
        """The missing setting. If a whole section is missing, the first required setting of the section."""
        if place not in self._names.sections:
            return place
        return next(key for key in self._names.known(place) if self._names.field(key).is_required())

    def _places(self, missing: list[str]) -> str:
        """The hint: where to set them, in the file or (if variables are read) in the environment."""
        sections = [f"[{key.partition('.')[0]}]" for key in missing]
        file = f"in the file under {' and '.join(sections)}"
        if not self._names.env_prefix:
            return file
        return f"{file}, or as {' and '.join(map(self._names.variable, missing))}"


def from_file(path: str, names: SettingNames[M]) -> Iterator[Setting]:
    """The layer of a TOML file. Raises SettingsError (the user's fault) if the file or a key in it is wrong."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        hint = "Name another file with --config FILE"
        raise SettingsError(
            f"The settings file {path} cannot be read: {error.strerror}", hint, code="settings-unreadable"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        hint = f"{names.reference} shows the form"
        raise SettingsError(
            f"The settings file {path} is not TOML: {error}", hint, code="settings-unreadable"
        ) from error
    except RecursionError:
        raise SettingsError(
            f"The settings file {path} is nested too deep", "No setting needs that", code="settings-unreadable"
        ) from None
    for key, value in names.leaves(content):
        names.refuse_unknown(key, key, f"file {path}", is_table=isinstance(value, dict))
        yield key, value, f"file {path}"


def _dotted(table: Mapping[str, Any]) -> Iterator[str]:
    """The names in a table, and of those that are tables the names inside: as TOML reads a name with dots."""
    for name, value in table.items():
        yield from (f"{name}.{each}" for each in _dotted(value)) if isinstance(value, dict) else (name,)


def _section(annotation: Any) -> type[BaseModel] | None:
    """The model that a field holds, if it is a section: `Section` or `Section | None`."""
    kinds = (annotation, *(() if get_origin(annotation) is tuple else get_args(annotation)))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
