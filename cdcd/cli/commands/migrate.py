"""`cdcd migrate debezium`: writes the settings that a Debezium connector's configuration comes to.

Before: `cli.main` has parsed the options. After: a person reads the notes, and runs `cdcd check`.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Final, TextIO

from cdcd.cli.commands import Load
from cdcd.cli.setup.files import write
from cdcd.config.smallest_file import smallest_file
from cdcd.migration.connector_file import read_connector
from cdcd.migration.conversion import Converted, Note, convert

_HEAD: Final = "cdcd migrate debezium"
_COMMENTS: Final = (
    "No password is in this file. PostgreSQL's: ~/.pgpass, the file that PGPASSFILE names, PGPASSWORD, or the whole\n"
    "dsn in a file source__dsn of secrets_dir. Kafka's: a file sink__librdkafka__sasl.password of secrets_dir."
)


def execute(args: Namespace, load: Load, out: TextIO) -> bool:  # noqa: ARG001  # it makes the settings
    """Convert, write the file, and say what became of each option."""
    converted = convert(read_connector(args.connector), args.brokers)
    path = Path(args.config)
    write({path: smallest_file(converted.settings, _COMMENTS, by=_HEAD)}, force=args.force)
    out.writelines(f"{line}\n" for line in lines(converted))
    out.write(f"Wrote {path}. Next: cdcd check --config {path}\n")
    return True


def lines(converted: Converted) -> list[str]:
    """A line for each option, those first that need a person."""
    order = ("secret", "no equal", "needless", "converted")
    notes = sorted(converted.notes, key=lambda note: (order.index(note.kind), note.option))
    return [_line(note) for note in notes]


def _line(note: Note) -> str:
    default = "" if note.is_given else " (by default)"
    arrow = " ->" if note.kind == "converted" else ":"
    return f"{note.kind:9} {note.option}{default}{arrow} {note.text}"
