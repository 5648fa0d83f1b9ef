"""Knows the ids that a schema registry gave, and asks for others: each once, and some at the same time.

Before: `registry_requests` sends single requests.
After: `registry_store` waits for an id.

It lives as long as the process, so a stream that starts again asks for nothing that it knows. The ids that earlier
processes were given lie in Kafka (`progress.schema_ids`), so a process asks for nothing that they knew, either. The
first of these that it needs is looked up all the same, and so is the subject that has the newest one. If the registry
says another id, or none, it is not the registry of then, or it was restored to an earlier state. No id in Kafka counts
any more, and a new generation of them begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from hashlib import sha256
from itertools import islice
from threading import Lock, Thread
from typing import Final, TypeAlias

from cdcd.avro.registry_answers import Meaning, RegistryError
from cdcd.avro.registry_requests import RegistryRequests

AT_ONCE: Final = 8
"""Requests under way at the same time."""

KNOWN_MAX: Final = 50_000
"""Ids that are kept, in some 10 MB. The oldest go first; the registry is asked again for them."""

Schema: TypeAlias = "tuple[str, bytes]"
"""A subject, and a digest of the schema's text."""


class RegistryIds:
    """The ids of schemas. For any thread."""

    def __init__(
        self,
        requests: RegistryRequests,
        thread: Callable[[Callable[[], None], str], Thread],
        *,
        may_register: bool = True,
        known_max: int = KNOWN_MAX,
    ) -> None:
        """`thread` makes a thread that has not started, from what it runs and its name.

        `may_register`: a schema that the registry lacks is registered.
        """
        self.requests = requests
        self.may_register = may_register
        self._thread = thread
        self._known_max = known_max
        self._lock = Lock()
        self._known: dict[Schema, int] = {}
        self._under_way: dict[Schema, Future[int | None]] = {}
        self._jobs: deque[Callable[[], None]] = deque()
        self._threads = 0
        self._recorded: dict[Schema, int] = {}
        """The ids that Kafka has."""
        self._unrecorded: dict[Schema, int] = {}
        """The known ids that Kafka lacks, and that were not yet given out to be recorded."""
        self.generation = 0
        """As in `progress.schema_ids`."""
        self._is_same_registry = False
        """The registry has given one of the ids that Kafka has, and has the newest of them."""
        self._lets_register = True
        """The registry has not refused this user the right to register."""

    def take_over(self, recorded: Mapping[Schema, int], generation: int) -> None:
        """Take the ids that Kafka has, and which generation of them this is. A new stream begins."""
        with self._lock:
            if generation < self.generation:
                recorded = {}
            self.generation = max(generation, self.generation)
            self._recorded = dict(islice(recorded.items(), max(0, len(recorded) - self._known_max), None))
            self._unrecorded = {schema: each for schema, each in self._known.items() if recorded.get(schema) != each}

    def unrecorded(self) -> Mapping[Schema, int]:
        """Return the ids that Kafka lacks, each once in a stream and a generation: the caller records them."""
        with self._lock:
            news, self._unrecorded = self._unrecorded, {}
        return news

    def known(self, subject: str, text: str) -> int | None:
        """The id of a schema, if nobody has to be asked for it."""
        return self._known_id(_schema(subject, text))

    def _known_id(self, schema: Schema) -> int | None:
        known = self._known.get(schema)
        return self._recorded.get(schema) if known is None and self._is_same_registry else known

    def schema_id(self, subject: str, text: str) -> Future[int | None]:
        """The id of a schema, which is registered if the registry lacks it and it may be; if not, None.

        The future may raise RegistryError.
        """
        schema = _schema(subject, text)
        with self._lock:
            if (known := self._known_id(schema)) is not None:
                future: Future[int | None] = Future()
                future.set_result(known)
                return future
            if (under_way := self._under_way.get(schema)) is not None:
                return under_way
            future = self._under_way[schema] = Future()
            self._jobs.append(lambda: self._settle(schema, future, subject, text))
            self._work_on(1)
        return future

    def newest(self, subject: str) -> Future[tuple[int, str] | None]:
        """The newest schema of a subject, as `RegistryRequests.newest`. The future may raise RegistryError."""
        future: Future[tuple[int, str] | None] = Future()

        def settle() -> None:
            try:
                future.set_result(self.requests.newest(subject))
            except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
                future.set_exception(error)

        with self._lock:
            self._jobs.append(settle)
            self._work_on(1)
        return future

    def _settle(self, schema: Schema, future: Future[int | None], subject: str, text: str) -> None:
        try:
            recorded = self._recorded.get(schema)
            found = self._ask(subject, text, looks_first=recorded is not None)
            is_same = recorded is not None and found == recorded
            is_same = is_same and (self._is_same_registry or self._has_newest_recorded())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            with self._lock:
                del self._under_way[schema]
            future.set_exception(error)
            return
        with self._lock:
            if recorded is not None and schema in self._recorded:
                self._is_same_registry = is_same
                if not is_same:
                    self.generation += 1
                    self._recorded, self._unrecorded = {}, dict(self._known)
            if found is not None:
                self._keep(schema, found)
            del self._under_way[schema]
        future.set_result(found)

    def _has_newest_recorded(self) -> bool:
        """Whether the newest id in Kafka is the newest one of its subject, too: a registry of earlier lacks it."""
        with self._lock:
            newest = max(((each, subject) for (subject, _), each in self._recorded.items()), default=None)
        if newest is None:
            return False
        try:
            found = self.requests.newest(newest[1])
        except RegistryError as error:
            if error.meaning is Meaning.PASSING:
                raise
            return False  # this user may not read it, for example
        return found is not None and found[0] == newest[0]

    def _ask(self, subject: str, text: str, *, looks_first: bool) -> int | None:
        """Ask for an id: by one request, as a rule. A registration of what the registry has changes nothing."""
        if looks_first or not (self.may_register and self._lets_register):
            found = self.requests.look_up(subject, text)
            return self.requests.register(subject, text) if found is None and self.may_register else found
        try:
            return self.requests.register(subject, text)
        except RegistryError as error:
            if error.meaning is Meaning.PASSING:
                raise
            self._lets_register = error.meaning is Meaning.REFUSED
            found = self.requests.look_up(subject, text)
            if found is None and error.meaning in (Meaning.UNKNOWN_USER, Meaning.NO_REGISTRY):
                return self.requests.register(subject, text)  # it lets this user in: that passes
            if found is None:
                raise
            return found

    def _keep(self, schema: Schema, schema_id: int) -> None:
        self._known[schema] = schema_id
        if self._recorded.get(schema) != schema_id:
            self._unrecorded[schema] = schema_id
        if len(self._known) > self._known_max:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._unrecorded.pop(oldest, None)

    def _work_on(self, jobs: int) -> None:
        """Let there be a thread for each of the new jobs, but no more than AT_ONCE. For whoever has the lock."""
        for _ in range(min(jobs, AT_ONCE - self._threads)):
            self._threads += 1
            self._thread(self._work, "cdcd-registry").start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._jobs:
                    job = self._jobs.popleft()
                else:
                    self._threads -= 1
                    return
            job()


def _schema(subject: str, text: str) -> Schema:
    return subject, sha256(text.encode()).digest()
