"""The command `cdcd`: reads the command line, calls what does the work, and turns errors into sentences and exit codes.

Before: a shell, or a container's entry point.
After: `supervisor` runs the daemon; `preflight`, `peek`, `table_schemas`,
`tail`, `verify` and `reference` do the rest.

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

from cdcd.config import loading, reference
from cdcd.errors import CdcdError, SettingsError
from cdcd.monitoring import log_setup

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
    from cdcd.daemon import supervisor

    supervisor.run(loaded.settings)
    if given.snapshot_only:
        from cdcd.cli.commands.snapshot import summary

        return OK if summary(loaded.settings, sys.stdout) else FAILED
    return OK


def _check(given: argparse.Namespace) -> int:
    loaded = _load(given)
    from cdcd.preflight import check

    return OK if check.check(loaded.settings, sys.stdout, as_json=given.json) else FAILED


def _config(given: argparse.Namespace) -> int:
    if given.reference:
        sys.stdout.write(reference.reference())
        return OK
    rows = reference.effective(_load(given))
    if given.json:
        content = {key: {"value": value, "from": origin} for key, value, origin in rows}
        sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        return OK
    lines = [(f"{key} = {reference.as_toml(value)}", origin) for key, value, origin in rows]
    width = min(60, max(len(setting) for setting, _ in lines))
    sys.stdout.writelines(f"{setting:{width}}  # {origin}\n" for setting, origin in lines)
    return OK


def _peek(given: argparse.Namespace) -> int:
    settings = _load(given).settings
    from cdcd.cli.commands.peek import peek

    peek(settings, given.limit, as_json=given.json, out=sys.stdout)
    return OK


def _schema(given: argparse.Namespace) -> int:
    settings = _load(given).settings
    from cdcd.reading.table_schemas import schemas

    schemas(settings, given.tables, as_json=given.json, out=sys.stdout)
    return OK


def _tail(given: argparse.Namespace) -> int:
    settings = _load(given).settings
    from cdcd.cli.commands.tail import tail

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


def _spark(given: argparse.Namespace) -> int:
    if given.config is None:
        raise SettingsError("cdcd spark needs --config FILE", "config/mirror.toml shows one")
    log_setup.set_up(given.log_level or "info", "text")
    try:
        from cdcd.spark import commands
    except ImportError as error:
        raise SettingsError(
            f"PySpark is not installed: {error}", "Install it with: pip install 'pyspark==4.1.3'"
        ) from error
    with commands.naming():
        if given.job == "mirror":
            good = commands.mirror(given.config, once=given.once, out=sys.stdout)
        elif given.job == "verify":
            good = commands.verify(given.config, topics=given.topics, as_json=given.json, out=sys.stdout)
        else:
            good = commands.snapshot(given.config, given.tables, out=sys.stdout)
    return OK if good else FAILED


def _slot(given: argparse.Namespace) -> int:
    settings = _load(given).settings
    from cdcd.cli.commands import slot

    if given.action == "create":
        slot.create(settings, two_phase=given.two_phase, failover=given.failover, as_json=given.json, out=sys.stdout)
    elif given.action == "drop":
        slot.drop(settings, force=given.force, as_json=given.json, out=sys.stdout)
    else:
        slot.status(settings, as_json=given.json, out=sys.stdout)
    return OK


def _completion(given: argparse.Namespace) -> int:
    import shtab

    sys.stdout.write(shtab.complete(_parser(), given.shell) + "\n")
    return OK


def _snapshot(given: argparse.Namespace) -> int:
    settings = _load(given).settings
    from cdcd.cli.commands.snapshot import snapshot

    snapshot(settings, given.tables, wait=not given.no_wait, as_json=given.json, out=sys.stdout)
    return OK


def _unpark(given: argparse.Namespace) -> int:
    settings = _load(given).settings
    from cdcd.cli.commands.unpark import unpark

    if given.discard and not given.tables:
        raise SettingsError("cdcd unpark --discard needs a table", "cdcd unpark, without any, lists what is parked")
    unpark(settings, given.tables, discard=given.discard, wait=not given.no_wait, as_json=given.json, out=sys.stdout)
    return OK


def _verify(given: argparse.Namespace) -> int:
    settings = _load(given).settings
    from cdcd.verify.comparison import verify

    equal = verify(settings, given.tables, wait_s=given.wait, as_json=given.json, out=sys.stdout)
    return OK if equal else FAILED


def _load(given: argparse.Namespace) -> loading.Loaded:
    options: dict[str, tuple[str, Any]] = {}
    if given.log_level is not None:
        options["log.level"] = "--log-level", given.log_level
    if getattr(given, "snapshot_only", False):
        options["snapshot.mode"] = "--snapshot-only", "only"
    loaded = loading.load(given.config, options)
    log_setup.set_up(loaded.settings.log.level, loaded.settings.log.format)
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
        from cdcd.build_info import describe

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
        sub.add_argument("--log-level", choices=log_setup.LEVELS, help="instead of log.level; debug adds tracebacks")
        return sub

    run = command("run", _run, "stream the slot into Kafka until SIGTERM or Ctrl-C", "cdcd run --config cdcd.toml")
    run.add_argument(
        "--snapshot-only",
        action="store_true",
        help="only copy what the tables hold now (snapshot.mode = only), and end with a summary; the slot stays",
    )

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

    snapshot = command(
        "snapshot",
        _snapshot,
        "ask the daemon for a fresh copy of tables, and wait until Kafka has it",
        "cdcd snapshot --config cdcd.toml public.orders",
    )
    snapshot.add_argument("tables", nargs="+", metavar="TABLE", help="schema.table; * stands for any characters")
    snapshot.add_argument("--no-wait", action="store_true", help="ask the daemon, and do not wait until it has done it")
    snapshot.add_argument("--json", action="store_true", help="one JSON object a table")

    unpark = command(
        "unpark",
        _unpark,
        "replay the parked events of tables onto their own topics, in order; without a table, list what is parked",
        "cdcd unpark --config cdcd.toml public.orders",
    )
    unpark.add_argument("tables", nargs="*", metavar="TABLE", help="schema.table; * stands for any characters")
    unpark.add_argument(
        "--discard", action="store_true", help="give the parked events up, and have the tables copied afresh"
    )
    unpark.add_argument("--no-wait", action="store_true", help="ask the daemon, and do not wait until it has done it")
    unpark.add_argument("--json", action="store_true", help="one JSON object a table")

    _add_slot(
        command(
            "slot",
            _slot,
            "make, show or drop the slot; refuses what would lose changes",
            "cdcd slot status --config cdcd.toml --json",
        )
    )

    about = "print what makes a shell complete cdcd's commands and options"
    completion = commands.add_parser(
        "completion",
        help=about,
        description=f"{about.capitalize()}.",
        epilog="Example: cdcd completion bash > /etc/bash_completion.d/cdcd",
    )
    completion.set_defaults(command=_completion, log_level=None)
    completion.add_argument("shell", choices=("bash", "zsh"), help="the shell")

    verify = command(
        "verify",
        _verify,
        "compare the topics with the tables at one LSN, while a daemon runs; exit code 1: they differ",
        "cdcd verify --config cdcd.toml 'public.*'",
    )
    verify.add_argument("tables", nargs="*", metavar="TABLE", help="schema.table; * stands for any characters")
    verify.add_argument(
        "--wait", type=float, default=60.0, metavar="SECONDS", help="for Kafka to get to the snapshot (default: 60)"
    )
    verify.add_argument("--json", action="store_true", help="one JSON object a key that differs, and one a table")

    _add_spark(
        command(
            "spark", _spark, "mirror topics into a lake, verify it, load it", "cdcd spark mirror --config mirror.toml"
        )
    )
    return parser


class _Parts:
    """The parts of one command, which all take its options, before their name or behind it."""

    def __init__(self, whole: argparse.ArgumentParser, title: str, dest: str, config: str) -> None:
        self._parts = whole.add_subparsers(title=title, required=True, metavar=dest.upper(), dest=dest)
        self._config = config

    def add(self, name: str, about: str, example: str) -> argparse.ArgumentParser:
        sub = self._parts.add_parser(
            name, help=about, description=f"{about[0].upper()}{about[1:]}.", epilog=f"Example: {example}"
        )
        # Not to be lost where they stand before the part's name.
        sub.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help=self._config)
        sub.add_argument(
            "--log-level", choices=log_setup.LEVELS, default=argparse.SUPPRESS, help="debug adds tracebacks"
        )
        return sub


def _add_slot(slot: argparse.ArgumentParser) -> None:
    actions = _Parts(slot, "actions", "action", "the TOML file of settings; the environment wins over it")
    create = actions.add(
        "create", "make the slot, unless Kafka holds changes of one of its name", "cdcd slot create --config cdcd.toml"
    )
    create.add_argument("--two-phase", action="store_true", help="decode PREPARE TRANSACTION (PostgreSQL 15)")
    create.add_argument("--failover", action="store_true", help="physical standbys keep it in sync (PostgreSQL 17)")
    status = actions.add("status", "show the slot, and how far Kafka is", "cdcd slot status --config cdcd.toml --json")
    drop = actions.add("drop", "drop the slot, unless changes would be lost", "cdcd slot drop --config cdcd.toml")
    drop.add_argument("--force", action="store_true", help="although changes will be lost")
    for action in (create, status, drop):
        action.add_argument("--json", action="store_true", help="one JSON object")


def _add_spark(spark: argparse.ArgumentParser) -> None:
    jobs = _Parts(spark, "jobs", "job", "as config/mirror.toml")
    mirror = jobs.add(
        "mirror",
        "keep Delta or Iceberg tables at the topics' newest cut",
        "cdcd spark mirror --config mirror.toml --once",
    )
    mirror.add_argument("--once", action="store_true", help="up to the newest cut, then end: for schedulers")
    verify = jobs.add(
        "verify", "compare the mirror with PostgreSQL at one LSN; exit code 1 if they differ",
        "cdcd spark verify --config mirror.toml --json",
    )  # fmt: skip
    verify.add_argument("--topics", action="store_true", help="compare what the topics fold to, not the mirror")
    verify.add_argument("--json", action="store_true", help="one JSON object")
    snapshot = jobs.add(
        "snapshot", "load tables from PostgreSQL into the lake, and stitch them to the topics",
        "cdcd spark snapshot --config mirror.toml 'public.orders'",
    )  # fmt: skip
    snapshot.add_argument("tables", nargs="*", metavar="TABLE", help="schema.table; default: all of mirror.tables")
