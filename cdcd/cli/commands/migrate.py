"""`cdcd migrate debezium`: from a Debezium connector to cdcd in place, and back.

Before: `cli.main` has parsed the options. After: a person reads the notes, and runs the next command.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TextIO

from cdcd.cli.commands import Load
from cdcd.cli.setup.files import write
from cdcd.config.settings import Settings
from cdcd.config.smallest_file import smallest_file
from cdcd.daemon.clients import Clients
from cdcd.errors import RequestRejected, SettingsError
from cdcd.lsn import format_lsn
from cdcd.migration.captured_tables import CapturedTables
from cdcd.migration.connector_file import read_connector
from cdcd.migration.conversion import Converted, Note, convert
from cdcd.migration.handback import connector_offset
from cdcd.migration.handover import Handover

_HEAD: Final = "cdcd migrate debezium"
_COMMENTS: Final = (
    "No password is in this file. PostgreSQL's: ~/.pgpass, the file that PGPASSFILE names, PGPASSWORD, or the whole\n"
    "dsn in a file source__dsn of secrets_dir. Kafka's: a file sink__librdkafka__sasl.password of secrets_dir."
)
_OTHER_EVENTS: Final = (
    "transforms", "predicates", "converters", "post.processors", "message.key.columns", "topic.naming.strategy",
    "sourceinfo.struct.maker", "key.converter", "value.converter", "producer.override.partitioner.class",
    "producer.override.partitioner.ignore.keys",
)  # fmt: skip
"""Options that make other events, keys or topics, if they have no equal."""


def execute(args: Namespace, load: Load, out: TextIO) -> bool:
    """Convert, take over, or hand back."""
    options = read_connector(args.connector)
    if not (args.take_over or args.back):
        return _convert(args, options, out)
    settings = load().settings
    converted = convert(options, settings.sink.bootstrap_servers)
    _check_same(settings, converted.settings)
    if args.back:
        out.write(f"{json.dumps(connector_offset(settings, Clients(settings)))}\n")
        return True
    _check_events(converted)
    if settings.debezium.provide_transaction_metadata:
        raise RequestRejected(
            "debezium.provide_transaction_metadata is true, and the take-over does not know which transactions the "
            "connector has counted",
            "Set it to false for the take-over, and to true afterwards: what cdcd run publishes then has metadata",
            code="connector-differs",
        )
    if settings.debezium.truncates and settings.topic_names().has_shared_topics:
        raise RequestRejected(
            "tables share a topic, and debezium.truncates is true: the take-over does not know which table a truncate "
            "there is of",
            "Let the connector leave truncates out (skipped.operations = t, its default), and set it to false. It may "
            "be true again once cdcd runs",
            code="connector-differs",
        )
    captured, delimiter = CapturedTables(options), options.get("topic.delimiter", ".")
    done = Handover(settings, Clients(settings), delimiter, converted.routes).run(captured.has)
    out.write(
        f"The connector had confirmed {format_lsn(done.confirmed_lsn)}. Of what follows it had published "
        f"{done.left_out} events, which are left out; {done.published} events were published now\n"
    )
    out.write(
        f"The stream of {done.tables} tables goes on at {format_lsn(done.lsn)}. Next: cdcd run --config {args.config}\n"
    )
    return True


def _convert(args: Namespace, options: Mapping[str, str], out: TextIO) -> bool:
    """Write the file, and say what became of each option."""
    converted = convert(options, args.brokers)
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


def _check_same(settings: Settings, wanted: Settings) -> None:
    """Raise SettingsError if the settings are not for the connector's slot, publication and topics."""
    for name, found, theirs in (
        ("source.slot", settings.source.slot, wanted.source.slot),
        ("source.publication", settings.source.publication, wanted.source.publication),
        ("sink.prefix", settings.sink.prefix, wanted.sink.prefix),
        ("sink.format", settings.sink.format, wanted.sink.format),
        ("debezium.key_field_name", settings.debezium.key_field_name, wanted.debezium.key_field_name),
    ):
        if found != theirs:
            raise SettingsError(
                f'{name} is "{found}", and the connector\'s is "{theirs}"',
                "Name the file that was made of this connector's configuration with --config",
                code="setting-invalid",
            )
    if settings.sink.delivery != "exactly_once":
        raise SettingsError(
            "a connector is taken over in one Kafka transaction, and sink.delivery is not exactly_once",
            "Set it to exactly_once",
            code="setting-invalid",
        )


def _check_events(converted: Converted) -> None:
    """Raise RequestRejected if the connector makes other events than cdcd would, or such without a position."""
    has_transforms = any(note.option == "transforms" and note.kind == "converted" for note in converted.notes)
    if has_transforms and (converted.settings.sink.format == "row" or converted.settings.outbox.is_on):
        raise RequestRejected(
            "the connector has transforms, and their records do not say of which change they are",
            "Start cdcd beside it, on new topics: another sink.prefix, another source.slot, and a snapshot",
            code="connector-differs",
        )
    found = [
        note
        for note in converted.notes
        if note.kind == "no equal" and (note.option in _OTHER_EVENTS or note.option.startswith("transforms."))
    ]
    if found:
        raise RequestRejected(
            f"the connector has {found[0].option}, which has no equal: {found[0].text}",
            "Consumers would notice. If they can do without it, take it out of the connector's file, and try again",
            code="connector-differs",
        )
