"""Makes the format of a stream's events, as the settings say.

Before: `wiring` knows the session, the settings and what Kafka has.
After: the format's encoders write events.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cdcd.avro.avro_format import AvroFormat
from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.schema_store import SchemaStores
from cdcd.clock import wall_ns
from cdcd.config.format_choice import debezium_modes
from cdcd.config.settings import Settings
from cdcd.debezium.debezium_format import DebeziumFormat
from cdcd.json_events.json_format import JsonFormat
from cdcd.outbox.avro_payloads import AvroPayloads
from cdcd.outbox.outbox_format import OutboxFormat
from cdcd.progress.records import SlotRecord
from cdcd.source.session import Session
from cdcd.transaction.event_format import EventFormat
from cdcd.transaction.headed_events import HeadedFormat
from cdcd.transaction.record_headers import HeaderChoice

_DATABASE = "SELECT pg_catalog.current_database()"


def make_format(
    settings: Settings,
    session: Session,
    last: SlotRecord | None,
    to_text: Callable[[bytes], str] | None,
    own: Callable[[Callable[[bytes], str] | None], AvroFormat],
    stores: SchemaStores,
) -> EventFormat:
    """The format of the events. `last`: the slot record to go on from. `to_text`: that of TypeOptions.

    `own` makes cdcd's own format in Avro, from `to_text`. `stores`: those of Avro schemas.
    """
    if settings.sink.format == "cdcd":
        avro = own(to_text)
        encoding = settings.sink.encoding
        return avro if encoding == "avro" else JsonFormat(avro, with_schemas=encoding == "json-schema")
    [(database,)] = session.rows(_DATABASE)
    names = settings.sink.prefix, str(database)
    last_commit = 0 if last is None else last.lsn
    return DebeziumFormat(
        debezium_modes(settings),
        names,
        session.encoding,
        wall_ns,
        last_commit,
        to_text,
        stores if settings.sink.encoding == "avro" else None,
        stores.parked,
    )


def surround(
    events: EventFormat,
    settings: Settings,
    encoding: str,
    to_text: Callable[[bytes], str] | None,
    payloads: AvroPayloads | None = None,
) -> EventFormat:
    """Put the outbox and the headers that the settings ask for around a format.

    `encoding`: the database's, by PostgreSQL's name. `to_text`: that of TypeOptions. `payloads`: as OutboxConsumer.
    """
    sink = settings.sink
    if settings.outbox.is_on:
        options = TypeOptions.of_database("string", encoding, to_text=to_text)
        events = OutboxFormat(events, settings.outbox.rules, options, payloads)
    if sink.headers:
        content_type = "application/avro" if sink.encoding == "avro" else "application/json"
        if settings.outbox.is_on:
            content_type = ""  # a payload may be anything
        events = HeadedFormat(events, HeaderChoice(sink.headers, sink.prefix, settings.source.slot, content_type))
    return events


def shown_format(settings: Settings, session: Session) -> EventFormat:
    """The format of events that are only shown: no schema goes to a registry."""
    own = partial(AvroFormat, settings.avro.numeric, session.encoding, None, None, frozenset())
    events = make_format(settings, session, None, None, own, SchemaStores())
    return surround(events, settings, session.encoding, None)
