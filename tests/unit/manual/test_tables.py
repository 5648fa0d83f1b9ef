"""The page about tables: its settings give the topics and the hours that it says."""

from __future__ import annotations

from pathlib import Path

from support.pages import blocks

from cdcd.config.loading import load
from cdcd.config.settings import Settings
from cdcd.snapshot.copy_hours import CopyHours


def test_the_settings_of_the_page_give_the_topics(tmp_path: Path) -> None:
    texts = [block.text for block in blocks("tables") if block.language == "toml"]
    alone, shared = (settings_of(text, tmp_path).topic_names() for text in texts if "topic = " in text)
    tables = [("tenant_7", "orders"), ("public", "orders"), ("public", "customers")]
    assert [alone.topic(*table) for table in tables] == [
        "shop.orders-of-tenant_7", "shop.orders", "shop.public.customers",
    ]  # fmt: skip
    assert [alone.partitions(*table, 4) for table in tables] == [12, 4, 4]
    assert shared.topic("tenant_1", "orders") == "shop.orders#tenant_1.orders"


def test_the_settings_of_the_page_give_a_table_hours_and_limits_of_its_own(tmp_path: Path) -> None:
    [text] = [block.text for block in blocks("tables") if "hours = " in block.text and block.language == "toml"]
    rules = settings_of(text, tmp_path).snapshot_rules()
    assert [rules.hours("public", table) for table in ("huge", "orders")] == [
        CopyHours("22:00-06:00", "Europe/Berlin"), CopyHours(),
    ]  # fmt: skip
    assert [rules.rate("public", table) for table in ("huge", "orders")] == [(5000, 10_000_000), (0, 0)]


def settings_of(text: str, folder: Path) -> Settings:
    path = folder / "cdcd.toml"
    path.write_text(f'[source]\ndsn = ""\n[sink]\nbootstrap_servers = "b"\nprefix = "shop"\n{text}')
    return load(str(path)).settings
