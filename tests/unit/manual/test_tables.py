"""The page about tables: its settings give the topics that it says."""

from __future__ import annotations

from pathlib import Path

from support.pages import blocks

from cdcd.config.loading import load
from cdcd.sink.topics import TopicNames


def test_the_settings_of_the_page_give_the_topics(tmp_path: Path) -> None:
    alone, shared = (names_of(block.text, tmp_path) for block in blocks("tables") if block.language == "toml")
    tables = [("tenant_7", "orders"), ("public", "orders"), ("public", "customers")]
    assert [alone.topic(*table) for table in tables] == [
        "shop.orders-of-tenant_7", "shop.orders", "shop.public.customers",
    ]  # fmt: skip
    assert [alone.partitions(*table, 4) for table in tables] == [12, 4, 4]
    assert shared.topic("tenant_1", "orders") == "shop.orders#tenant_1.orders"


def names_of(text: str, folder: Path) -> TopicNames:
    path = folder / "cdcd.toml"
    path.write_text(f'[source]\ndsn = ""\n[sink]\nbootstrap_servers = "b"\nprefix = "shop"\n{text}')
    return load(str(path)).settings.topic_names()
