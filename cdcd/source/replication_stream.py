"""The stream of one replication connection: starts it, reads frames, sends status updates. Thin I/O, no decisions.

Before: `connection` has made the slot.
After: the caller passes the frames on to `transaction` and `pgoutput`. The LSNs to confirm come from `progress`.
Source: PostgreSQL, "Streaming Replication Protocol" and libpq, "Functions Associated with the COPY Command".

One thread owns a ReplicationStream. While it streams, no method but `wait` blocks, and `wait` for `timeout_s` at most:

    stream.start(slot, lsn, options)
    while True:
        frames = stream.read(5_000, 1 << 20)       # the frames that have arrived; perhaps none
        stream.send_status(written, flushed, applied)
        stream.wait(timeout_s, wake_fd)            # until the server sends, or a thread writes to wake_fd

If a queue downstream is full, keep calling `send_status` and `wait(..., reading=False)`: the server ends a stream that
falls silent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import psycopg
from psycopg import pq
from psycopg.errors import Diagnostic

from cdcd.errors import CdcdError, PostgresUnavailable
from cdcd.lsn import format_lsn
from cdcd.source import server_errors
from cdcd.source.connection import COMMAND_TIMEOUT_S, Connection, error_of
from cdcd.source.copy_data import read_frames
from cdcd.source.identifiers import identifier, literal
from cdcd.source.login import Dsn
from cdcd.source.stream_messages import POSTGRES_EPOCH_US, XLOGDATA, StatusUpdate

_DROPPED_FRAMES: Final = 1_000
_DROPPED_BYTES: Final = 1 << 20


def status_interval_s(wanted_s: float, wal_sender_timeout_s: float) -> float:
    """Seconds between status updates: `wanted_s`, but at most a third of the server's timeout (0: no timeout)."""
    return min(wanted_s, wal_sender_timeout_s / 3) if wal_sender_timeout_s else wanted_s


