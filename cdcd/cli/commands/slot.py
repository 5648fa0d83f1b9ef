"""`cdcd slot`: creates, shows and drops the slot. It refuses to lose changes.

Before: `cli.main` has parsed the options. After: a person reads the lines, or a script the JSON.
Source: PostgreSQL, "Replication Slots"; `pg_replication_slots`.

A slot and the progress in Kafka belong together. If the slot is dropped, PostgreSQL's unpublished changes are lost. A
new slot of the same name starts after the end of the progress. So a slot is dropped only with --force, and made again
only if `source.on_slot_lost` says what `cdcd run` does about the loss.
"""

from __future__ import annotations

import json
import logging
from argparse import Namespace
from typing import TextIO

from cdcd.cli.commands import Load
from cdcd.config.settings import Settings
from cdcd.errors import CdcdError, GapError, RequestRejected
from cdcd.lsn import format_lsn
from cdcd.preflight import missing_slot
from cdcd.progress.records import SlotRecord
from cdcd.reading.slot_progress import last_record
from cdcd.source.publication import Publication
from cdcd.source.replication_stream import ReplicationStream
from cdcd.source.server_errors import LOST_CHANGES_HINT, SlotActive, lost_slot
from cdcd.source.session import Session
from cdcd.source.slot import Slot, SlotState
from cdcd.source.slot_wait import SlotWait
from cdcd.terminal.text_format import size

log = logging.getLogger(__name__)


def execute(args: Namespace, load: Load, out: TextIO) -> bool:
    """Create, drop or show the slot, as the options say."""
    settings = load().settings
    if args.action == "create":
        create(settings, two_phase=args.two_phase, failover=args.failover, as_json=args.json, out=out)
    elif args.action == "drop":
        drop(settings, force=args.force, as_json=args.json, out=out)
    else:
        status(settings, as_json=args.json, out=out)
    return True


def create(settings: Settings, *, two_phase: bool, failover: bool, as_json: bool, out: TextIO) -> None:
    """Create the slot, with the properties that the options or the settings ask for.

    Raises GapError if changes would be missing, unless the settings accept that: then it says what is lost. Raises
    RequestRejected without a publication, and as `missing_slot.judge` and `ReplicationStream.create_slot` do.
    """
    source = settings.source
    with (
        Session(source.login, source.application_name) as session,
        ReplicationStream(source.login, source.application_name) as walsender,
    ):
        slot = Slot(session, source.slot)
        missing = missing_slot.judge(settings, session, walsender) if slot.state() is None else None
        if missing is not None and missing.loss is not None and not missing.remedy:
            raise missing.loss
        if not Publication(session, source.publication).exists():
            raise RequestRejected(
                f"there is no publication {source.publication}, and PostgreSQL ends the stream of a slot at the first "
                "change that is older than the publication",
                "Make the publication first (cdcd check has the statement), or run cdcd run, which makes both",
                code="publication-missing",
            )
        with SlotWait(
            session,
            source.primary_login,
            is_standby=walsender.standby,
            application_name=source.application_name,
        ) as wait:
            walsender.create_slot(
                source.slot,
                two_phase=two_phase or source.two_phase,
                failover=failover or source.failover,
                blockers=slot.writers,
                meanwhile=wait.look,
            )
        state = slot.state()
    if missing is not None and missing.loss is not None:
        log.warning("%s. `cdcd run` %s [%s]", missing.loss.message, missing.remedy, missing.loss.code)
    show(state, None if missing is None else missing.last, as_json=as_json, out=out)


def status(settings: Settings, *, as_json: bool, out: TextIO) -> None:
    """Show the slot, and how far Kafka has come.

    Raises GapError if there is no slot of that name, which says whether changes are lost; and as `missing_slot.judge`.
    """
    source = settings.source
    with Session(source.login, source.application_name) as session:
        slot = Slot(session, source.slot)
        state = slot.state()
        if state is None:
            with ReplicationStream(source.login, source.application_name) as walsender:
                missing = missing_slot.judge(settings, session, walsender)
            state = slot.state()  # a daemon that starts may have made it meanwhile
            if state is None:
                raise missing.loss or GapError(
                    f"the slot {source.slot} does not exist, and Kafka holds nothing of it",
                    "cdcd slot create creates it, and so does cdcd run",
                    code="slot-missing",
                )
    try:
        last: SlotRecord | CdcdError | None = last_record(settings)
    except CdcdError as error:
        last = error  # show the slot even if Kafka does not answer
    show(state, last, as_json=as_json, out=out)


def drop(settings: Settings, *, force: bool, as_json: bool, out: TextIO) -> None:
    """With `force`, drop the slot: PostgreSQL may then remove the WAL that it keeps for it.

    Without `force`, raises RequestRejected, which says what the slot is and what would be lost: another program may
    have made it. Raises SlotActive while a client uses the slot.
    """
    source = settings.source
    with Session(source.login, source.application_name) as session:
        slot = Slot(session, source.slot)
        state = slot.state()
        if state is None:
            raise RequestRejected(
                f"the slot {source.slot} does not exist", "There is nothing to do", code="slot-missing"
            )
        if state.is_synced:
            raise RequestRejected(
                state.misfit, "Drop it on the primary: PostgreSQL then drops it here, too", code="slot-of-others"
            )
        if state.active:
            raise SlotActive(state.name, state.active_pid, state.used_by)
        if not force:
            raise _kept(settings, state)
        if not slot.drop():
            raise RequestRejected(
                f"the slot {source.slot} was dropped meanwhile", "There is nothing to do", code="slot-changed-meanwhile"
            )
    what = _kind(state)
    content = json.dumps({"dropped": source.slot}) if as_json else f"dropped the slot {source.slot} ({what})"
    out.write(f"{content}\n")


