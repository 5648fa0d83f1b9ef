"""`cdcd peek`: prints the next changes in the slot as text, or as one JSON object a line. It consumes nothing.

Before: `cli.main` has parsed the options. After: a person reads the lines, or a script the JSON.
Source: PostgreSQL, "Replication Management Functions", `pg_logical_slot_peek_binary_changes`.

PostgreSQL decodes a number of changes from the slot's confirmed position, and does not move the slot. Kafka may already
have some of them, because the daemon publishes a change before it confirms it. A number of changes is not a number of
events: PostgreSQL counts empty transactions, too. So peek asks for more and more changes until it has enough events, or
until there are no more changes.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Final, TextIO

from cdcd.avro.codecs.lookup import has_known_binary
from cdcd.cli.commands import Load
from cdcd.cli.commands.peeked_events import PeekedEvent, peeked_events
from cdcd.config.settings import Settings
from cdcd.daemon.events import shown_format
from cdcd.errors import BinaryFormatUnsupported, GapError, RequestRejected
from cdcd.lsn import parse_lsn
from cdcd.source.catalog import Catalog
from cdcd.source.server_errors import UNCONVERTIBLE, SlotActive, start_refused
from cdcd.source.session import Session, StatementRejected
from cdcd.source.slot import Slot
from cdcd.source.start_options import ORIGIN_SINCE, start_options
from cdcd.transaction.relations import Relations

CHANGES_PER_EVENT: Final = 4
"""For the first query: an event may need four messages (Begin, Relation, the change, Commit)."""

GROWTH: Final = 8
"""Each further query asks for this many times more changes."""

_PEEK: Final = """
    SELECT lsn::text, data
    FROM pg_catalog.pg_logical_slot_peek_binary_changes(%s::name, NULL, %s, VARIADIC %s::text[])
    LIMIT %s
"""


def execute(args: Namespace, load: Load, out: TextIO) -> bool:
    """Print the next events, at most as many as the options say."""
    settings = load().settings
    peek(settings, args.limit, as_json=args.json, out=out)
    return True


def peek(settings: Settings, limit: int, *, as_json: bool, out: TextIO) -> None:
    """Write the next events in the slot, `limit` at most, to `out`.

    Raises SlotActive while a daemon streams, GapError if the slot does not exist, RequestRejected if PostgreSQL refuses
    to read it.
    """
    source, names = settings.source, settings.topic_names()
    with Session(source.login, source.application_name) as session:
        _check(session, source.slot)
        catalog = Catalog(session, source.publication)
        binary = source.binary
        if binary == "auto":
            types = catalog.published_types(source.publication)
            binary = all(has_known_binary(each, session.encoding) for each in types)
        try:
            events = _events(session, catalog, settings, limit, binary=binary)
        except BinaryFormatUnsupported:
            if source.binary is True:
                raise
            events = _events(session, catalog, settings, limit, binary=False)
    for event in events:
        topic = names.on_broker(event.schema, event.table)
        out.write(f"{event.as_json(topic) if as_json else event.as_text(topic)}\n")


def _check(session: Session, name: str) -> None:
    state = Slot(session, name).fitting_state()
    if state is None:
        raise GapError(
            f'the slot "{name}" does not exist',
            "Run cdcd slot status: it says whether cdcd run makes it, or changes are lost; or correct source.slot",
            code="slot-missing",
        )
    if state.active:
        raise SlotActive(name, state.active_pid, state.used_by)
    if state.lost:
        raise GapError(
            f'the slot "{name}" has lost WAL that it still needed',
            "Run cdcd check: it says what to do",
            code="slot-lost",
        )


def _events(session: Session, catalog: Catalog, settings: Settings, limit: int, *, binary: bool) -> list[PeekedEvent]:
    options = _options(settings, session.server_version, binary=binary)
    wanted = CHANGES_PER_EVENT * limit
    while True:
        messages = _messages(session, settings.source.slot, wanted, options)
        relations = Relations(catalog, rules=settings.column_rules())
        events = peeked_events(
            messages,
            relations,
            shown_format(settings, session),
            is_flat=settings.sink.format == "row",
            in_connect=settings.sink.encoding == "json-schema",
        )
        if len(events) >= limit or len(messages) < wanted:
            return events[:limit]
        wanted *= GROWTH


def _options(settings: Settings, server_version: int, *, binary: bool) -> dict[str, str]:
    """The options that the daemon gives to pgoutput, but for whole transactions only."""
    source = settings.source
    return start_options(
        source.publication,
        server_version,
        binary=binary,
        messages=source.messages,
        origin=source.origin if server_version >= ORIGIN_SINCE else "any",
    )


def _messages(session: Session, slot: str, wanted: int, options: Mapping[str, str]) -> list[tuple[int, bytes]]:
    """The next pgoutput messages: LSN and bytes of each."""
    words = [word for option in options.items() for word in option]
    try:
        return [(parse_lsn(lsn), bytes(data)) for lsn, data in session.rows(_PEEK, [slot, wanted, words, wanted])]
    except StatementRejected as error:
        if error.sqlstate in UNCONVERTIBLE:
            raise RequestRejected(
                f"the next changes cannot be shown: {error.message}",
                "cdcd run publishes a value without an equivalent in UTF-8 as unrepresentable",
                code="text-unconvertible",
            ) from error
        raise start_refused(error.sqlstate, error.message, slot, None) from error
