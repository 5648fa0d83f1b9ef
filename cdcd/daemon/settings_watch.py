"""Takes settings that change while the daemon runs: in the settings file, and in the files of `secrets_dir`.

Before: a person, a program or the kubelet replaces the files, or sends SIGHUP.
After: `settings_reload` goes on with the new settings, once the supervisor has ended the stream in order.

A thread looks every few seconds, so that the stream never waits for a file or a connection. It tries new settings out
before they are taken: they must be valid, and the services that they concern must answer. Until then those in force
stay, and the log names the error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import closing
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, TypeAlias

from cdcd.avro.registry_answers import Meaning, RegistryError
from cdcd.config.layers import Loaded
from cdcd.config.settings import NAMES, Settings
from cdcd.daemon.clients import Clients
from cdcd.errors import CdcdError, SettingsError
from cdcd.file_watch import LOOK_EVERY_S, FileWatch
from cdcd.source.session import Session

AT_ONCE: Final = frozenset(
    {
        "log.level",
        "log.format",
        "monitoring.stalled_after_s",
        "snapshot.rows_per_second",
        "snapshot.bytes_per_second",
    }
)
"""These need no new stream."""

ONLY_AT_START: Final = frozenset(
    {
        "source.slot",
        "source.publication",
        "sink.prefix",
        "sink.format",
        "sink.encoding",
        "monitoring.host",
        "monitoring.port",
    }
)
"""They say which daemon this is, and where it is found."""

TryOut: TypeAlias = "Callable[[Settings, Collection[str]], None]"

log = logging.getLogger(__name__)


def changed_settings(before: Settings, after: Settings) -> list[str]:
    """The keys of the settings that differ, as `section.name`."""
    return [key for key in NAMES.known() if _value(before, key) != _value(after, key)]


def try_out(settings: Settings, changed: Collection[str]) -> None:
    """Ask each service whose section has changed. Raises CdcdError if one does not answer, or refuses."""
    clients, sections = Clients(settings), {key.partition(".")[0] for key in changed}
    if "source" in sections:
        with clients.session() as session:
            session.rows("SELECT 1")
        if settings.source.primary_login is not None:
            with Session(settings.source.primary_login, settings.source.application_name) as session:
                session.rows("SELECT 1")
    if "sink" in sections:
        names = settings.topic_names()
        with closing(clients.probe(names.progress)) as probe:
            probe.ask()
    if "avro" in sections:
        registry = clients.registry()
        if registry is not None:
            try:
                registry.requests.compatibility()
            except RegistryError as error:
                if error.meaning is not Meaning.FORBIDDEN:  # some may not ask for the level
                    raise registry.requests.unavailable(error) from error


class SettingsWatch:
    """The settings in force, and those that follow. The methods are for the main thread, unless they say otherwise."""

    def __init__(self, loaded: Loaded[Settings], wake: Callable[[], None], trial: TryOut = try_out) -> None:
        """`loaded` are in force. `wake` is called when `is_due` turns true."""
        self._loaded = loaded
        self._wake = wake
        self._trial = trial
        self._apply: Callable[[Settings], None] = lambda _: None
        self._judged: Callable[[CdcdError | None], None] = lambda _: None
        self._requests: SimpleQueue[bool] = SimpleQueue()
        """True asks for a look at once, False for the end. A handler of a signal may put into it."""
        self._files: FileWatch | None = None
        self._must_read = True
        """The files may differ from what is in force. So it is at first: they were read before the first look."""
        self._refused = ""
        self._next: Loaded[Settings] | None = None
        self._failure: Exception | None = None

    def start(self, apply: Callable[[Settings], None], judged: Callable[[CdcdError | None], None]) -> None:
        """Start the thread that looks.

        It lets `apply` put AT_ONCE in force. `judged` gets the error of settings that cannot be used, and None once
        those in the files can.
        """
        self._apply, self._judged = apply, judged
        Thread(target=self._run, name="cdcd-settings", daemon=True).start()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._loaded.settings

    def request(self) -> None:
        """Look at once, and read the files whether they have changed or not. For handlers of signals, too."""
        self._requests.put(True)

    def close(self) -> None:
        """Let the thread end. Does not wait for it: it may wait for a service that is tried out."""
        self._requests.put(False)

    @property
    def is_due(self) -> bool:
        """Whether there are new settings for the next stream, or the thread has failed. For any thread."""
        return self._next is not None or self._failure is not None

    def take(self) -> Settings:
        """Return the new settings, which are in force from now on. Raises the error that ended the thread."""
        if self._failure is not None:
            raise self._failure
        assert self._next is not None
        self._loaded, self._next = self._next, None
        return self._loaded.settings

    def look(self, *, is_asked: bool) -> None:
        """Read the files if they have changed, or if somebody asks for it. For the thread that looks."""
        if self._next is not None:
            return  # the main thread takes these first
        if self._files is None:
            self._files = self._watch()
        if not (is_asked or self._must_read or self._files.have_changed):
            return
        self._must_read = True
        self._files = self._watch()  # before they are read: what changes from now on is noticed
        try:
            found, changed = self._usable()
        except CdcdError as error:
            self._refuse(error, is_asked=is_asked)
            return
        # A file that is new is watched only from the next look on.
        self._must_read, self._refused = found.files != self._loaded.files, ""
        self._judged(None)
        if changed or is_asked:
            self._accept(found, changed)

    def _accept(self, found: Loaded[Settings], changed: list[str]) -> None:
        names = ", ".join(changed)
        if AT_ONCE.intersection(changed):
            self._apply(found.settings)
        if not changed:
            log.info("read the settings again: none has changed")
        elif AT_ONCE.issuperset(changed):
            log.info("the settings have changed, and are in force: %s", names)
            self._loaded = found
        else:
            log.info("the settings have changed, and the next stream begins with them: %s", names)
            self._next = found
            self._wake()

    def _usable(self) -> tuple[Loaded[Settings], list[str]]:
        """Read the settings, and try out what is new. Returns them, and the keys of what is new."""
        assert self._loaded.again is not None
        try:
            found = self._loaded.again()
        except OSError as error:  # a folder that goes while it is read
            raise SettingsError(
                f"The settings cannot be read: {error}", "Put the files back", code="settings-unreadable"
            ) from None
        changed = changed_settings(self._loaded.settings, found.settings)
        fixed = [key for key in changed if key in ONLY_AT_START]
        if fixed:
            have = "has" if len(fixed) == 1 else "have"
            raise SettingsError(
                f"{' and '.join(fixed)} {have} changed, which cdcd reads only at its start",
                "Put the old value back, or restart the daemon: it takes all settings then",
                code="setting-only-at-start",
            )
        try:
            self._trial(found.settings, changed)
        except CdcdError as error:
            raise found.settings.places.fill(error) from None
        return found, changed

    def _refuse(self, error: CdcdError, *, is_asked: bool) -> None:
        """Say once what is wrong. Whatever it is, it may pass: the other half of a change comes, a server is back."""
        if str(error) != self._refused or is_asked:
            log.error(
                "the new settings cannot be used, and the old ones stay in force: %s", error, extra={"code": error.code}
            )
            said = f"the new settings cannot be used: {error.message}"
            self._judged(CdcdError(said, error.hint, code=error.code))
        self._refused = str(error)

    def _watch(self) -> FileWatch:
        return FileWatch(self._loaded.files, lambda: None, effect="cdcd reads the settings again")

    def _run(self) -> None:
        try:
            while True:
                try:
                    is_asked = self._requests.get(timeout=LOOK_EVERY_S)
                    if not is_asked:
                        return
                except Empty:
                    is_asked = False
                self.look(is_asked=is_asked)
        except Exception as error:  # noqa: BLE001 - handed to the main thread
            self._failure = error
            self._wake()


def _value(settings: Settings, key: str) -> object:
    found: object = settings
    for name in key.split("."):
        found = getattr(found, name)
    return found