def _kept(settings: Settings, slot: SlotState) -> RequestRejected:
    """The refusal to drop a slot without --force."""
    unread = f"{size(slot.lag_bytes or slot.retained_bytes)} of WAL that nobody has read"
    if slot.lost:
        unread = "no WAL any more"
    if slot.misfit:
        return RequestRejected(
            f"{slot.misfit}: another program uses it, and it keeps {unread}",
            "Correct source.slot or source.dsn; or add --force to drop it",
            code="slot-of-others",
        )
    try:
        last = last_record(settings)
    except CdcdError as error:
        return RequestRejected(
            f"Kafka cannot say what would be lost with the slot {slot.name} ({_kind(slot)}): {error.message}",
            "Bring Kafka back, or add --force to drop the slot anyway",
            code="slot-still-needed",
        )
    if last is None:
        return RequestRejected(
            f"Kafka holds nothing of the slot {slot.name} ({_kind(slot)}) below the prefix {settings.sink.prefix}, "
            f"so another program may use it: it keeps {unread}",
            "If no other program uses it, add --force",
            code="slot-still-needed",
        )
    return RequestRejected(
        f"Kafka holds changes of {slot.name} up to {format_lsn(last.lsn)}: later changes would be lost",
        f"Add --force if you want that. {LOST_CHANGES_HINT}",
        code="slot-still-needed",
    )


def _kind(slot: SlotState) -> str:
    if slot.slot_type != "logical":
        return slot.slot_type
    flags = [name for name, is_set in (("two-phase", slot.two_phase), ("failover", slot.failover)) if is_set]
    return ", ".join([slot.plugin, f"database {slot.database}", *flags])


def show(state: SlotState | None, last: SlotRecord | CdcdError | None, *, as_json: bool, out: TextIO) -> None:
    """Write the state of the slot. `last` is the last slot record in Kafka, or the error of reading it."""
    if state is None:
        raise GapError("the slot was dropped meanwhile", "Try again", code="slot-changed-meanwhile")
    if as_json:
        content = {
            **state.__dict__,
            "confirmed_flush_lsn": _lsn(state.confirmed_flush_lsn),
            "restart_lsn": _lsn(state.restart_lsn),
            "wal_lsn": _lsn(state.wal_lsn),
            "retained_bytes": state.retained_bytes,
            "lag_bytes": state.lag_bytes,
            "lost": state.lost,
            "kafka_lsn": format_lsn(last.lsn) if isinstance(last, SlotRecord) else None,
            "lsn_base": format_lsn(last.lsn_base) if isinstance(last, SlotRecord) else None,
            "kafka_error": last.message if isinstance(last, CdcdError) else None,
        }
        out.write(json.dumps(content) + "\n")
        return
    used = state.use
    if state.waits_for_standby:
        used = f"{used}, waits for a standby of synchronized_standby_slots"
    if state.is_synced:
        used = "kept in sync with the primary of this standby"
    rows = [
        ("slot", f"{state.name} ({_kind(state)})"),
        ("state", f"lost: it {lost_slot(state.invalidation)[0]}" if state.lost else f"{used}, {state.wal_status}"),
        ("confirmed up to", _confirmed(state)),
        ("WAL kept", _kept_wal(state)),
        ("Kafka holds", _held(last)),
    ]
    if state.lost:
        rows.append(("what to do", "cdcd explain slot-lost"))
    out.writelines(f"{name:16} {value}\n" for name, value in rows)


def _confirmed(state: SlotState) -> str:
    if state.confirmed_flush_lsn is None:
        return "nowhere yet"
    return f"{format_lsn(state.confirmed_flush_lsn)}, {size(state.lag_bytes)} behind the server"


def _kept_wal(state: SlotState) -> str:
    if state.lost:
        return "none: the changes behind the confirmed position are lost"
    if state.restart_lsn is None:
        return "none"
    safe = "no limit" if state.safe_wal_bytes is None else size(state.safe_wal_bytes)
    return f"{size(state.retained_bytes)} from {format_lsn(state.restart_lsn)} on; until the slot is in danger: {safe}"


def _held(last: SlotRecord | CdcdError | None) -> str:
    if isinstance(last, CdcdError):
        return f"not known: {last.message}"
    if last is None:
        return "nothing of it"
    own = f", which is {format_lsn(last.server_lsn)} of the server" if last.lsn_base else ""
    return f"all up to {format_lsn(last.lsn)}{own}"


def _lsn(lsn: int | None) -> str:
    return "-" if lsn is None else format_lsn(lsn)
