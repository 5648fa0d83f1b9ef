"""The command line: every command with its options and its help.

Before: `main` has the arguments. After: `args.command` names the file in `commands` that runs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from cdcd.manual import TOPICS
from cdcd.monitoring.log_setup import LEVELS
from cdcd.source.table_selection import settings_file_hint

COUNT_MAX: Final = 100_000

_PROGRAM: Final = "cdcd"
_FILE_FIRST: Final = re.compile(r"argument ([A-Z]+): invalid choice: '([^']+)'")
"""What argparse says of a file of settings where a command should be."""

_TABLES: Final = "schema.table; * stands for any characters"
_CONFIG: Final = (
    "the TOML file of settings; the environment overrides it. Default: $CDCD_CONFIG, ./cdcd.toml or /etc/cdcd/cdcd.toml"
)
_ONE_OBJECT: Final = "one JSON object"
_NO_WAIT: Final = "send the request to the daemon, and do not wait for the result"


def build_parser() -> argparse.ArgumentParser:
    """The parser of `cdcd`. Its result has `command`, `log_level`, and the options of the command."""
    parser = _Parser(
        prog=_PROGRAM,
        description="Streams PostgreSQL's logical replication into Kafka: every transaction whole and exactly once.",
        epilog="To start: cdcd init; cdcd check; cdcd run. The manual: cdcd help",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the versions, and whether cdcd is compiled")
    commands = _Commands(parser.add_subparsers(title="commands", required=True, metavar="COMMAND"))

    init = commands.add_bare(
        "init",
        "look at PostgreSQL and Kafka, and write the settings, and the SQL and ACLs that they need; on a terminal, ask "
        "for what the options do not say",
        "cdcd init --dsn 'host=db dbname=shop user=postgres' --brokers kafka:9092",
    )
    init.set_defaults(log_level=None)
    init.add_argument(
        "--dsn",
        metavar="DSN",
        help="how to connect now, to look and to --apply: as a superuser, or as the owner of the tables",
    )
    init.add_argument("--brokers", metavar="HOST:PORT,...", help="Kafka's brokers")
    init.add_argument("--role", help="the role that the daemon connects as (default: cdcd)")
    init.add_argument("--tables", nargs="+", metavar="TABLE", help=_TABLES)
    init.add_argument("--prefix", help="the first part of the topics' names (default: the name of the database)")
    init.add_argument("--slot", help="the replication slot (default: cdcd)")
    init.add_argument("--publication", help="the publication (default: cdcd, or the name of another slot)")
    init.add_argument("--port", type=int, help="the port of the daemon's page, monitoring.port (default: 9478)")
    init.add_argument(
        "--no-messages",
        action="store_true",
        help="another daemon of this prefix publishes the logical messages (source.messages = false)",
    )
    init.add_argument(
        "--kafka",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property of librdkafka, such as security.protocol=SASL_SSL; a password is used now, and not written",
    )
    init.add_argument(
        "--kafka-admin",
        metavar="FILE",
        help="properties of an administrator of Kafka, NAME=VALUE a line, to look and to --apply",
    )
    init.add_argument("--principal", help="the user for the ACLs (default: User: and sasl.username, or the role)")
    init.add_argument("--topics", action="store_true", help="also write the commands that make the topics")
    init.add_argument(
        "--config",
        metavar="FILE",
        default="cdcd.toml",
        help="the file to write (default: cdcd.toml); others lie next to it",
    )
    init.add_argument("--apply", action="store_true", help="run the SQL and make the ACLs, as far as the users may")
    init.add_argument("--force", action="store_true", help="overwrite files that are there")

    run = commands.add("run", "stream the slot into Kafka until SIGTERM or Ctrl-C", "cdcd run --config cdcd.toml")
    run.add_argument(
        "--snapshot-only",
        action="store_true",
        help="only take the snapshot of the tables (snapshot.mode = only), and end with a summary; the slot stays",
    )

    check = commands.add(
        "check", "check whether `cdcd run` would work, and print hints; changes nothing",
        "cdcd check --config cdcd.toml",
    )  # fmt: skip
    check.add_argument("--json", action="store_true", help="one JSON object a finding")

    config = commands.add(
        "config", "show the settings in force, and where each value came from", "cdcd config --reference > cdcd.toml"
    )
    config.add_argument("--reference", action="store_true", help="print every setting with its default, explained")
    config.add_argument("--json", action="store_true", help=_ONE_OBJECT)

    peek = commands.add(
        "peek", "show the next changes in the slot while no daemon streams; consumes nothing",
        "cdcd peek --config cdcd.toml --limit 20",
    )  # fmt: skip
    peek.add_argument("--limit", type=_count, default=10, metavar="N", help="how many events at most (default: 10)")
    peek.add_argument("--json", action="store_true", help="one JSON object an event, as Kafka would get it")

    schema = commands.add(
        "schema", "show the Avro schemas that the published tables get", "cdcd schema --json 'public.*'"
    )
    schema.add_argument("tables", nargs="*", metavar="TABLE", help=_TABLES)
    schema.add_argument("--json", action="store_true", help="one JSON object a table, with its key and value schemas")
    schema.add_argument(
        "--register", action="store_true", help="put the schemas into the registry that the settings name"
    )

    tail = commands.add(
        "tail", "show the events of topics as they are committed", "cdcd tail --config cdcd.toml 'cdcd.public.*'"
    )
    tail.add_argument("topics", nargs="+", metavar="TOPIC", help="a topic; * stands for any characters")
    start = tail.add_mutually_exclusive_group()
    start.add_argument(
        "--from-beginning", action="store_true", help="start at the oldest event; default: at new events"
    )
    start.add_argument(
        "-n", "--last", type=_count, metavar="N", help="start with the last N events of all these topics together"
    )
    start.add_argument(
        "--since",
        type=_moment_ms,
        metavar="TIME",
        help="start with the events that were published since then: 90s, 10m, 2h, 3d ago, or 2026-11-26T10:00 (UTC)",
    )
    tail.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="VALUE",
        help="only events with this key: 7, or id=7; several times for several columns",
    )
    tail.add_argument("--no-follow", action="store_true", help="end with the last event that is there now")
    tail.add_argument("--json", action="store_true", help="one JSON object an event")

    top = commands.add(
        "top", "show the status of the running daemon, live, until Ctrl-C", "cdcd top --config cdcd.toml"
    )
    top.add_argument("--once", action="store_true", help="show it once, as cdcd status does")
    top.add_argument("--interval", type=_seconds, default=2.0, metavar="SECONDS", help="between two looks (default: 2)")
    status = commands.add(
        "status", "show the status of the running daemon once; exit code 1 unless changes flow, or it stands by",
        "cdcd status --config cdcd.toml --json",
    )  # fmt: skip
    for shown in (top, status):
        shown.add_argument("--json", action="store_true", help=_ONE_OBJECT)
        shown.add_argument("--url", metavar="URL", help="the daemon's page; default: as monitoring.host and .port say")

    snapshot = commands.add(
        "snapshot",
        "ask the daemon for a new snapshot of tables, and wait until Kafka has it; or pause, resume or stop snapshots",
        "cdcd snapshot --config cdcd.toml public.orders",
    )  # fmt: skip
    snapshot.add_argument("tables", nargs="*", metavar="TABLE", help=_TABLES)
    pausing = snapshot.add_mutually_exclusive_group()
    pausing.add_argument(
        "--pause",
        action="store_true",
        help="pause all snapshots, also over a restart of the daemon; the stream goes on",
    )
    pausing.add_argument("--resume", action="store_true", help="let the paused snapshots go on where they were")
    pausing.add_argument(
        "--stop",
        action="store_true",
        help="stop the snapshots of these tables: no more rows come, and their topics stay without the rest",
    )
    snapshot.add_argument("--no-wait", action="store_true", help=_NO_WAIT)
    snapshot.add_argument("--json", action="store_true", help="one JSON object a table")

    unpark = commands.add(
        "unpark",
        "replay the parked events of tables on their own topics, in order; without a table, list what is parked",
        "cdcd unpark --config cdcd.toml public.orders",
    )  # fmt: skip
    unpark.add_argument("tables", nargs="*", metavar="TABLE", help=_TABLES)
    unpark.add_argument(
        "--discard", action="store_true", help="discard the parked events, and take a new snapshot of the tables"
    )
    unpark.add_argument("--no-wait", action="store_true", help=_NO_WAIT)
    unpark.add_argument("--json", action="store_true", help="one JSON object a table")

    _add_slot(commands)
    _add_migrate(commands)

    adopt = commands.add(
        "adopt",
        "let the stream go on at the server that source.dsn names now, after an upgrade, a move or a restore; compares "
        "its tables with the topics, and fences the old server's daemon",
        "cdcd adopt --config cdcd.toml",
    )
    how = adopt.add_mutually_exclusive_group()
    how.add_argument(
        "--drained",
        action="store_true",
        help="compare nothing: you know that Kafka has everything of the old server, and that nobody wrote to the new "
        "one before its slot was made",
    )
    how.add_argument(
        "--repair",
        action="store_true",
        help="compare nothing: the daemon compares the tables with the topics, and publishes what differs",
    )
    how.add_argument(
        "--resnapshot", action="store_true", help="compare nothing: the daemon takes new snapshots of all tables"
    )
    adopt.add_argument("--json", action="store_true", help=_ONE_OBJECT)

    page = commands.add_bare("help", "show a page of the manual, or list the pages", "cdcd help events")
    page.set_defaults(log_level=None)
    page.add_argument("topic", nargs="?", choices=TOPICS, metavar="TOPIC", help="which page; default: list them")

    files = commands.add_bare(
        "files", "list, print or write the files that the manual calls deploy/...: alerts, a dashboard, a Helm chart",
        "cdcd files prometheus/alerts.yml",
    )  # fmt: skip
    files.set_defaults(log_level=None)
    files.add_argument("names", nargs="*", metavar="NAME", help="a file to print, or with --to a folder; default: all")
    files.add_argument("--to", metavar="DIRECTORY", help="write them below this directory, such as deploy")
    files.add_argument("--force", action="store_true", help="overwrite files that are there")

    explain = commands.add_bare(
        "explain", "say what the code of an error means, what cures it, and how to see that it is cured",
        "cdcd explain slot-lost",
    )  # fmt: skip
    explain.set_defaults(log_level=None)
    explain.add_argument("code", nargs="?", metavar="CODE", help="the code at the end of a message; default: list them")
    explain.add_argument("--json", action="store_true", help="one JSON object a code")

    completion = commands.add_bare(
        "completion", "print the script with which a shell completes cdcd's commands and options",
        "cdcd completion bash > /etc/bash_completion.d/cdcd",
    )  # fmt: skip
    completion.set_defaults(log_level=None)
    completion.add_argument("shell", choices=("bash", "zsh"), help="the shell")

    verify = commands.add(
        "verify", "compare the topics with the tables at one LSN, while a daemon runs; exit code 1 if they differ",
        "cdcd verify --config cdcd.toml 'public.*'",
    )  # fmt: skip
    verify.add_argument("tables", nargs="*", metavar="TABLE", help=_TABLES)
    verify.add_argument(
        "--wait",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long Kafka may take to reach the LSN (default: 60)",
    )
    verify.add_argument("--json", action="store_true", help="one JSON object a key that differs, and one a table")
    repair = verify.add_argument_group("repair")
    repair.add_argument(
        "--repair",
        action="store_true",
        help="ask the daemon to publish the rows that differ, and wait until Kafka has them",
    )
    repair.add_argument(
        "--dry-run", action="store_true", help="say how many rows would be repaired, and ask for nothing"
    )
    repair.add_argument(
        "--max-rows",
        type=_count,
        default=10_000,
        metavar="N",
        help="repair no table in which more rows differ (default: 10000)",
    )
    repair.add_argument("--key-from", metavar="VALUE", help="only rows whose key begins with this value or a later one")
    repair.add_argument("--key-to", metavar="VALUE", help="only rows whose key begins with an earlier value")

    _add_spark(commands)
    return parser


def _add_migrate(commands: _Commands) -> None:
    migrate = commands.add_bare(
        "migrate",
        "move from a Debezium connector to cdcd in place, and back",
        "cdcd migrate debezium connector.json --brokers kafka:9092",
    )
    migrate.set_defaults(log_level=None, config="cdcd.toml")
    programs = _Parts(
        migrate, "programs", "program", "the file of settings to write, or to take over by (default: cdcd.toml)"
    )
    debezium = programs.add(
        "debezium",
        "write the settings that a Debezium connector's configuration comes to, and name the options without an equal; "
        "or take over its slot and topics, or give them back",
        "cdcd migrate debezium connector.json --brokers kafka:9092",
    )
    debezium.add_argument(
        "connector",
        metavar="CONNECTOR",
        help="the connector's configuration: a file of properties, or the JSON of Kafka Connect",
    )
    debezium.add_argument("--brokers", metavar="HOST:PORT,...", help="Kafka's brokers, which no option names")
    debezium.add_argument("--force", action="store_true", help="overwrite the file if it is there")
    does = debezium.add_mutually_exclusive_group()
    does.add_argument(
        "--take-over",
        action="store_true",
        help="by the settings in the file: take over the slot, the publication and the topics of the stopped "
        "connector, at the very position where it stopped",
    )
    does.add_argument(
        "--back",
        action="store_true",
        help="by the settings in the file: print the offset with which the connector goes on where the stopped daemon "
        "ended, for PATCH /connectors/NAME/offsets of Kafka Connect",
    )


def _add_slot(commands: _Commands) -> None:
    slot = commands.add(
        "slot", "create, show or drop the slot; refuses what would lose changes",
        "cdcd slot status --config cdcd.toml --json",
    )  # fmt: skip
    actions = _Parts(slot, "actions", "action", _CONFIG)
    create = actions.add(
        "create",
        "create the slot, unless Kafka holds changes of a slot of that name",
        "cdcd slot create --config cdcd.toml",
    )
    create.add_argument("--two-phase", action="store_true", help="decode PREPARE TRANSACTION (PostgreSQL 15)")
    create.add_argument("--failover", action="store_true", help="physical standbys keep it in sync (PostgreSQL 17)")
    status = actions.add(
        "status", "show the slot, and how far Kafka has come", "cdcd slot status --config cdcd.toml --json"
    )
    drop = actions.add(
        "drop", "say what the slot is and what would be lost; --force drops it", "cdcd slot drop --config cdcd.toml"
    )
    drop.add_argument("--force", action="store_true", help="drop the slot even if changes are lost")
    for action in (create, status, drop):
        action.add_argument("--json", action="store_true", help=_ONE_OBJECT)


def _add_spark(commands: _Commands) -> None:
    spark = commands.add(
        "spark",
        "mirror topics into a lake, verify the mirror, load tables; it needs Java",
        "cdcd spark mirror --config mirror.toml",
    )
    jobs = _Parts(
        spark,
        "jobs",
        "job",
        "the TOML file of settings; cdcd files spark/mirror.toml prints one, cdcd help spark has a short one",
    )
    mirror = jobs.add(
        "mirror",
        "keep Delta or Iceberg tables at the topics' newest cut; with --once, exit code 1 if a table is in quarantine",
        "cdcd spark mirror --config mirror.toml --once",
    )
    mirror.add_argument("--once", action="store_true", help="run up to the newest cut, then end: for schedulers")
    status = jobs.add(
        "status",
        "show the last published run of the mirror, its lag, its tables with their files, and the next upkeep",
        "cdcd spark status --config mirror.toml --json",
    )
    status.add_argument("--json", action="store_true", help=_ONE_OBJECT)
    verify = jobs.add(
        "verify",
        "compare the mirror, with the topics' later events, with PostgreSQL at one LSN; exit code 1 if they differ",
        "cdcd spark verify --config mirror.toml --json",
    )  # fmt: skip
    verify.add_argument("--topics", action="store_true", help="compare the rows that the topics give, not the mirror")
    verify.add_argument("--json", action="store_true", help=_ONE_OBJECT)
    snapshot = jobs.add(
        "snapshot", "load tables from PostgreSQL into the lake, and continue them from the topics",
        "cdcd spark snapshot --config mirror.toml 'public.orders'",
    )  # fmt: skip
    snapshot.add_argument("tables", nargs="*", metavar="TABLE", help="schema.table; default: all of mirror.tables")


class _Parser(argparse.ArgumentParser):
    """A parser whose errors end in their code. The parsers of the commands are of this class, too."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does. But the usage in an error is that of the command, and a file of settings gets a hint."""
        found, others = self.parse_known_args(args, namespace)
        command: argparse.ArgumentParser = found.__dict__.pop("parser")
        if others:
            hint = _behind_config(others, command.prog) if hasattr(found, "config") else ""
            command.error(f"unrecognized arguments: {' '.join(others)}{hint}")
        return found

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, and exit."""
        choice = _FILE_FIRST.search(message)
        if choice and (self.prog == _PROGRAM or "--config" in self._option_string_actions):
            message += _behind_config([choice[2]], f"{self.prog} {choice[1]}")
        super().error(f"{message} [arguments-invalid]")


def _behind_config(words: Sequence[str], command: str) -> str:
    """What to add to an error if one of the words is a file of settings."""
    return next((f". {hint}" for word in words if (hint := settings_file_hint(word, command))), "")


class _Commands:
    """Adds commands to the parser."""

    def __init__(self, commands: Any) -> None:
        self._commands = commands

    def add(self, name: str, about: str, example: str) -> argparse.ArgumentParser:
        """A command with the options that nearly all have."""
        sub = self.add_bare(name, about, example)
        sub.add_argument("--config", metavar="FILE", help=_CONFIG)
        sub.add_argument("--log-level", choices=LEVELS, help="overrides log.level; debug adds tracebacks")
        return sub

    def add_bare(self, name: str, about: str, example: str) -> argparse.ArgumentParser:
        """Add a command without options."""
        sub: argparse.ArgumentParser = self._commands.add_parser(
            name, help=about, description=_sentence(about), epilog=f"Example: {example}"
        )
        sub.set_defaults(command=name, parser=sub)
        return sub


class _Parts:
    """The subcommands of one command. Each takes the command's options, before its name or after it."""

    def __init__(self, command: argparse.ArgumentParser, title: str, dest: str, config: str) -> None:
        self._parts = command.add_subparsers(title=title, required=True, metavar=dest.upper(), dest=dest)
        self._config = config

    def add(self, name: str, about: str, example: str) -> argparse.ArgumentParser:
        sub = self._parts.add_parser(name, help=about, description=_sentence(about), epilog=f"Example: {example}")
        # SUPPRESS: a default here would override a value before the subcommand's name.
        sub.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help=self._config)
        sub.add_argument("--log-level", choices=LEVELS, default=argparse.SUPPRESS, help="debug adds tracebacks")
        sub.set_defaults(parser=sub)
        return sub


class _Version(argparse.Action):
    """Prints the versions, and exits. The libraries are imported only then."""

    def __call__(self, *_: Any) -> NoReturn:
        from cdcd.build_info import describe

        sys.stdout.write(f"{describe()}\n")
        sys.exit(0)


def _sentence(about: str) -> str:
    return f"{about[0].upper()}{about[1:]}."


_AGO: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def _moment_ms(text: str) -> int:
    """A time, or how long ago it was, in milliseconds since 1970-01-01 UTC."""
    if ago := re.fullmatch(r"([0-9]{1,9})([smhd])", text):
        return int((datetime.now(UTC).timestamp() - int(ago[1]) * _AGO[ago[2]]) * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 10m, 2h, 3d or 2026-11-26T10:00") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _count(text: str) -> int:
    number = int(text)
    if not 0 < number <= COUNT_MAX:
        raise argparse.ArgumentTypeError(f"must be 1 to {COUNT_MAX:,}")
    return number


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("must be 0.1 to 3600")
    return seconds
