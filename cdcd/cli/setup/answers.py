"""What `cdcd init` has to know: from the options, or from a person at a terminal.

Before: the parser has the options, and `postgres` has looked at the server. After: `first_settings` has them.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdcd.config.settings import SourceSettings
from cdcd.errors import SettingsError
from cdcd.source.server import ServerFacts
from cdcd.source.session import version_text
from cdcd.source.table_selection import CandidateTable
from cdcd.terminal.text_format import plural

ROLE: Final = "cdcd"
SLOT: Final[str] = SourceSettings.model_fields["slot"].default
PUBLICATION: Final[str] = SourceSettings.model_fields["publication"].default
TABLES: Final[tuple[str, ...]] = SourceSettings.model_fields["tables"].default

_PERSONAL: Final = ("passfile", "sslcert", "sslkey", "sslpassword")
"""Parameters of a DSN that belong to the role that logs in."""


class Dialogue:
    """Asks a person, if there is one."""

    def __init__(self, person: TextIO, out: TextIO) -> None:
        """`person`: standard input."""
        self._person = person
        self._out = out
        self._asks = person.isatty() and out.isatty()

    def answer(self, given: str | None, question: str, default: str, option: str) -> str:
        """The answer: given by `option`, or a person's, or the default.

        Raises SettingsError if there is none of them.
        """
        if given:
            return given
        if self._asks:
            self._out.write(f"{question} [{default}]: " if default else f"{question}: ")
            self._out.flush()
            default = self._person.readline().strip() or default
        if not default:
            hint = f"Name it with {option}; on a terminal, cdcd init asks"
            raise SettingsError(f"{option} is not given", hint, code="arguments-invalid")
        return default


@dataclass(frozen=True)
class Login:
    """Who has connected to look, and what is there."""

    dsn: str
    server: ServerFacts
    may_replicate: bool
    is_superuser: bool
    candidates: Sequence[CandidateTable]
    is_slot_foreign: bool
    """There is a slot with the default's name, for another database or of another program."""

    def __str__(self) -> str:
        tables = plural(len(self.candidates), "table")
        return f"{version_text(self.server.version)}, database {self.server.database}: {tables}"


@dataclass(frozen=True)
class Answers:
    """What the daemon's settings are made of."""

    dsn: str
    """The daemon's, without a password."""
    role: str
    brokers: str
    tables: Sequence[str]
    prefix: str
    slot: str
    publication: str
    properties: dict[str, str]
    """librdkafka's, as they are given."""
    port: int | None = None
    """None: the default."""
    has_messages: bool = True
    """This daemon publishes the logical messages."""


def answers(args: Namespace, login: Login, dialogue: Dialogue) -> Answers:
    """Take the options, and ask for the rest. Raises SettingsError."""
    database = login.server.database
    brokers = dialogue.answer(args.brokers, "Kafka's brokers, as host:port", "", "--brokers")
    keeps_role = login.may_replicate and not login.is_superuser
    role = dialogue.answer(
        args.role, "The role that the daemon connects as", login.server.role if keeps_role else ROLE, "--role"
    )
    shown = " ".join(_schemas(login.candidates) or TABLES)
    given = " ".join(args.tables or ())
    tables = args.tables or dialogue.answer(given, "Tables", shown, "--tables").split()
    prefix = dialogue.answer(args.prefix, "The first part of the topics' names", _legal(database), "--prefix")
    free = f"{SLOT}_{re.sub('[^a-z0-9_]', '_', database.lower())}"[:63] if login.is_slot_foreign else SLOT
    slot = dialogue.answer(args.slot, "The replication slot", free, "--slot")
    return Answers(
        dsn=dsn_of_role(login, role),
        role=role,
        brokers=brokers,
        tables=tables,
        prefix=prefix,
        slot=slot,
        # A second daemon has tables of its own, and so a publication of its own.
        publication=args.publication or (PUBLICATION if slot == SLOT else slot),
        port=args.port,
        has_messages=not args.no_messages,
        properties=properties(args.kafka, "--kafka"),
    )


def dsn_of_role(login: Login, role: str) -> str:
    """The DSN for the file: without a password, and without what belongs to another role."""
    parameters = {name: value for name, value in conninfo_to_dict(login.dsn).items() if value is not None}
    kept = () if role == login.server.role else _PERSONAL
    for name in ("password", "sslpassword", "replication", *kept):
        parameters.pop(name, None)
    # Without them, libpq would take the user for the database, and the environment for the user.
    parameters |= {"dbname": login.server.database, "user": role}
    first = [name for name in ("host", "hostaddr", "port", "dbname", "user") if name in parameters]
    ordered = {name: str(parameters[name]) for name in dict.fromkeys([*first, *parameters])}
    return make_conninfo("", **ordered)


def properties(words: Sequence[str], option: str) -> dict[str, str]:
    """Librdkafka's properties, each written as `name=value`. Raises SettingsError; the message has no value."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            message = f"{option} has a property without a value"
            raise SettingsError(message, "Write each as name=value", code="arguments-invalid")
        found[name.strip()] = value.strip()
    return found


def properties_of_file(path: str | None) -> dict[str, str]:
    """The properties in a file, one a line; a line may be a comment. Raises SettingsError."""
    if path is None:
        return {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        hint = "Name another one with --kafka-admin"
        raise SettingsError(f"The file {path} cannot be read: {why}", hint, code="arguments-invalid") from None
    return properties([line for line in map(str.strip, lines) if line and line[0] not in "#!"], path)


def _schemas(candidates: Sequence[CandidateTable]) -> list[str]:
    """A pattern for each schema that has tables."""
    names = sorted({table.schema for table in candidates})
    return [f"{name}.*" for name in names if re.fullmatch(r"[\w$-]+", name)]


def _legal(database: str) -> str:
    """A name of a database in the letters that Kafka allows."""
    return re.sub("[^a-zA-Z0-9_-]", "-", database)[:100]
