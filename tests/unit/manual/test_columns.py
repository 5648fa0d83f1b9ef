"""The page about columns: its settings load, and its program makes the hash that a mask makes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdcd import manual
from cdcd.config.loading import load
from cdcd.pgoutput.messages import Column, Relation

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REST = '[source]\ndsn = ""\n[sink]\nbootstrap_servers = "b"\n[tables]\nhash_secret = "sixteen bytes .."\n'


def block(language: str, number: int = 0) -> str:
    texts = [text for found, text in BLOCK.findall(manual.page("columns")) if found == language]
    return str(texts[number])


def relation(schema: str, name: str, *columns: str) -> Relation:
    return Relation(0, 7, schema, name, "d", tuple(Column(each == "id", each, 25, -1) for each in columns))


def test_the_settings_of_the_page_give_its_masks(tmp_path: Path) -> None:
    path = tmp_path / "cdcd.toml"
    path.write_text(REST + block("toml"))
    rules = load(str(path)).settings.column_rules()
    masking = rules.masking(relation("public", "customers", "id", "email", "phone", "name", "city", "notes"))
    assert masking is not None
    assert [masking.text(name, b"0151-2345678") for name in ("phone", "name", "city")] == [
        b"****5678", None, b"x",
    ]  # fmt: skip
    assert masking.leaves_out
    masking = rules.masking(relation("sales", "orders", "id", "customer", "total"))
    assert masking is not None
    kept = masking.relation(relation("sales", "orders", "id", "customer", "total"))
    assert [column.name for column in kept.columns] == ["id", "total"]


def test_the_settings_of_the_page_give_its_key(tmp_path: Path) -> None:
    path = tmp_path / "cdcd.toml"
    path.write_text(REST + block("toml", 1))
    rules = load(str(path)).settings.column_rules()
    keys = [rules.keying(*table) for table in (("tenant_7", "orders"), ("tenant_7", "others"))]
    assert [None if rule is None else rule.key for rule in keys] == [("tenant", "id"), None]


def test_the_settings_of_the_page_give_its_partitions(tmp_path: Path) -> None:
    path = tmp_path / "cdcd.toml"
    path.write_text(REST + block("toml", 2))
    rule = load(str(path)).settings.column_rules().partitioning("tenant_7", "orders")
    assert rule is not None
    assert (rule.key, rule.partition_by and rule.partition_by.column) == (("tenant", "id"), "tenant")


def test_the_program_of_the_page_makes_the_hash_of_a_mask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(block("python"), {})
    path = tmp_path / "cdcd.toml"
    path.write_text(REST + block("toml"))
    masking = load(str(path)).settings.column_rules().masking(relation("public", "customers", "id", "email"))
    assert masking is not None
    assert masking.text("email", b"ada@example.org") == capsys.readouterr().out.strip().encode()
