"""The page about tables: its settings give the topics that it says."""

from __future__ import annotations

from pathlib import Path

from support.pages import blocks

from cdcd.config.loading import load


def test_the_settings_of_the_page_give_the_topics(tmp_path: Path) -> None:
    [text] = [block.text for block in blocks("tables") if block.language == "toml"]
    path = tmp_path / "cdcd.toml"
    path.write_text(f'[source]\ndsn = ""\n[sink]\nbootstrap_servers = "b"\nprefix = "shop"\n{text}')
    names = load(str(path)).settings.topic_names()
    tables = [("tenant_7", "orders"), ("public", "orders"), ("public", "customers")]
    assert [names.topic(*table) for table in tables] == [
        "shop.orders-of-tenant_7", "shop.orders", "shop.public.customers",
    ]  # fmt: skip
    assert [names.partitions(*table, 4) for table in tables] == [12, 4, 4]
