"""Hostile settings: whatever a file, a variable or a secret holds, there are settings or a SettingsError."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from cdcd.config.loading import load
from cdcd.config.settings import NAMES, Settings
from cdcd.errors import SettingsError

quick = settings(deadline=None, max_examples=100)

GOOD = {"source": {"dsn": '"host=db"'}, "sink": {"bootstrap_servers": '"k:9092"'}}

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters='"\\'), max_size=30)
hostile = st.sampled_from(
    ["", " ", "*", "..", "{", "{table}{", "{x}", "{0}", "%s", "a" * 5000, "🐘", "-1", "nan", "1e999", "\u202e", "'; --"]
)
scalars: st.SearchStrategy[str] = st.one_of(
    texts.map(lambda text: f'"{text}"'),
    hostile.map(lambda text: f'"{text}"'),
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: f"{number:.10e}"),
    st.sampled_from(["true", "false", "nan", "inf", "-inf", "1979-05-27", "1979-05-27T07:32:00Z", "07:32:00"]),
)
values = st.one_of(
    scalars,
    st.lists(scalars, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
    st.dictionaries(texts, scalars, max_size=3).map(
        lambda table: "{" + ", ".join(f'"{name}" = {value}' for name, value in table.items()) + "}"
    ),
)
keys = st.sampled_from([key for key in NAMES.known() if "." in key])


def loaded(content: bytes, environment: dict[str, str] | None = None) -> Settings | None:
    """The settings, or None for a SettingsError; anything else fails the test."""
    clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("CDCD_")}
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, clean | (environment or {}), clear=True):
        path = Path(folder) / "cdcd.toml"
        path.write_bytes(content)
        try:
            return load(str(path)).settings
        except SettingsError:
            return None


def toml(tables: dict[str, dict[str, str]]) -> bytes:
    lines = [f"[{name}]\n" + "".join(f"{k} = {v}\n" for k, v in table.items()) for name, table in tables.items()]
    return "".join(lines).encode()


@quick
@given(keys, values)
def test_any_value_of_any_setting_is_taken_or_refused(key: str, value: str) -> None:
    section, _, name = key.partition(".")
    tables = {table: dict(GOOD.get(table, {})) for table in NAMES.sections}
    tables[section][name] = value
    loaded(toml(tables))


@quick
@given(st.binary(max_size=200) | texts.map(str.encode))
def test_any_file_is_taken_or_refused(content: bytes) -> None:
    loaded(content)
    loaded(toml(GOOD) + content)


@quick
@given(keys, texts | hostile | st.sampled_from(["[", "[]", "{}", "null", '{"a": {"b": []}}', "[[[[1]]]]", "1e400"]))
def test_any_variable_is_taken_or_refused(key: str, value: str) -> None:
    loaded(toml(GOOD), {f"CDCD_{key.replace('.', '__').upper()}": value})


@quick
@given(keys | texts.filter(lambda name: name not in ("", ".", "..") and "/" not in name), st.binary(max_size=40))
def test_any_secret_is_taken_or_refused(name: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name.replace(".", "__")).write_bytes(content)
        loaded(toml(GOOD), {"CDCD_SECRETS_DIR": folder})


def test_a_file_nested_too_deep_is_refused() -> None:
    depth = 100_000
    assert loaded(b"a = " + b"[" * depth + b"]" * depth) is None


def test_what_is_taken_is_what_was_written() -> None:
    found: Any = loaded(toml(GOOD | {"log": {"level": '"debug"'}}))
    assert (found.source.dsn, found.log.level) == ("host=db", "debug")
