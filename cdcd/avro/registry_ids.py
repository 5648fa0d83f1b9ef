"""Knows the ids that a schema registry gave, and asks for others: each once, and some at the same time.

Before: `registry_requests` sends single requests.
After: `registry_store` waits for an id; the daemon lets the ids of all tables be looked up when it starts.

It lives as long as the process, so a stream that starts again asks for nothing that it knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from hashlib import sha256
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
        self._in_advance: deque[tuple[str, str]] = deque()
        """Look-ups for which nobody waits."""
        self._threads = 0

    def known(self, subject: str, text: str) -> int | None:
        """The id of a schema, if nobody has to be asked for it."""
        return self._known.get(_schema(subject, text))

    def schema_id(self, subject: str, text: str) -> Future[int | None]:
        """The id of a schema, which is registered if the registry lacks it and it may be; if not, None.

        The future may raise RegistryError.
        """
        schema = _schema(subject, text)
        with self._lock:
            if (known := self._known.get(schema)) is not None:
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

    @property
    def is_empty(self) -> bool:
        """No id is known yet."""
        return not self._known

    def look_up(self, schemas: Iterable[tuple[str, str]]) -> None:
        """Look up schemas (subject, text) that may soon be needed. The first failure ends it, because nobody waits."""
        with self._lock:
            self._in_advance += schemas
            self._work_on(len(self._in_advance))

    def _settle(self, schema: Schema, future: Future[int | None], subject: str, text: str) -> None:
        try:
            found = self.requests.look_up(subject, text)
            if found is None and self.may_register:
                found = self.requests.register(subject, text)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            with self._lock:
                del self._under_way[schema]
            future.set_exception(error)
            return
        with self._lock:
            if found is not None:
                self._keep(schema, found)
            del self._under_way[schema]
        future.set_result(found)

    def _look_up(self, subject: str, text: str) -> None:
        schema = _schema(subject, text)
        if schema in self._known or self.requests.silent_s() > 0:
            return
        try:
            found = self.requests.look_up(subject, text)
        except RegistryError as error:
            if error.meaning is Meaning.PASSING:
                self._in_advance.clear()
            return
        if found is not None:
            with self._lock:
                self._keep(schema, found)

    def _keep(self, schema: Schema, schema_id: int) -> None:
        self._known[schema] = schema_id
        if len(self._known) > self._known_max:
            del self._known[next(iter(self._known))]

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
                elif self._in_advance:
                    job = partial(self._look_up, *self._in_advance.popleft())
                else:
                    self._threads -= 1
                    return
            job()


def _schema(subject: str, text: str) -> Schema:
    return subject, sha256(text.encode()).digest()
