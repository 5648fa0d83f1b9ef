"""A command or a function makes a secret within a time, and no error of it has a word of the secret."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from cdcd.errors import SettingsError
from cdcd.made_secret import NamedFunction, NotMadeError, from_command, shown, text

SECRET = "hunter2"


def shell(script: str) -> tuple[str, ...]:
    return "/bin/sh", "-c", script


@pytest.mark.parametrize(
    "script",
    [
        f"echo {SECRET}",
        f"printf {SECRET}",
        f"printf '{SECRET}\\r\\n'",
        f"echo {SECRET}; echo another line",
        f"echo {SECRET}; echo warning: a new version >&2",
        f"echo {SECRET}; head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2",
        f"echo {SECRET}; exec >&- 2>&-; sleep 0.2",
        f"echo {SECRET}; sleep 11 &",  # what goes on in the background keeps the output open
    ],
)
def test_the_password_is_the_first_line_of_the_output(script: str) -> None:
    began = time.monotonic()
    assert from_command(shell(script), 10) == SECRET
    assert time.monotonic() - began < 10


def test_a_command_is_run_without_a_shell_and_without_an_input() -> None:
    assert from_command(("/bin/echo", "$HOME;", "`id`")) == "$HOME; `id`"
    assert from_command(shell("read line || echo nothing to read")) == "nothing to read"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 3", "ended with exit status 3$"),
        ("echo no login >&2; echo Run: az login. >&2; exit 1", "ended with exit status 1: Run: az login$"),
        ("kill -9 $$", "was ended by signal 9$"),
        ("true", "gave nothing"),
        ("echo; echo second line", "gave nothing"),
        ("printf '\\377\\n'", "not UTF-8"),
        (f"printf '{SECRET}\\033[0m\\n'", "control characters"),
        (f"echo {SECRET}; exit 1", "ended with exit status 1$"),
        (f"echo {SECRET}; echo made {SECRET} >&2; exit 1", "ended with exit status 1$"),
        ("echo fetching https://cdcd:hunter2@vault/x >&2; exit 1", "fetching https://vault/x$"),
        ("printf 'a\\033[31m red\\n' >&2; exit 1", r"exit status 1: a\[31m red$"),
    ],
)
def test_a_command_that_fails_is_told_without_the_secret(script: str, why: str) -> None:
    with pytest.raises(NotMadeError, match=why) as caught:
        from_command(shell(script))
    assert SECRET not in str(caught.value)
    assert not caught.value.cannot_run


def alive(group: int) -> list[str]:
    """The processes of a group that have not ended: those that nobody has waited for do not count."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = path.read_text().rpartition(")")
            state, _, its_group = rest.split()[:3]
            if int(its_group) == group and state != "Z":
                found.append(name)
    return found


@pytest.mark.parametrize("script", ["sleep 60", f"echo {SECRET}; exec >&- 2>&-; sleep 60", "trap '' TERM; sleep 60"])
def test_a_command_that_hangs_is_ended_with_what_it_has_started(script: str, tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    began = time.monotonic()
    with pytest.raises(NotMadeError, match=r"did not end within 0\.5 s"):
        from_command(shell(f"echo $$ >{noted}; {script}"), 0.5)
    assert time.monotonic() - began < 5
    group = int(noted.read_text())
    deadline = time.monotonic() + 5
    while alive(group):
        assert time.monotonic() < deadline


@pytest.mark.parametrize("program", ["/nowhere/gcloud", "no-such-program", "/etc/passwd", "a\0b"])
def test_a_command_that_cannot_be_run_is_told_apart(program: str) -> None:
    with pytest.raises(NotMadeError, match="cannot be run") as caught:
        from_command((program,))
    assert caught.value.cannot_run


def test_what_is_shown_of_a_message_is_short_and_one_line() -> None:
    assert shown("a" * 1000) == "a" * 200
    assert shown("first.\nsecond") == "first"
    assert text(b"p\xc3\xbc") == "pü"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes a module `logins` that can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "logins", raising=False)

    def write(content: str) -> None:
        (tmp_path / "logins.py").write_text(content)

    return write


def test_a_function_gets_the_arguments_and_is_imported_at_its_first_call(module: Any) -> None:
    call = NamedFunction("source.password_function", "logins:Maker.make")
    module("class Maker:\n    @staticmethod\n    def make(*place): return place\n")
    assert call("db", 5432, "cdcd") == ("db", 5432, "cdcd")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("raise RuntimeError('broken')", "RuntimeError: broken"),
        ("", "AttributeError"),
        ("make = 5", "is no function"),
        ("import nothing_of_that_name", "ModuleNotFoundError"),
    ],
)
def test_a_function_that_is_not_there_is_a_wrong_setting(module: Any, content: str, why: str) -> None:
    module(content)
    with pytest.raises(SettingsError, match=why):
        NamedFunction("source.password_function", "logins:make")()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise OSError('no route to vault')", "raised OSError: no route to vault$"),
        ("raise KeyError", "raised KeyError$"),
        ("raise SystemExit(1)", "raised SystemExit: 1$"),
        ("raise ValueError('https://u:hunter2@vault is away')", "raised ValueError: https://vault is away$"),
    ],
)
def test_whatever_a_function_raises_is_why_there_is_no_secret(module: Any, body: str, why: str) -> None:
    module(f"def make(): {body}")
    with pytest.raises(NotMadeError, match=why):
        NamedFunction("sink.token_function", "logins:make")()


def test_a_function_that_hangs_is_called_again_only_when_it_has_returned(module: Any) -> None:
    module("from threading import Event\ngo_on, calls = Event(), []\ndef make():\n calls.append(1)\n go_on.wait()\n")
    call = NamedFunction("sink.token_function", "logins:make", within_s=0.2)
    with pytest.raises(NotMadeError, match=r"did not return within 0\.2 s"):
        call()
    with pytest.raises(NotMadeError, match="still has not returned"):
        call()
    made: Any = sys.modules["logins"]
    event: Event = made.go_on
    event.set()
    deadline = time.monotonic() + 5
    while True:
        try:
            call()
            break
        except NotMadeError:
            assert time.monotonic() < deadline
    assert len(made.calls) == 2
