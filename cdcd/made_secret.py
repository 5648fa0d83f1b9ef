"""Makes a secret when it is needed, by a command or a function that a setting names. No error tells the secret.

Before: `source.login` needs a password; `sink.kafka.token_function` needs a token.
After: PostgreSQL and Kafka judge it.
Source: Python, `subprocess` and `importlib`.

Both run within a time: a start, a stop and the answer to a probe wait for them.
"""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from queue import Empty, SimpleQueue
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from threading import Lock, Thread
from typing import IO, Any, Final

from cdcd.clock import monotonic_s
from cdcd.errors import SettingsError, without_password

WITHIN_S: Final = 20.0

_KEPT_BYTES: Final = 1 << 16
_LOOK_S: Final = 0.1
"""How soon the end of a command is noticed whose own children keep its output open."""
_SHOWN_CHARACTERS: Final = 200


class NotMadeError(Exception):
    """Says why there is no secret, as the rest of a sentence: "ended with exit status 1"."""

    def __init__(self, why: str, *, cannot_run: bool = False) -> None:
        """`cannot_run`: the command is not there, or may not be run."""
        super().__init__(why)
        self.why = why
        self.cannot_run = cannot_run


def from_command(words: Sequence[str], within_s: float = WITHIN_S) -> str:
    """Run a command without a shell, and return the first line of its output. Raises NotMadeError.

    It has no standard input. Of its standard error, the last line is in the error if it fails.
    """
    try:
        process = Popen(words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True)  # noqa: S603 - the user's
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "a word of it has a character that is not allowed"
        raise NotMadeError(f"cannot be run: {why}", cannot_run=True) from None
    try:
        output, complaint = _read(process, within_s)
        status = process.wait(_LOOK_S)
    except TimeoutExpired:
        raise NotMadeError(f"did not end within {within_s:g} s") from None
    finally:
        _end(process)
    line, _, _ = output.partition(b"\n")
    if status:
        how = f"ended with exit status {status}" if status > 0 else f"was ended by signal {-status}"
        last = complaint.strip().rpartition(b"\n")[2].decode(errors="replace")
        said = f": {shown(last)}" if last and not (line and line.strip() in complaint) else ""
        raise NotMadeError(how + said)
    return text(line.removesuffix(b"\r"))


def text(secret: object) -> str:
    """Return a secret as text. Raises NotMadeError if it is none, without a word of it."""
    try:
        found = secret.decode() if isinstance(secret, bytes) else secret
    except UnicodeDecodeError:
        raise NotMadeError("gave bytes that are not UTF-8") from None
    if not isinstance(found, str):
        raise NotMadeError(f"gave a value of the type {type(found).__name__} instead of a text")
    if not found or not found.isprintable():
        raise NotMadeError("gave a text with control characters" if found else "gave nothing")
    return found


def shown(message: str) -> str:
    """Return the first line of somebody else's message for a log: short, and without passwords in URLs."""
    line = message.strip().partition("\n")[0]
    line = "".join(character for character in line if character.isprintable())
    return without_password(line)[:_SHOWN_CHARACTERS].rstrip(" .")


class NamedFunction:
    """A function that a setting names as module:function. One call at a time; for any thread."""

    def __init__(self, setting: str, name: str, within_s: float = WITHIN_S) -> None:
        """Import nothing yet."""
        self.setting = setting
        self.name = name
        self._within_s = within_s
        self._function: Callable[..., Any] | None = None
        self._lock = Lock()
        self._thread: Thread | None = None

    def __call__(self, *arguments: object) -> Any:
        """Return what the function returns. Raises NotMadeError, and SettingsError if there is no such function."""
        with self._lock:
            if self._function is None:
                self._function = self._imported()
            if self._thread is not None and self._thread.is_alive():
                raise NotMadeError("still has not returned from an earlier call")
            function, results = self._function, SimpleQueue[tuple[Any, BaseException | None]]()
            # In a thread: nothing else ends a wait of somebody else's code.
            self._thread = Thread(target=_run, args=(function, arguments, results), name="cdcd-secret", daemon=True)
            self._thread.start()
            try:
                made, error = results.get(timeout=self._within_s)
            except Empty:
                raise NotMadeError(f"did not return within {self._within_s:g} s") from None
        if isinstance(error, SettingsError | NotMadeError):
            raise error
        if error is not None:
            said = shown(str(error))
            raise NotMadeError(f"raised {type(error).__name__}" + (f": {said}" if said else ""))
        return made

    def _imported(self) -> Callable[..., Any]:
        module, _, path = self.name.partition(":")
        try:
            found: Any = import_module(module)
            for name in path.split("."):
                found = getattr(found, name)
        except Exception as error:  # noqa: BLE001 - whatever the module does when it is imported
            raise SettingsError(
                f"{self.setting} names {self.name}, which cannot be imported: {type(error).__name__}: "
                f"{shown(str(error))}",
                "Install the module into the environment of cdcd, or name its folder in PYTHONPATH",
                code="function-not-found",
            ) from None
        if not callable(found):
            raise SettingsError(
                f"{self.setting} names {self.name}, which is no function", "Correct it", code="function-not-found"
            )
        return found  # type: ignore[no-any-return]


def _run(
    function: Callable[..., Any], arguments: tuple[object, ...], results: SimpleQueue[tuple[Any, BaseException | None]]
) -> None:
    try:
        results.put((function(*arguments), None))
    except BaseException as error:  # noqa: BLE001 - the caller translates it
        results.put((None, error))


def _read(process: Popen[bytes], within_s: float) -> tuple[bytes, bytes]:
    """Return the beginning of its output and the end of its complaints, both bounded, once it has ended."""
    assert process.stdout is not None
    assert process.stderr is not None
    deadline_s = monotonic_s() + within_s
    output = complaint = b""
    with selectors.DefaultSelector() as selector:
        pipes: tuple[IO[bytes], ...] = (process.stdout, process.stderr)
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            has_ended = process.poll() is not None
            ready = selector.select(0 if has_ended else _LOOK_S)
            if has_ended and not ready:
                break
            if monotonic_s() >= deadline_s:
                raise TimeoutExpired(process.args, within_s)
            for key, _ in ready:
                part = os.read(key.fd, _KEPT_BYTES)
                if not part:
                    selector.unregister(key.fileobj)
                elif key.fileobj is process.stdout:
                    output = (output + part)[:_KEPT_BYTES]
                else:
                    complaint = (complaint + part)[-_KEPT_BYTES:]
    while process.poll() is None:  # it has closed its output, and goes on
        left_s = deadline_s - monotonic_s()
        with suppress(TimeoutExpired):
            process.wait(min(max(left_s, 0.0), _LOOK_S))
        if left_s <= 0 and process.poll() is None:
            raise TimeoutExpired(process.args, within_s)
    return output, complaint


def _end(process: Popen[bytes]) -> None:
    """End the command, if it still runs, with what it has started."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
