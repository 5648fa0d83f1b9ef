"""Sends single requests to a Confluent-compatible schema registry, and tells what its answers mean.

Before: `registry_ids` wants the id of a schema, or `cdcd check` looks at the registry.
After: `registry_answers` has the table of errors.
Source: Confluent, "Schema Registry API Reference". The client of `confluent-kafka[schemaregistry]` talks to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cdcd.avro.registry_answers import Meaning, RegistryError, meaning
from cdcd.clock import monotonic_s, wall_us
from cdcd.errors import KafkaUnavailable, RequestRejected, SettingsError, without_password
from cdcd.file_watch import FileWatch
from cdcd.schema_registry_client import FILES, registry_client

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

_CONFLICT: Final = 409
_ERROR: Final = 400

SILENT_MAX_S: Final = 300.0
"""A registry that asks for more time than this is asked again all the same."""

_Answer = TypeVar("_Answer")


class RegistryRequests:
    """The requests to one registry. Each sends one request, and waits for its answer. For any thread."""

    def __init__(self, url: str, properties: Mapping[str, object], clock: Callable[[], float] = monotonic_s) -> None:
        """`properties`: more properties of the client. Raises what `registry_client` raises; sends nothing yet."""
        self.url = without_password(url)
        # The client repeats no request: `registry_store` does, after the time that the registry asks for.
        self._config = {"url": url, "max.retries": 0, **properties}
        self._clock = clock
        self._files = self._watch_files()
        self._client = self._new_client()
        self._silent_until_s = float("-inf")
        self.has_answered = False
        """The registry has done what it was asked for, once at least: URL and credentials are right."""

    def silent_s(self) -> float:
        """For how many seconds the registry wants no request (`Retry-After`)."""
        return max(0.0, self._silent_until_s - self._clock())

    def look_up(self, subject: str, text: str) -> int | None:
        """The id of a schema, if the subject has it. It changes nothing. Raises RegistryError."""
        try:
            return self._answer(lambda: _id(self._client.lookup_schema(subject, _schema(text)).schema_id))
        except RegistryError as error:
            if error.meaning is Meaning.MISSING:
                self.has_answered = True
                return None
            raise

    def newest(self, subject: str) -> tuple[int, str] | None:
        """The id and the text of the newest schema of a subject, if it has one. Raises RegistryError."""
        try:
            found = self._answer(lambda: self._client.get_latest_version(subject))
        except RegistryError as error:
            if error.meaning is Meaning.MISSING:
                return None
            raise
        return _id(found.schema_id), str(found.schema.schema_str)

    def register(self, subject: str, text: str) -> int:
        """Put a schema into a subject that may not have it. Returns its id. Raises RegistryError."""
        try:
            return self._answer(lambda: _id(self._client.register_schema(subject, _schema(text))))
        except RegistryError as error:
            error.is_registration = True
            if error.is_conflict:
                error.version = self._latest_version(subject)
            raise

    def is_compatible(self, subject: str, text: str) -> bool:
        """Whether the subject would take a schema. It changes nothing. Raises RegistryError."""
        try:
            return self._answer(lambda: bool(self._client.test_compatibility_all_versions(subject, _schema(text))))
        except RegistryError as error:
            if error.meaning is Meaning.MISSING:
                return True  # the first schema of a subject is compatible with all before it
            raise

    def is_read_only(self, subject: str) -> bool:
        """Whether the subject is in a mode that takes no schema, as far as the registry has modes and tells."""
        for mode in (lambda: self._client.get_mode(subject), lambda: str(self._client.get_global_mode())):
            try:
                return self._answer(mode) != "READWRITE"
            except RegistryError:
                continue
        return False

    def may_register(self, subject: str) -> bool:
        """Whether this user may write the subject. It offers an empty schema, which no registry takes."""
        try:
            self._answer(lambda: self._client.register_schema(subject, _schema("")))
        except RegistryError as error:
            if error.meaning is Meaning.PASSING:
                raise
            return error.meaning is not Meaning.FORBIDDEN
        return True

    def compatibility(self) -> str:
        """The level of subjects that have none of their own, which every registry has. Raises RegistryError."""
        return self._answer(lambda: str(self._client.get_compatibility()))

    def ask(self) -> None:
        """Whether the registry answers. Raises KafkaUnavailable if it does not."""
        try:
            self.compatibility()
        except RegistryError as error:
            if error.meaning is Meaning.PASSING:
                raise self.unavailable(error) from error

    def unavailable(self, error: RegistryError) -> KafkaUnavailable:
        """Return the error that ends a stream if the registry does not answer for long."""
        return KafkaUnavailable(
            f"the schema registry at {self.url} does not answer: {error.words}",
            "Look at the registry, and at avro.registry_url",
            code="registry-unavailable",
        )

    def rejected(self, error: RegistryError) -> RequestRejected:
        """Return the error that ends the daemon if its user or its URL is wrong."""
        if error.meaning is Meaning.UNKNOWN_USER:
            return RequestRejected(
                f"the registry at {self.url} does not accept the credentials: {error.words}",
                "Correct the user in avro.registry_config, such as basic.auth.user.info",
                code="registry-access-denied",
            )
        return RequestRejected(
            f"no schema registry answers at {self.url}: {error.words}",
            "Correct avro.registry_url; curl URL/subjects shows a list where a registry is",
            code="registry-unavailable",
        )

    def _new_client(self) -> SchemaRegistryClient:
        client = registry_client(self._config)
        # The client keeps the headers of an answer to itself, and its session as well.
        session = getattr(getattr(client, "_rest_client", None), "session", None)
        if session is not None:
            session.event_hooks["response"].append(self._note_wait)
        return client

    def _watch_files(self) -> FileWatch:
        files: dict[str, str] = {name: str(self._config[name]) for name in FILES if name in self._config}
        return FileWatch(files, self._try_out, self._clock)

    def _try_out(self) -> None:
        registry_client(self._config)

    def _read_files_again(self) -> None:
        """Make a client that reads rotated certificates: a client reads them once. Requests under way keep theirs."""
        files = self._watch_files()
        with suppress(SettingsError):  # they have changed again
            self._client = self._new_client()
            self._files = files

    def _latest_version(self, subject: str) -> int | None:
        try:
            return self._answer(lambda: self._client.get_latest_version(subject)).version
        except RegistryError:  # this user may not read, for example
            return None

    def _answer(self, request: Callable[[], _Answer]) -> _Answer:
        """`request` takes the client when it is called: it may be a new one."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        if self._files.have_changed:
            self._read_files_again()
        try:
            answer = request()
        except SchemaRegistryError as error:
            status, words = error.http_status_code, without_password(error.error_message or str(error))
            what = meaning(status, error.error_code)
            if self.has_answered and what in (Meaning.UNKNOWN_USER, Meaning.NO_REGISTRY):
                what = Meaning.PASSING  # it has worked: whoever checks the users, or a proxy, fails for a while
            raise RegistryError(what, f"{words} (HTTP {status})", is_conflict=status == _CONFLICT) from error
        except Exception as error:  # the client also raises errors of its HTTP library, and of its JSON parser
            raise RegistryError(Meaning.PASSING, without_password(str(error) or type(error).__name__)) from error
        self._client.clear_caches()  # type: ignore[no-untyped-call]  # it would keep every schema
        self.has_answered = True
        return answer

    def _note_wait(self, response: Any) -> None:
        """Called by the HTTP client for every answer."""
        wanted = response.headers.get("Retry-After")
        if wanted is not None and response.status_code >= _ERROR:
            self._silent_until_s = self._clock() + min(SILENT_MAX_S, _seconds(wanted))


def _schema(text: str) -> Schema:
    from confluent_kafka.schema_registry import Schema

    return Schema(text, "AVRO")


def _id(found: int | None) -> int:
    """Raises ValueError (the registry's fault): whatever answered is no id."""
    if not isinstance(found, int) or not 0 <= found < 1 << 31:
        raise ValueError(f"the answer holds {found!r} instead of a schema's id")
    return found


def _seconds(wanted: str) -> float:
    """The seconds of a Retry-After: a number, or a date. 0 if it is neither."""
    if wanted.strip().isdigit():
        return float(wanted)
    try:
        return max(0.0, parsedate_to_datetime(wanted).timestamp() - wall_us() / 1e6)
    except ValueError:
        return 0.0
