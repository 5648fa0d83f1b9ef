"""The command `cdcd`: reads the command line, calls what does the work, and turns errors into sentences and exit codes.

Before: a shell, or a container's entry point. After: `supervisor` runs the daemon; `preflight`, `peek`, `schemas`,
`tail` and `settings_reference` do the rest.

Exit codes: 0 done, 1 it failed, 2 a setting or an argument is wrong. A traceback only with `--log-level debug`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from cdcd import log, settings_reference, settings_sources
from cdcd.errors import CdcdError, SettingsError

# What a command needs is imported where it runs: `cdcd config` must not wait for librdkafka, nor fail without it.

OK, FAILED, BAD_SETTING = 0, 1, 2

_COUNT_MAX = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; `arguments` default to the process's own. Returns the exit code."""
    given = _parser().parse_args(arguments)
    try:
        return int(given.command(given))
    except KeyboardInterrupt:
        return OK
    except BrokenPipeError:  # `cdcd tail ... | head`: whoever read has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except CdcdError as error:
        return _fail(given, str(error), BAD_SETTING if isinstance(error, SettingsError) else FAILED)
    except Exception as error:  # noqa: BLE001  # the last resort: a bug must not look like a crash of Python
        return _fail(given, f"{type(error).__name__}: {error}. This is a bug in cdcd: report it, please", FAILED)


def _run(given: argparse.Namespace) -> int:
    loaded = _load(given)
    from cdcd import supervisor

    return int(supervisor.run(loaded.settings))


def _check(given: argparse.Namespace) -> int:
    loaded = _load(given)
    from cdcd import preflight

    return OK if preflight.check(loaded.settings, sys.stdout, as_json=given.json) else FAILED


def _config(given: argparse.Namespace) -> int:
    if given.reference:
        sys.stdout.write(settings_reference.reference())
        return OK
    rows = settings_reference.effective(_load(given))
    if given.json:
        content = {key: {"value": value, "from": origin} for key, value, origin in rows}
        sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        return OK
    lines = [(f"{key} = {settings_reference.as_toml(value)}", origin) for key, value, origin in rows]
    width = min(60, max(len(setting) for setting, _ in lines))
    sys.stdout.writelines(f"{setting:{width}}  # {origin}\n" for setting, origin in lines)
    return OK


def _peek(given: argparse.Namespace) -> int:
    settings = _load(given).settings
    from cdcd.peek import peek

    peek(settings, given.limit, as_json=given.json, out=sys.stdout)
    return OK


def _schema(given: argparse.Namespace) -> int:
    settings = _load(given).settings
    from cdcd.schemas import schemas

    schemas(settings, given.tables, as_json=given.json, out=sys.stdout)
    return OK


def _tail(given: argparse.Namespace) -> int:
    settings = _load(given).settings
    from cdcd.tail import tail

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `timeout`, `docker stop`: ends as Ctrl-C does
    url = settings.avro.registry_url
    tail(
        settings.sink.bootstrap_servers,
        settings.sink.librdkafka,
        settings.sink.prefix,
        None if url is None else {"url": url, **settings.avro.registry_config},
        given.topics,
        from_beginning=given.from_beginning,
        as_json=given.json,
        out=sys.stdout,
    )
    return OK


def _load(given: argparse.Namespace) -> settings_sources.Loaded:
    loaded = settings_sources.load(given.config, log_level=given.log_level)
    log.set_up(loaded.settings.log.level, loaded.settings.log.format)
    return loaded


def _fail(given: argparse.Namespace, sentence: str, code: int) -> int:
    logger = logging.getLogger("cdcd")
    debug = given.log_level == "debug" or logger.isEnabledFor(logging.DEBUG)
    if given.command is _run and logger.handlers:  # whoever collects the daemon's log gets its last word in it, too
        logger.error(sentence, exc_info=debug)
        return code
    if debug:
        traceback.print_exc()
    sys.stderr.write(f"cdcd: {sentence}\n")
    return code


def _count(text: str) -> int:
    number = int(text)
    if not 0 < number <= _COUNT_MAX:
        raise argparse.ArgumentTypeError(f"must be 1 to {_COUNT_MAX:,}")
    return number


class _Version(argparse.Action):
    """Prints the versions and ends; asks the libraries only then."""

    def __call__(self, *_: Any) -> NoReturn:
        from cdcd.compiled import describe

        sys.stdout.write(f"{describe()}\n")
        sys.exit(OK)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cdcd",
        description="Streams PostgreSQL's logical replication into Kafka, every transaction exactly once and whole.",
        epilog="A first look: cdcd config --reference > cdcd.toml; edit it; cdcd check --config cdcd.toml; "
        "cdcd run --config cdcd.toml",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="versions, and whether the hot rooms are compiled")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(
        name: str, does: Callable[[argparse.Namespace], int], about: str, example: str
    ) -> argparse.ArgumentParser:
        description = f"{about[0].upper()}{about[1:]}."
        sub = commands.add_parser(name, help=about, description=description, epilog=f"Example: {example}")
        sub.set_defaults(command=does)
        sub.add_argument("--config", metavar="FILE", help="the TOML file of settings; the environment wins over it")
        sub.add_argument("--log-level", choices=log.LEVELS, help="instead of log.level; debug adds tracebacks")
        return sub

    command("run", _run, "stream the slot into Kafka until SIGTERM or Ctrl-C", "cdcd run --config cdcd.toml")

    check = command(
        "check",
        _check,
        "look whether `run` would work, and say what to do; changes nothing",
        "cdcd check --config cdcd.toml",
    )
    check.add_argument("--json", action="store_true", help="one JSON object a finding")

    config = command(
        "config", _config, "show the settings in force and where each came from", "cdcd config --reference > cdcd.toml"
    )
    config.add_argument("--reference", action="store_true", help="print every setting explained, with its default")
    config.add_argument("--json", action="store_true", help="one JSON object")

    peek = command(
        "peek",
        _peek,
        "show the next changes in the slot, while no daemon streams; consumes nothing",
        "cdcd peek --config cdcd.toml --limit 20",
    )
    peek.add_argument("--limit", type=_count, default=10, metavar="N", help="how many events at most (default: 10)")
    peek.add_argument("--json", action="store_true", help="one JSON object an event, as Kafka would get it")

    schema = command(
        "schema", _schema, "show the Avro schemas that the published tables get", "cdcd schema --json 'public.*'"
    )
    schema.add_argument("tables", nargs="*", metavar="TABLE", help="schema.table; * stands for any characters")
    schema.add_argument("--json", action="store_true", help="one JSON object a table, with its key and value schemas")

    tail = command(
        "tail", _tail, "show the events of topics as they are committed", "cdcd tail --config cdcd.toml 'cdcd.public.*'"
    )
    tail.add_argument("topics", nargs="+", metavar="TOPIC", help="a topic; * stands for any characters")
    tail.add_argument("--from-beginning", action="store_true", help="from the oldest event, not from now")
    tail.add_argument("--json", action="store_true", help="one JSON object an event")
    return parser
