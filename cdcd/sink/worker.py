"""The sink thread: executes the actions of the commit schedule, and reports what became durable.

Before: the source thread puts batches into `batch_queue`. `commit_schedule` decides what is next.
After: `publisher` does it; `on_commit` wakes the source thread, so that the acknowledgement leaves at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Thread
from traceback import clear_frames

from cdcd.errors import CdcdError, ReplayFinished
from cdcd.sink.batch_queue import BatchQueue
from cdcd.sink.commit_schedule import Action, CommitSchedule, Step, Wait
from cdcd.sink.kafka_transaction import CommitResult
from cdcd.sink.publisher import Publisher

log = logging.getLogger(__name__)


class SinkWorker:
    """One run of the sink, from a progress record to a stop or an error; never restarted."""

    def __init__(
        self,
        publisher: Publisher,
        schedule: CommitSchedule,
        queue: BatchQueue,
        on_commit: Callable[[CommitResult, float], None],
        on_end: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The publisher's producer has started. The sink thread calls the callbacks.

        `on_commit` gets the result of a Kafka transaction and the seconds that its commit took; `on_end` says that the
        thread is about to end: `check` tells why.
        """
        self._publisher = publisher
        self._schedule = schedule
        self._queue = queue
        self._on_commit = on_commit
        self._on_end = on_end
        self._clock = clock
        self._stopping = False
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="cdcd-sink", daemon=True)
        self.last_loop_at = clock()
        """When the loop last looked at the clock."""
        self.published = 0
        """Batches that went to the producer, and chunks of replays."""
        self.committing = False
        """A commit is under way: a batch that is put now waits for milliseconds."""
        self._taken = 0
        self.durable = 0
        """Batches out of the queue that are in Kafka for good."""

    def start(self) -> None:
        """Begin to take batches."""
        self._thread.start()

    def stop(self, within_s: float) -> None:
        """Ask the thread to end.

        The thread commits the open Kafka transaction once it holds complete PostgreSQL transactions. If their end is
        not in the queue, it aborts. Then it finishes the replays, so that the topics are complete if there is time. The
        remaining batches stay unpublished: the server sends them again, or the snapshot reads them again.

        Returns at once. No call to Kafka lasts longer than `within_s` from now on. Errors after this point are ignored:
        the server resends whatever was not committed.
        """
        self._stopping = True
        self._publisher.shorten_deadlines(within_s)
        self._queue.close()

    def join(self, wait_s: float) -> bool:
        """Wait for the end; False if it did not come in time."""
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def check(self) -> None:
        """Raise the error that ended the thread, unless it was asked to stop before. For the source thread."""
        if self._error is not None:
            raise self._error

    def step(self) -> bool:
        """Do the next action; False when the thread has come to its end (`check` tells why)."""
        try:
            if self._execute_next():
                return True
        except CdcdError as error:
            if self._stopping:
                log.info("left the Kafka transaction unfinished, PostgreSQL sends its rows again: %s", error.message)
            else:
                self._error = error
        except BaseException as error:
            log.exception("The sink failed with an unexpected error")
            self._error = error
        if self._error is not None:
            _forget_locals(self._error)
        self._queue.close()
        self._on_end()
        return False

    def _run(self) -> None:
        while self.step():
            pass

    def _execute_next(self) -> bool:
        now = self.last_loop_at = self._clock()
        action = self._next_action(now)
        if isinstance(action, Wait):
            if not self._queue.wait(action.seconds):
                self._publisher.poll()
        elif action is Step.PUBLISH:
            self._publish(now)
        elif action is Step.COMMIT:
            self._commit(now)
        elif action is Step.PREPARE:
            self._publisher.prepare_commit()
        elif action is Step.REPLAY:
            self._replay(now)
        else:
            self._publisher.abort()
            return False
        return True

    def _next_action(self, now: float) -> Action:
        publisher, head = self._publisher, self._queue.head()
        if self._stopping:
            return self._schedule.finish(head, publisher.open, publisher.has_replay)
        return self._schedule.next(now, head, publisher.open, publisher.has_replay)

    def _publish(self, now: float) -> None:
        self._publisher.publish(self._queue.get(), now)
        if self._queue.is_overfull:  # a row so large must have left the producer before another one is read
            self._publisher.flush()
        self._queue.done()
        self.published += 1
        self._taken += 1

    def _replay(self, now: float) -> None:
        self._on_commit(self._publisher.replay(now), self._clock() - now)
        self.published += 1
        if self._publisher.needs_new_stream and not self._stopping:
            raise ReplayFinished(
                "a table's parked events are on its own topic again",
                "The stream starts again by itself.",
                code="stream-restarted",
            )

    def _commit(self, now: float) -> None:
        self.committing = True
        try:
            result = self._publisher.commit()
        finally:
            self.committing = False
        self.durable = self._taken
        self._on_commit(result, self._clock() - now)


def _forget_locals(error: BaseException) -> None:
    """Let the ended functions in an error's stack keep nothing alive.

    One of them may have a Kafka client. As long as anything refers to it, its threads go on after it was closed, and
    their next request could fence the client of the next stream.
    """
    chained: BaseException | None = error
    while chained is not None:
        clear_frames(chained.__traceback__)
        chained = chained.__cause__ or chained.__context__
