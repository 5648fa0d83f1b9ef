"""Judges what a new slot would lack where there is none: Kafka may hold changes of an earlier one of that name.

Before: `cdcd slot status` or `cdcd slot create` has found no slot.
After: the command shows the error, or makes the slot. The rules are those of a start: `progress.continuity`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cdcd.config.settings import Settings
from cdcd.errors import GapError, KafkaUnavailable, RequestRejected
from cdcd.preflight.postgres_facts import identified
from cdcd.progress.continuity import Remains, check_first_start, check_lost_slot, check_server, gap_remedy
from cdcd.progress.records import SlotRecord
from cdcd.reading.slot_progress import open_progress
from cdcd.source.publication import Publication
from cdcd.source.replication_stream import ReplicationStream
from cdcd.source.session import Session
from cdcd.source.slot import Slot


@dataclass(frozen=True)
class MissingSlot:
    """What Kafka holds of a slot that does not exist."""

    last: SlotRecord | None
    loss: GapError | None
    """Why a new slot would not go on where Kafka ends; None: nothing is lost."""
    remedy: str
    """What `cdcd run` does about it, by `source.on_slot_lost`; empty: it refuses to start."""


def judge(settings: Settings, session: Session, stream: ReplicationStream) -> MissingSlot:
    """Read the progress in Kafka, and compare it with the server.

    Raises GapError if the server cannot be the one that Kafka holds changes of, and RequestRejected if Kafka does not
    say what it holds.
    """
    source = settings.source
    server = replace(identified(stream), database_oid=Slot(session, source.slot).database_oid())
    last, remains, progress = _held(settings, Publication(session, source.publication).tables())
    check_server(last, server)
    try:
        check_lost_slot(last, source.slot, server)
        if last is None:
            check_first_start(source.slot, remains, progress)
    except GapError as loss:
        if not source.accepts_gap:
            return MissingSlot(last, loss, "")
        remedy = gap_remedy("" if last is None else source.on_slot_lost)
        hint = f"cdcd run makes it again, and {remedy}, by source.on_slot_lost"
        return MissingSlot(last, GapError(loss.message, hint, code=loss.code), remedy)
    return MissingSlot(last, None, "")


def _held(settings: Settings, tables: list[tuple[str, str]]) -> tuple[SlotRecord | None, Remains, str]:
    """The last slot record, the other traces of the slot, and the name of the progress topic."""
    names = settings.topic_names()
    try:
        with open_progress(settings) as progress:
            remains = progress.remains(progress.snapshots_topic(), [names.topic(*table) for table in tables])
            return progress.last_record(), remains, names.progress  # after what is committed together with it
    except (KafkaUnavailable, RequestRejected) as error:
        raise RequestRejected(
            f"there is no slot {settings.source.slot}, and Kafka does not say whether changes of it are lost: "
            f"{error.message}",
            error.hint,
            code=error.code,
        ) from error
