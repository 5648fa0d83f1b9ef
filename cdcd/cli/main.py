"""The command `cdcd`: parses the command line, runs the command, and turns errors into sentences and exit codes.

Before: a shell, or a container's entry point. After: `commands` has one file for each command.

Exit codes: 0 the command succeeded, 1 it failed, 2 a setting or an argument is wrong, 128 and the number of a signal
that ended it. `--log-level debug` adds tracebacks.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO, TypeAlias, cast

from cdcd.cli.commands import Load
from cdcd.cli.parser import build_parser
from cdcd.errors import CdcdError, SettingsError
from cdcd.monitoring import log_setup
from cdcd.terminal.output import Output
from cdcd.terminal.visible_text import visible, visible_lines

if TYPE_CHECKING:
    from cdcd.config.loading import Loaded

OK, FAILED, BAD_SETTING = 0, 1, 2
ENDED_BY_SIGNAL: Final = 128

Execute: TypeAlias = "Callable[[argparse.Namespace, Load, TextIO], bool]"


def command(name: str) -> Execute:
    """Import the file of a command, and return the function that runs it."""
    return cast("Execute", import_module(f"cdcd.cli.commands.{name}").execute)


def main(arguments: Sequence[str] | None = None, find: Callable[[str], Execute] = command) -> int:
    """Run one command, and return the exit code.

    `arguments` are those of the process if None. `find` gives the function of a command by its name.
    """
    args = build_parser().parse_args(arguments)
    known: list[Loaded] = []

    def load() -> Loaded:
        known.append(_load(args))
        return known[-1]

    out = cast("TextIO", Output(sys.stdout))
    try:
        with _ended_in_order():
            execute = find(args.command)
            gc.enable()
            return OK if execute(args, load, out) else FAILED
    except _Ended as ended:
        # The daemon is asked to stop, and it does: also if it has only begun to start.
        return OK if args.command == "run" else ENDED_BY_SIGNAL + ended.number
    except KeyboardInterrupt:
        # Ctrl-C is how `tail` and `top` end. After any other command a shell must not go on as if it had done its work.
        return OK if args.command in ("run", "tail", "top") else ENDED_BY_SIGNAL + signal.SIGINT
    except BrokenPipeError:  # the reader of standard output has ended: `cdcd tail ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except CdcdError as error:
        if known:
            known[-1].settings.places.fill(error)
        return _fail(args, error, BAD_SETTING if isinstance(error, SettingsError) else FAILED)
    except Exception as error:  # noqa: BLE001  # a bug: the user gets a sentence, too
        bug = CdcdError(
            f"{type(error).__name__}: {error}", "This is a bug in cdcd: please report it", code="internal-error"
        )
        return _fail(args, bug, FAILED)


def program() -> NoReturn:
    """Run the command of this process, and end the process."""
    # A row is a dict and two bytes objects, which cannot be part of a cycle, and what an import makes stays. But the
    # collector counts each dict and class: by default it would examine all young objects every 700.
    gc.set_threshold(50_000, 20, 20)
    gc.disable()  # until the command's modules are there
    code = main()
    if any(thread.daemon and thread.is_alive() for thread in threading.enumerate()):
        # Such a thread waits for a server, in librdkafka or libpq. The interpreter's end would take away what it uses.
        logging.shutdown()
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    gc.freeze()  # what goes with the process is not examined once more
    sys.exit(code)


class _Ended(KeyboardInterrupt):
    """A signal asks to end. As with Ctrl-C, psycopg cancels the statement that runs."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does: it leaves no file, and the server does nothing for it."""

    def end(number: int, _: FrameType | None) -> None:
        raise _Ended(number)

    numbers: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        numbers = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    try:
        for number in numbers:
            signal.signal(number, end)
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _load(args: argparse.Namespace) -> Loaded:
    """The settings that the command line names. `cdcd help` must not wait for the models of the settings."""
    from cdcd.config import loading

    options: dict[str, tuple[str, Any]] = {}
    if args.log_level is not None:
        options["log.level"] = "--log-level", args.log_level
    if getattr(args, "snapshot_only", False):
        options["snapshot.mode"] = "--snapshot-only", "only"
    loaded = loading.load(loading.settings_file(args.config), options)
    log_setup.set_up(loaded.settings.log.level, loaded.settings.log.format)
    return loaded


def _fail(args: argparse.Namespace, error: CdcdError, exit_code: int) -> int:
    logger = logging.getLogger("cdcd")
    debug = args.log_level == "debug" or logger.isEnabledFor(logging.DEBUG)
    if args.command == "run" and logger.handlers:  # the daemon reports its last error in its log
        logger.error("%s", error, exc_info=debug)
        return exit_code
    if debug:
        sys.stderr.write(visible_lines(traceback.format_exc()))
    sys.stderr.write(f"cdcd: {visible(str(error))}\n")
    return exit_code
