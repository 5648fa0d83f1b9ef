"""The texts of the files that `cdcd init` writes. Pure.

Before: `first_settings` has the settings, `kafka` the missing ACLs. After: `files` writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cdcd.cli.setup.answers import SLOT, Login
from cdcd.config.settings import Settings
from cdcd.config.smallest_file import smallest_file
from cdcd.reading.slot_progress import sink_specs
from cdcd.sink.acls import acls_script, topics_script
from cdcd.sink.topics import TopicSpec
from cdcd.source.setup_sql import Step, script, selection, steps

_WITHOUT_SECRETS = """\
No password is in this file. PostgreSQL's: ~/.pgpass, the file that PGPASSFILE names, PGPASSWORD, or the whole dsn in a
file source__dsn of secrets_dir. Kafka's: a file sink__librdkafka__sasl.password of secrets_dir."""
_SHARD = """
Another daemon with this prefix needs tables, a slot, a publication and a port of its own (cdcd init --slot, --tables,
--port). One of them publishes the logical messages; all others have source.messages = false (--no-messages)."""


def sql_path(config: Path) -> Path:
    """The file for the DBA of PostgreSQL."""
    return config.with_suffix(".sql")


def acls_path(config: Path) -> Path:
    """The script for who runs Kafka."""
    return config.with_name(f"{config.stem}-acls.sh")


def topics_path(config: Path) -> Path:
    """The script that makes the topics."""
    return config.with_name(f"{config.stem}-topics.sh")


def setup_steps(settings: Settings, role: str, login: Login) -> list[Step]:
    """What the SQL makes."""
    source = settings.source
    return steps(role, source.publication, selection(source.tables, login.candidates))


def settings_text(settings: Settings) -> str:
    """The settings file."""
    is_one_of_many = settings.source.slot != SLOT and settings.source.messages
    return smallest_file(settings, _WITHOUT_SECRETS + (_SHARD if is_one_of_many else ""))


def sql_text(made: Sequence[Step], login: Login, path: Path) -> str:
    """The SQL for a DBA."""
    return script(made, login.server.database, path.name)


def acls_text(settings: Settings, principal: str) -> str:
    """The commands that make the ACLs."""
    sink = settings.sink
    return acls_script(sink.prefix, settings.source.slot, principal, sink.bootstrap_servers)


def topics_text(settings: Settings, tables: Sequence[tuple[str, str]]) -> str:
    """The commands that make the topics of these tables, and cdcd's own."""
    sink = settings.sink
    names = settings.topic_names()
    wanted = {names.on_broker(*table) for table in tables}
    specs = sink_specs(settings, tables)
    own = [spec for spec in specs if spec.name not in wanted]
    own += [TopicSpec(name, 1, sink.replication_factor) for name in names.tableless]
    return topics_script(sink.prefix, sink.bootstrap_servers, own, [spec for spec in specs if spec.name in wanted])