class ReplicationStream(Connection):
    """A replication connection that streams. It raises what Connection raises; one thread owns it."""

    def __init__(self, dsn: Dsn, application_name: str = "cdcd", *, as_stored: bool = False) -> None:
        """As Connection."""
        super().__init__(dsn, application_name, as_stored=as_stored)
        self.lsn_base = 0
        """`send_status` subtracts it from the positions: see `cdcd.lsn`."""
        self.read_bytes = 0
        """The bytes that the last `read` returned."""
        self._slot = ""
        self._received = 0
        self._streaming = False
        self._in_progress = False
        """The server sends transactions while they are in progress."""
        self._buffered = False
        """libpq may have more frames in its buffer than the last `read` returned."""
        self._pending_status: bytes | None = None
        self._fault: CdcdError | None = None
        self._warning = ""
        self._conn.add_notice_handler(self._on_notice)

    def start(self, slot: str, lsn: int, options: Mapping[str, str]) -> None:
        """Start to stream from `slot`, at `lsn` or at the slot's confirmed position, whichever is later.

        `options` go to the plugin. Raises SlotActive if another connection uses the slot (wait and try again), GapError
        if the slot is gone or has lost WAL, RequestRejected if the server would refuse the command again.
        """
        command = f"START_REPLICATION SLOT {identifier(slot)} LOGICAL {format_lsn(lsn)}"
        if options:
            command += f" ({', '.join(f'{identifier(name)} {literal(value)}' for name, value in options.items())})"
        result = self._run(command, COMMAND_TIMEOUT_S)
        if result is None:
            raise PostgresUnavailable(
                f"PostgreSQL did not start to stream within {COMMAND_TIMEOUT_S:g} s", code="postgres-interrupted"
            )
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise self._error(
                result,
                lambda sqlstate, text: server_errors.start_refused(
                    sqlstate, text, slot, self._facts_of_refusal(slot, sqlstate)
                ),
            )
        self._slot = slot
        self._received = lsn
        self._streaming = True
        self._buffered = True  # frames, and the error that ends them, may have come with the answer
        self._in_progress = options.get("streaming", "off") != "off"
        self._warning = ""

    def read(self, max_frames: int, max_bytes: int) -> list[bytes]:
        """Return the frames that have arrived, oldest first. Never blocks. `read_bytes` is then their size.

        Returns at most `max_frames` frames, and stops once they have `max_bytes`: one large frame may exceed that.
        A frame is the content of one CopyData: see `stream_messages`. One call reads the socket once. With TLS one read
        brings at most one message, so the call reads the socket until it is empty.

        Raises PostgresUnavailable when the stream has ended. Raises RequestRejected when it ended for a reason that
        lasts, or when the server skips changes because a publication is missing. Frames that came before the end are
        returned first.
        """
        if self._fault is not None:
            raise self._fault
        frames: list[bytes] = []
        get = self._pg.get_copy_data
        self.read_bytes = 0
        self._buffered = consumed = False
        try:
            while True:
                taken, last = read_frames(get, frames, max_frames - len(frames), max_bytes - self.read_bytes)
                self.read_bytes += taken
                if last > 0:
                    self._buffered = True
                    break
                if last < 0:
                    self._fault = self._ended()
                    break
                if consumed and not (self._tls and taken):
                    break
                self._pg.consume_input()
                consumed = True
        except psycopg.OperationalError as error:
            self._fault = self._lost(error)
            self.read_bytes = sum(map(len, frames))
        if frames:
            self._note_position(frames)
        if self._warning:
            self._fault = server_errors.publication_skipped(self._warning, self._slot, self._received)
            raise self._fault
        if self._fault is not None and not frames:
            raise self._fault
        return frames

    def raise_if_ended(self, within_s: float = 1.0) -> None:
        """Raise the error with which the server has ended the stream, if it has. Changes that came before are lost."""
        deadline = time.monotonic() + within_s
        while (left_s := deadline - time.monotonic()) > 0 and self.fileno() in self.wait(left_s):
            self.read(_DROPPED_FRAMES, _DROPPED_BYTES)

    def send_status(self, written: int, flushed: int, applied: int, reply: bool = False) -> None:
        """Confirm positions to the server: LSNs, end-exclusive, `applied <= flushed <= written`. Never blocks.

        `reply` asks the server for a keepalive. While the socket is full, only the newest status is kept.
        """
        if not self.lsn_base <= applied <= flushed <= written:
            raise ValueError(f"a status needs applied {applied} <= flushed {flushed} <= written {written}")
        now_us, base = time.time_ns() // 1_000 - POSTGRES_EPOCH_US, self.lsn_base
        self._pending_status = StatusUpdate(written - base, flushed - base, applied - base, now_us, reply).encode()
        self._flush_status()

    def wait(self, timeout_s: float, *wake: int, reading: bool = True) -> list[int]:
        """Wait until the server sends, a descriptor of `wake` is readable, or `timeout_s` seconds have passed.

        Returns the readable descriptors; `fileno()` is one of them if the server has sent something. With `reading`
        False the server's data stays in the socket (backpressure, pacing). Meanwhile the call sends a status that the
        socket has not taken yet.
        """
        if reading and (self._buffered or self._fault is not None):
            return [self._socket]
        ready = self._await(timeout_s, wake, reading=reading)
        if self._unsent:
            self._flush_status()
        return ready

    def stop(self, timeout_s: float = 1.0) -> bool:
        """Ask the server to end the stream, and drop the frames that still come; return False if it does not in time.

        A walsender may first send the whole large transaction that it is decoding. Then close the connection, which the
        walsender notices.
        """
        if not self._streaming or self._fault is not None:
            return False
        deadline = time.monotonic() + timeout_s
        with suppress(psycopg.OperationalError, CdcdError):
            self._flush_status()
            self._pg.put_copy_end()
            self._unsent = True
            while True:
                self._flush_status()
                size, _ = self._pg.get_copy_data(1)
                if size < 0:
                    break
                if size == 0:
                    left_s = deadline - time.monotonic()
                    if left_s <= 0:
                        return False
                    self._buffered = False
                    self.wait(left_s)
                    self._pg.consume_input()
            self._streaming = False
            result = self._result(deadline)
            return result is not None and result.status == pq.ExecStatus.COMMAND_OK
        return False

    def close(self) -> None:
        """End the connection at once. The server later sends again all changes that were not confirmed."""
        self._streaming = False
        self._fault = self._fault or PostgresUnavailable(
            "the replication connection is closed", code="postgres-interrupted"
        )
        super().close()

    # Inside

    def _note_position(self, frames: list[bytes]) -> None:
        """Keep the LSN of the newest XLogData, for error messages. Relation and Type messages may have no LSN."""
        for frame in reversed(frames):
            if frame[0] == XLOGDATA and (lsn := int.from_bytes(frame[1:9])):
                self._received = lsn
                return

    def _flush_status(self) -> None:
        """Send as much of the newest status as the socket takes."""
        try:
            if self._unsent:
                self._flush()
                if self._unsent:
                    return
            if self._pending_status is not None:
                status, self._pending_status = self._pending_status, None
                if not self._pg.put_copy_data(status):
                    self._pending_status = status
                    self._unsent = True
                    return
                self._flush()
        except psycopg.OperationalError as error:
            # The server may have sent an error before it closed the connection: `read` finds it.
            raise self._fault or self._lost(error) from error

    def _ended(self) -> CdcdError:
        """The error that ended the stream, from the results that follow the last frame."""
        self._streaming = False
        sqlstate = text = ""
        with suppress(psycopg.OperationalError):
            while not self._pg.is_busy() and (result := self._pg.get_result()) is not None:
                if result.status == pq.ExecStatus.FATAL_ERROR:
                    sqlstate, text = error_of(result)
                    function = (result.error_field(pq.DiagnosticField.SOURCE_FUNCTION) or b"").decode()
                    if function == server_errors.STANDBY_SLOTS_FUNCTION:
                        return server_errors.standby_away(text, self._slot)
                    break
        text = text or "the server closed the stream"
        return server_errors.stream_ended(sqlstate, text, self._slot, self._received, self._in_progress)

    def _lost(self, error: psycopg.Error) -> CdcdError:
        self._streaming = False
        text = self._pg.get_error_message() if self._pg.status == pq.ConnStatus.BAD else str(error)
        return (
            server_errors.stream_ended("", text, self._slot, self._received)
            if self._slot
            else PostgresUnavailable(text.strip(), code="postgres-interrupted")
        )

    def _on_notice(self, notice: Diagnostic) -> None:
        # The text may be translated, so the SQLSTATE decides. The walsender has two warnings with this one: the other
        # says that it waits for a standby, and `daemon.slot_monitor` sees that, too.
        is_wait = notice.source_function == server_errors.STANDBY_SLOTS_FUNCTION
        if notice.sqlstate == "55000" and notice.severity_nonlocalized == "WARNING" and not is_wait:
            # Copy the text now: the notice is not valid after this call.
            self._warning = notice.message_primary or "a publication was skipped"
