"""The manual: one Markdown page a topic, in this package, so that each installation has the pages of its version.

Before: people write the pages. After: `cdcd help TOPIC` shows them, and the README links to them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

GROUPS: Final = {
    "Begin": ("tutorial", "install", "guarantees", "faq", "debezium"),
    "Do": (
        "consumers",
        "spark",
        "registry",
        "privileges",
        "deployment",
        "login",
        "kubernetes",
        "monitoring",
        "tables",
        "columns",
        "outbox",
        "servers",
        "upgrade",
    ),
    "When something is wrong": ("troubleshooting", "errors"),
    "Look up": ("settings", "commands", "events", "types", "metrics", "memory", "sizing"),
    "Understand": ("exactly-once",),
    "Platforms": ("platforms",),
}
"""What a reader wants, and the pages for it, in the order in which a newcomer reads them."""

TOPICS: Final = tuple(topic for topics in GROUPS.values() for topic in topics)


def page(topic: str) -> str:
    """The page of one of the topics, in Markdown."""
    return Path(__file__).with_name(f"{topic}.md").read_text(encoding="utf-8")


def title(topic: str) -> str:
    """What a page says, in one line."""
    return page(topic).partition("\n")[0].removeprefix("# ")
