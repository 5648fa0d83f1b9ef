"""[[table]]: from a file, the environment and a secrets file; every mistake is named, and the secret is never shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdcd.config.layers import Loaded
from cdcd.config.loading import load
from cdcd.config.reference import effective
from cdcd.config.settings import Settings
from cdcd.daemon.settings_watch import changed_settings
from cdcd.errors import SettingsError
from cdcd.transaction.column_masks import CONSTANT, HASH, LAST, NOTHING

SECRET = "0123456789abcdef"
REST = '[source]\ndsn = ""\n[sink]\nbootstrap_servers = "b"\n'
ENTRY = '[[table]]\nmatch = "public.t"\n'
OF = "[[table]] with match = 'public.t'"


def loaded(tmp_path: Path, text: str, *, secret: str | None = SECRET) -> Loaded[Settings]:
    path = tmp_path / "cdcd.toml"
    path.write_text(REST + (f'[tables]\nhash_secret = "{secret}"\n' if secret else "") + text)
    return load(str(path))


def test_an_entry_of_the_file_becomes_a_rule(tmp_path: Path) -> None:
    masks = 'mask = { a = "hash", b = { last = 4 }, c = "null", d = { constant = "x" } }'
    [rule] = loaded(tmp_path, f'{ENTRY}exclude = ["n"]\n{masks}\n').settings.column_rules().rules
    assert (rule.pattern.text, rule.include, rule.exclude) == ("public.t", frozenset(), frozenset({"n"}))
    assert {name: (mask.kind, mask.kept, mask.constant) for name, mask in rule.masks.items()} == {
        "a": (HASH, 0, b""), "b": (LAST, 4, b""), "c": (NOTHING, 0, b""), "d": (CONSTANT, 0, b"x"),
    }  # fmt: skip


def test_the_environment_replaces_the_entries_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDCD_TABLE", json.dumps([{"match": "public.u", "include": ["id"]}]))
    found = loaded(tmp_path, f'{ENTRY}exclude = ["n"]\n')
    assert [each.match for each in found.settings.table] == ["public.u"]
    assert found.origins["table"] == "environment CDCD_TABLE"
    monkeypatch.setenv("CDCD_TABLE", "[")
    with pytest.raises(SettingsError, match="table is not JSON") as caught:
        loaded(tmp_path, "")
    assert '[{"match": ' in caught.value.hint


def test_the_secret_lies_in_a_secrets_file_and_is_shown_nowhere(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "tables__hash_secret").write_text(f"{SECRET}\n")
    path = tmp_path / "cdcd.toml"
    path.write_text(f'secrets_dir = "{secrets}"\n{REST}{ENTRY}mask = {{ a = "hash" }}\n')
    found = load(str(path))
    assert found.settings.tables.hash_secret == SECRET
    shown = [
        repr(found.settings),
        str(found.settings.tables),
        repr(effective(found)),
        repr(found.settings.column_rules()),
    ]
    assert [text for text in shown if SECRET in text] == []
    rows = {key: value for key, value, _ in effective(found)}
    assert rows["tables.hash_secret"] == "********"
    assert rows["table"] == [{"match": "public.t", "mask": {"a": "hash"}}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[table]\nmatch = 'a.b'\n", "table must be written as [[table]], once for each entry"),
        ("[[table]]\nexclude = ['a']\n", "match in [[table]] number 1 is not set"),
        (f"{ENTRY}exlude = ['a']\n", f"exlude in {OF} is no setting; did you mean exclude?"),
        (f"{ENTRY}topics = 'a'\n", f"topics in {OF} is no setting; did you mean topic?"),
        ("[[table]]\nmatch = 'customers'\nexclude = ['a']\n", "must have a match that is written as schema.table"),
        (f"{ENTRY}", f"{OF} says nothing but match"),
        (f"{ENTRY}key = ['a', 'b', 'a']\n", f"{OF} has a key that names a column twice"),
        (f"{ENTRY}exclude = ['a']\ninclude = ['b']\n", "which exclude each other"),
        (f"{ENTRY}hours = '22-6'\n", f'hours in {OF} must be written as "22:00-06:00"'),
        (f"{ENTRY}time_zone = 'Berlin'\n", f"time_zone in {OF} must be a time zone that Python knows"),
        (f"{ENTRY}rows_per_second = -1\n", f"rows_per_second in {OF} must be 0 or more"),
        (f"{ENTRY}partitions = 5\n[[table]]\nmatch = 5\n", "match in [[table]] number 2 must be a text in quotes"),
        (f"{ENTRY}mask = {{ a = {{ last = 0 }} }}\n", 'a mask of a that is none of "hash", "null"'),
        (f"{ENTRY}mask = {{ a = {{ last = true }} }}\n", f"mask in {OF} must be"),
        (f"{ENTRY}mask = {{ a = {{ constant = 5 }} }}\n", "a mask of a that is none of"),
        (f"{ENTRY}mask = {{ a = {{ last = 4, constant = 'x' }} }}\n", "a mask of a that is none of"),
        (f"{ENTRY}mask = {{ a = {{}} }}\n", "a mask of a that is none of"),
        (f"{ENTRY}mask = {{ a = 'sha256' }}\n", f"mask in {OF} must be"),
        (f"{ENTRY}mask = 'hash'\n", f"mask in {OF} must be a table"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, text)
    assert said in caught.value.message
    assert caught.value.code == "setting-invalid"
    assert "default" not in caught.value.message


def test_what_an_entry_says_of_topics_is_checked_and_taken(tmp_path: Path) -> None:
    names = loaded(tmp_path, f'{ENTRY}topic = "{{prefix}}.x"\npartitions = 7\n').settings.topic_names()
    assert (names.topic("public", "t"), names.partitions("public", "t", 4)) == ("cdcd.x", 7)
    with pytest.raises(SettingsError, match=r"lacks \{prefix\}"):
        loaded(tmp_path, f'{ENTRY}topic = "x"\n')


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        (None, "tables.hash_secret is not set, and a mask of [[table]] is a hash"),
        ("shortsecretvalu", "tables.hash_secret must have 16 to 64 bytes"),
        ("longsecretvalue" * 5, "tables.hash_secret must have 16 to 64 bytes"),
    ],
)
def test_a_hash_needs_a_secret_of_some_length(tmp_path: Path, secret: str | None, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, f'{ENTRY}mask = {{ a = "hash" }}\n', secret=secret)
    assert caught.value.message == said
    assert secret is None or secret not in str(caught.value)
    loaded(tmp_path, f'{ENTRY}mask = {{ a = "null" }}\n', secret=secret)


def test_a_change_is_noticed_while_the_daemon_runs(tmp_path: Path) -> None:
    before = loaded(tmp_path, f'{ENTRY}mask = {{ a = "hash" }}\n').settings
    after = loaded(tmp_path, f'{ENTRY}mask = {{ a = "null" }}\n', secret="fedcba9876543210").settings
    assert changed_settings(before, after) == ["tables.hash_secret", "table"]
