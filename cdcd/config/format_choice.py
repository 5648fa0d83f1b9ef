"""What goes with each format and encoding of events. Pure.

Before: `loading` has read the settings.
After: `daemon.wiring` makes the format; the commands that read topics ask `refuse_unread`.
"""

from __future__ import annotations

from typing import Final

from cdcd.config.settings import Settings
from cdcd.debezium.added_fields import names_of
from cdcd.debezium.modes import Modes, RowModes
from cdcd.errors import SettingsError


def check_format(settings: Settings) -> None:
    """Raise SettingsError if the settings ask for events that cdcd cannot write."""
    sink = settings.sink
    is_by_topic = settings.avro.registry_url is not None and settings.avro.subject_strategy == "topic"
    if not sink.event_format and is_by_topic and settings.topic_names().has_shared_topics:
        raise SettingsError(
            '[[table]] sends several tables to one topic, which avro.subject_strategy = "topic" would give one subject',
            'Set avro.subject_strategy to "record" or "topic-record"',
            code="format-unsupported",
        )
    if not sink.event_format:
        return
    if sink.encoding == "avro" and settings.avro.registry_url is None:
        raise SettingsError(
            f'sink.format = "{sink.format}" with sink.encoding = "avro" needs a schema registry: consumers look there '
            "for the schemas",
            'Set avro.registry_url, or sink.encoding to "json" or "json-schema"',
            code="format-unsupported",
        )
    if sink.encoding != "avro" and settings.avro.registry_url is not None:
        raise SettingsError(
            f'avro.registry_url is set, but sink.encoding = "{sink.encoding}" has no schema registry',
            "Remove avro.registry_url",
            code="format-unsupported",
        )
    if sink.format == "row" and settings.debezium.truncates:
        raise SettingsError(
            'debezium.truncates is true, but no row of sink.format = "row" can say that a table was truncated',
            "Remove debezium.truncates",
            code="format-unsupported",
        )
    if sink.format == "row" and settings.debezium.provide_transaction_metadata:
        raise SettingsError(
            'debezium.provide_transaction_metadata is true, but no row of sink.format = "row" has the numbers',
            "Remove debezium.provide_transaction_metadata",
            code="format-unsupported",
        )
    if settings.source.on_slot_lost == "repair" and sink.format != "cdcd":
        raise SettingsError(
            'source.on_slot_lost = "repair" has to read the topics, and cdcd does not compare events of sink.format = '
            f'"{sink.format}" with tables yet',
            'Set source.on_slot_lost to "stop" or "resnapshot"',
            code="format-unsupported",
        )


_READ_ELSEWHERE: Final = "cdcd tail shows them. Read these topics with a consumer of your own, or a sink connector"


def refuse_unread(settings: Settings, what: str, *, instead: str = _READ_ELSEWHERE) -> None:
    """Raise SettingsError if `what` (a command) would have to read events that cdcd only writes.

    `instead`: what a person can do.
    """
    if settings.sink.format != "cdcd":
        raise SettingsError(
            f'{what} does not read events of sink.format = "{settings.sink.format}" yet',
            instead,
            code="format-unsupported",
        )


def refuse_without_avro(settings: Settings, what: str) -> None:
    """Raise SettingsError if there are no Avro schemas of the events, which `what` (a command) shows."""
    if settings.sink.format != "cdcd" and settings.sink.encoding != "avro":
        raise SettingsError(
            f'{what} shows Avro schemas, and events have none with sink.encoding = "{settings.sink.encoding}"',
            'Look at an event: "json-schema" puts the schema into each',
            code="format-unsupported",
        )


def debezium_modes(settings: Settings) -> Modes:
    """Return the modes that the sections `debezium` and `row` set."""
    chosen, rows = settings.debezium, settings.row
    fields = tuple(names_of(rows.add_fields, rows.add_fields_prefix))
    return Modes(
        rows=RowModes(fields, rows.delete_tombstone_handling_mode) if settings.sink.format == "row" else None,
        decimal=chosen.decimal_handling_mode,
        time=chosen.time_precision_mode,
        interval=chosen.interval_handling_mode,
        binary=chosen.binary_handling_mode,
        hstore=chosen.hstore_handling_mode,
        placeholder=chosen.unavailable_value_placeholder,
        unknown_types=chosen.include_unknown_datatypes,
        schema_names=chosen.schema_name_adjustment_mode,
        field_names=chosen.field_name_adjustment_mode,
        table_in_key=chosen.key_field_name if chosen.key_enforce_uniqueness else "",
        truncates=chosen.truncates,
        null_as_default=chosen.replace_null_with_default,
        transactions=chosen.provide_transaction_metadata,
        keeps_lost=chosen.unrepresentable_in_header,
        with_schemas=settings.sink.encoding == "json-schema",
    )
