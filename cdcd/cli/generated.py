"""The files of a checkout that are made from the code: what each holds, and a command that writes them.

Before: the settings, the parser, and the generators of SQL and of Kafka's commands. After: `python -m
cdcd.cli.generated` in a checkout writes the files; a test holds each equal.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cdcd.cli import commands_page
from cdcd.cli.parser import build_parser
from cdcd.config import reference, settings_page
from cdcd.config.settings import SinkSettings, SourceSettings
from cdcd.sink.acls import acls_script, topics_script
from cdcd.sink.topics import TopicNames, TopicSpec, own_specs, parked_spec
from cdcd.source.setup_sql import script, selection, steps

_ROLE = "cdcd"
_BROKER = "localhost:9092"
_REPLICAS = 3


def files() -> dict[str, str]:
    """Each file's text, by its path in the checkout."""
    slot, publication, patterns = (
        SourceSettings.model_fields[name].default for name in ("slot", "publication", "tables")
    )
    prefix = SinkSettings.model_fields["prefix"].default
    return {
        "cdcd/manual/commands.md": commands_page.page(build_parser()),
        "cdcd/manual/settings.md": settings_page.page(),
        "config/cdcd.toml": reference.reference(),
        "deploy/kafka/acls.sh": acls_script(prefix, slot, f"User:{_ROLE}", _BROKER),
        "deploy/kafka/topics.sh": topics_script(prefix, _BROKER, _own_topics(prefix), ()),
        "deploy/postgres/setup.sql": script(
            steps(_ROLE, publication, selection(patterns, ())), database="shop", file="setup.sql"
        ),
    }


def _own_topics(prefix: str) -> list[TopicSpec]:
    names = TopicNames(prefix)
    own = own_specs(names, _REPLICAS, {})
    return [*own, parked_spec(names, _REPLICAS, {}), TopicSpec(names.messages, 1, _REPLICAS)]


def main() -> None:
    """Write the files into the checkout that this module belongs to."""
    root = Path(__file__).parents[2]
    for path, text in files().items():
        (root / path).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
