"""The thread that owns the producer: publishes the batches that wait, commits when it is time, tells what is durable.

Before: `batch_queue` holds what the source thread has put. After: `on_durable` wakes the source thread, so that the
acknowledgement leaves at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Thread
from typing import Final

from cdcd.errors import CdcdError, ReplayFinished
from cdcd.sink.batch_queue import BatchQueue
from cdcd.sink.batches import Batch
from cdcd.sink.group_commit import GroupCommit, KafkaTransactionStats
from cdcd.sink.kafka_transaction import CommitResult
from cdcd.sink.publisher import Publisher

log = logging.getLogger(__name__)

_HOUSEKEEPING_S: Final = 1.0
"""While nothing comes, the client gets a turn this often: it reports lost brokers and renews its tokens."""

_FLOWING_S: Final = 0.01
"""A flow from which nothing came for so long has ended."""


class SinkWorker:
    """One run of the sink, from a progress record to a stop or an error; never restarted."""

    def __init__(
        self,
        publisher: Publisher,
        policy: GroupCommit,
        handover: BatchQueue,
        on_durable: Callable[[CommitResult, float], None],
        on_end: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The publisher's producer has started. The callbacks are called in the sink thread.

        `on_durable` gets what a Kafka transaction made durable and the seconds that its commit took; `on_end` says that
        the thread is about to end: `check` tells why.
        """
        self._publisher = publisher
        self._policy = policy
        self._handover = handover
        self._on_durable = on_durable
        self._on_end = on_end
        self._clock = clock
        self._stopping = False
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="cdcd-sink", daemon=True)
        self.turned_at = clock()
        """When the loop last turned, on the clock."""
        self.published = 0
        """Batches that went to the producer, and pieces of replays."""
        self._replayed = False
        """The last turn has replayed a piece: what waits in the stream is next."""
        self._gathers = False
        """The open transaction is to be committed in a moment."""
        self.committing = False
        """A commit is under way: what is handed over now waits for milliseconds."""
        self._taken = 0
        self.durable = 0
        """Batches out of the handover that are in Kafka for good."""

    def start(self) -> None:
        """Begin to take batches."""
        self._thread.start()

    def stop(self, within_s: float) -> None:
        """Ask the thread to end. It commits the open Kafka transaction if that holds whole PostgreSQL transactions.

        Else it publishes what is waiting, until that is so; or aborts. Then it replays what is to be unparked, so that
        the topics are whole if there is time. What is waiting beyond that stays unpublished: the server sends it again,
        or it is copied again. Returns at once; no call to Kafka lasts longer than `within_s` any more,
        and an error from now on is no news: what is not committed is sent again, whatever ended it.
        """
        self._stopping = True
        self._publisher.hurry(within_s)
        self._handover.close()

    def join(self, wait_s: float) -> bool:
        """Wait for the end; False if it did not come in time."""
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def check(self) -> None:
        """Raises the error that ended the thread before it was asked to, if one did: for the source thread."""
        if self._error is not None:
            raise self._error

    def step(self) -> bool:
        """Publish a batch, commit if it is time; False when the thread has come to its end (`check` tells why)."""
        try:
            if self._turn():
                return True
        except CdcdError as error:
            if self._stopping:
                log.info("left the open Kafka transaction unfinished, its rows will be sent again: %s", error.message)
            else:
                self._error = error
        except BaseException as error:
            log.exception("The sink failed in a way that nobody foresaw")
            self._error = error
        self._handover.close()
        self._on_end()
        return False

    def _run(self) -> None:
        while self.step():
            pass

    def _turn(self) -> bool:
        now = self.turned_at = self._clock()
        publisher, handover = self._publisher, self._handover
        if self._stopping:
            return self._finish(now)
        open_ = publisher.open
        if publisher.unparking and self._replays(now, open_):
            return True
        wait_s = _HOUSEKEEPING_S
        if open_ is not None:
            wait_s = min(wait_s, self._more_within_s(now, open_))
        # A snapshot begins between two transactions, and behind what a broken-off one has left to be replayed.
        inside = open_ is not None and open_.inside
        batch = handover.take(wait_s, copies=inside or not publisher.unparking)
        now = self._clock()
        if batch is None:
            publisher.serve()
        else:
            # Where the end of a transaction is not here yet, and may be far, what is whole does not wait for it; nor
            # does the progress, if it is in there already.
            endless = batch.far or (batch.open and self._gathers)
            if endless and open_ is not None and not open_.inside and not handover.end_waiting:
                self._commit(now)
            self._publish(batch, now)
        open_ = publisher.open
        if open_ is not None:
            # What was committed in PostgreSQL does not wait for the rows of a snapshot, of which there are always more.
            waiting = handover.stream_waiting if open_.end_lsn else handover.waiting
            more = waiting or (batch is not None and batch.flowing)
            copies_next = not more and not open_.inside and handover.waiting
            commits = copies_next or self._policy.should_commit(now, open_, more)
            self._gathers = not (commits or more or open_.inside)
            if commits:
                self._commit(now)
            elif self._gathers:
                publisher.expect_commit()
        return True

    def _more_within_s(self, now: float, open_: KafkaTransactionStats) -> float:
        """How long the open transaction waits for more."""
        if open_.inside:
            return self._policy.patience_s(now, open_)
        return self._policy.gathers_s(now, open_) if self._gathers else _FLOWING_S

    def _replays(self, now: float, open_: KafkaTransactionStats | None) -> bool:
        """Replay a piece of what is to be unparked, unless it is the turn of the stream; whether there is to be a turn.

        Rows of a snapshot stand behind it: they may be of the same table.
        """
        copies_next = self._handover.copies_next
        if open_ is not None:
            if copies_next and not open_.inside:
                self._commit(now)
                return True
            return False
        if self._replayed and self._handover.waiting and not copies_next:
            self._replayed = False
            return False
        self._replayed = True
        self._unpark(now)
        if self._publisher.renamed:
            raise ReplayFinished(
                "a table's parked events are on its own topic again", "The stream starts anew by itself."
            )
        return True

    def _finish(self, now: float) -> bool:
        """Bring the open Kafka transaction to its end, batch by batch, then a replay; False when all that is done."""
        open_ = self._publisher.open
        if open_ is None:
            if not self._publisher.unparking:
                return False
            self._unpark(now)
            return True
        if not open_.inside:
            self._commit(now)
            return True
        batch = self._handover.take(0)
        if batch is None:
            self._publisher.abort()
            return False
        self._publish(batch, now)
        return True

    def _publish(self, batch: Batch, now: float) -> None:
        self._publisher.publish(batch, now)
        self.published += 1
        self._taken += 1

    def _unpark(self, now: float) -> None:
        self._on_durable(self._publisher.unpark(now), self._clock() - now)
        self.published += 1

    def _commit(self, now: float) -> None:
        self.committing = True
        try:
            durable = self._publisher.commit()
        finally:
            self.committing = False
        self.durable = self._taken
        self._on_durable(durable, self._clock() - now)
