from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdcd.errors import SettingsError
from cdcd.migration.connector_file import SIZE_MAX, of_properties, read_connector

CLASS = "io.debezium.connector.postgresql.PostgresConnector"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b", {"a": "b"}),
        ("  a = b c  ", {"a": "b c  "}),
        ("a:b=c", {"a": "b=c"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("# a=b\n! c=d\n\n \t\ne=f", {"e": "f"}),
        ("a=b\na=c", {"a": "c"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\\\=c", {"a\\": "c"}),
        ("a=b,\\\n   c,\\\r\n\td", {"a": "b,c,d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        (r"a=public\\.t\u00e4g\t", {"a": "public\\.täg\t"}),
        ("a=b\\", {"a": "b"}),
        (r"a=\u12", {"a": "u12"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, found: dict[str, str]) -> None:
    assert of_properties(text) == found


@pytest.mark.parametrize(
    "document",
    [
        {"name": "n", "config": {"connector.class": CLASS, "a": True, "b": 5, "c": None, "d": "x"}},
        {"connector.class": CLASS, "a": True, "b": 5, "c": None, "d": "x"},
    ],
)
def test_json_is_a_connector_or_its_configuration(tmp_path: Path, document: object) -> None:
    path = tmp_path / "connector.json"
    path.write_text(json.dumps(document))
    assert read_connector(str(path)) == {"connector.class": CLASS, "a": "true", "b": "5", "d": "x"}


@pytest.mark.parametrize(
    "content",
    [
        b'{"config": ', b"\xff", b"", b"{}", b'{"a": {"password": "hidden"}}', b"[" * 50_000, b"x" * (SIZE_MAX + 1),
        b"connector.class=io.debezium.connector.mysql.MySqlConnector", b'{"a": ' + b"[" * 50_000,
        b'{"a": ' + b"1" * 5_000 + b"}", rb'{"a": "\ud800"}', rb"a=\ud800",
    ],
)  # fmt: skip
def test_what_is_no_configuration_is_refused_without_a_value(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "connector"
    path.write_bytes(content)
    if content == b"[" * 50_000:
        assert read_connector(str(path)) == {"[" * 50_000: ""}  # a property of that name
        return
    with pytest.raises(SettingsError) as refused:
        read_connector(str(path))
    assert "hidden" not in str(refused.value)


def test_a_character_of_two_escapes_is_one(tmp_path: Path) -> None:
    path = tmp_path / "connector"
    path.write_bytes(rb"a=\ud83d\ude00")
    assert read_connector(str(path)) == {"a": "\U0001f600"}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"connector\.json cannot be read: No such file"):
        read_connector(str(tmp_path / "connector.json"))
