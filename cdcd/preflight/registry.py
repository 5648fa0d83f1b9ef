"""Judges the schema registry: does it answer, does it have the schemas, and would it take those that it lacks?

Before: `check` has the settings; `reading.table_schemas` makes the schemas of the published tables.
After: `check` passes the findings on.

It changes nothing: it looks schemas up, tests whether they are compatible, and offers an empty one, which no registry
takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from cdcd.avro.registry_answers import Meaning, RegistryError
from cdcd.avro.registry_ids import AT_ONCE
from cdcd.avro.registry_requests import RegistryRequests
from cdcd.avro.registry_store import allow_command
from cdcd.avro.registry_subjects import SubjectNames
from cdcd.config.settings import Settings
from cdcd.error_codes import Code
from cdcd.errors import CdcdError
from cdcd.preflight.findings import Finding, error, of_error, ok, warning
from cdcd.reading.format_schemas import schema_describer
from cdcd.reading.table_schemas import published_texts
from cdcd.source.table_selection import qualified_name
from cdcd.terminal.text_format import plural

TABLES_SHOWN: Final = 20
"""At most so many tables are named in one finding."""


@dataclass(frozen=True)
class WantedSchema:
    """A schema that the daemon will need."""

    table: tuple[str, str]
    subject: str
    text: str


@dataclass(frozen=True)
class _Verdict:
    """The verdict on one schema."""

    has: bool = False
    """The registry has it."""
    why_lacking: str = ""
    """Why it lacks the schema, and will go on to lack it."""
    problem: Finding | None = None


def findings(settings: Settings, *, has_publication: bool) -> Iterator[Finding]:
    """Ask the registry for the schemas of the published tables. Without a publication it only has to answer."""
    avro = settings.avro
    assert avro.registry_url is not None
    try:
        requests = RegistryRequests(avro.registry_url, avro.registry_config)
        wanted = _wanted_schemas(settings) if has_publication else []
    except CdcdError as failure:
        yield of_error("registry", failure)
        return
    yield from judge(requests, wanted, may_register=avro.register)


def _wanted_schemas(settings: Settings) -> list[WantedSchema]:
    source, avro = settings.source, settings.avro
    names = SubjectNames(avro.subject_strategy, settings.topic_names().on_broker)
    texts = published_texts(
        source.login,
        source.application_name,
        source.publication,
        avro.numeric,
        settings.column_rules(),
        schema_describer(settings),
    )
    return [
        WantedSchema((each.schema, each.name), names.name(each.schema, each.name, part, text), text)
        for each in texts
        for part, text in each.parts()
    ]


def judge(requests: RegistryRequests, wanted: Sequence[WantedSchema], *, may_register: bool) -> Iterator[Finding]:
    """The findings. `may_register`: the daemon registers what the registry lacks (`avro.register`)."""
    try:
        requests.compatibility()
    except RegistryError as failure:
        if failure.meaning is not Meaning.FORBIDDEN:
            yield _unreachable(requests.url, failure)
            return
    with ThreadPoolExecutor(AT_ONCE) as pool:
        verdicts = list(pool.map(lambda schema: _judge_one(requests, schema, may_register=may_register), wanted))
    lacking: dict[str, dict[str, None]] = {}
    for schema, verdict in zip(wanted, verdicts, strict=True):
        if verdict.why_lacking:
            lacking.setdefault(verdict.why_lacking, {})[qualified_name(*schema.table)] = None
    for why, tables in lacking.items():
        yield _lacking(why, list(tables))
    problems = dict.fromkeys(verdict.problem for verdict in verdicts if verdict.problem is not None)
    yield from problems
    yield from _unequal(requests.url, wanted)
    if not (lacking or problems):
        has = sum(verdict.has for verdict in verdicts)
        more = f", and has {has} of {plural(len(wanted), 'schema')}" if wanted else ""
        yield ok("registry", f"The schema registry answers{more}", seen="schema registry")


def _unequal(url: str, wanted: Sequence[WantedSchema]) -> Iterator[Finding]:
    """Tables of one topic have one subject in Debezium's events and in flat rows, and their columns may differ."""
    texts: dict[str, dict[str, str]] = {}
    tables: dict[str, set[tuple[str, str]]] = {}
    for each in wanted:
        texts.setdefault(each.subject, {}).setdefault(each.text, qualified_name(*each.table))
        tables.setdefault(each.subject, set()).add(each.table)
    for subject in [subject for subject in texts if len(tables[subject]) > 1 and len(texts[subject]) > 1][
        :TABLES_SHOWN
    ]:
        one, other, *_ = texts[subject].values()
        yield warning(
            "registry",
            f"{one} and {other} share a topic, and their columns differ: the registry has to take "
            f"{len(texts[subject])} schemas in subject {subject}, and refuses what is incompatible with the one before",
            "Make the columns equal, or name another topic in [[table]]; or let the subject take any schema: "
            f"{allow_command(url, subject)}",
            code="schema-incompatible",
        )


def _unreachable(url: str, failure: RegistryError) -> Finding:
    if failure.meaning is Meaning.UNKNOWN_USER:
        message = f"The schema registry at {url} does not accept the credentials: {failure.words}"
        return error(
            "registry",
            message,
            "Correct the user in avro.registry_config, such as basic.auth.user.info",
            code="registry-access-denied",
        )
    if failure.meaning is Meaning.PASSING:
        message = f"The schema registry at {url} does not answer: {failure.words}"
        return error(
            "registry",
            message,
            "Start it, or correct avro.registry_url and avro.registry_config",
            code="registry-unavailable",
        )
    message = f"No schema registry answers at {url}: {failure.words}"
    return error(
        "registry",
        message,
        "Correct avro.registry_url; curl URL/subjects shows a list where a registry is",
        code="registry-unavailable",
    )


def _lacking(why: str, tables: Sequence[str]) -> Finding:
    shown = list(tables[:TABLES_SHOWN])
    more = f" and {len(tables) - len(shown)} more" if len(tables) > len(shown) else ""
    command = "cdcd schema --register" if more else f"cdcd schema --register {' '.join(shown)}"
    message = f"The registry lacks schemas of {', '.join(shown)}{more}, and {why}"
    return error("registry", message, f"Register them, as a user that may: {command}", code="schema-not-registered")


def _judge_one(requests: RegistryRequests, schema: WantedSchema, *, may_register: bool) -> _Verdict:
    table, subject, text = qualified_name(*schema.table), schema.subject, schema.text
    try:
        if requests.look_up(subject, text) is not None:
            return _Verdict(has=True)
        if not may_register:
            return _Verdict(why_lacking="avro.register is false")
        if requests.is_read_only(subject):
            return _Verdict(why_lacking="the registry is in read-only mode")
        if not requests.may_register(subject):
            return _Verdict(why_lacking="this user may not register them")
        if requests.is_compatible(subject, text):
            return _Verdict()
        message = f"The registry would refuse the schema of {table} as incompatible with earlier ones in {subject}"
        return _Verdict(
            problem=error(
                "registry", message, f"Allow it: {allow_command(requests.url, subject)}", code="schema-incompatible"
            )
        )
    except RegistryError as failure:
        message = f"The registry does not answer for {table} in subject {subject}: {failure.words}"
        code: Code = "registry-access-denied"
        hint = "Give the user of avro.registry_config the right to read that subject"
        if failure.meaning is Meaning.PASSING:
            code = "registry-unavailable"
            hint = "Run cdcd check again when the registry answers"
        return _Verdict(problem=error("registry", message, hint, code=code))
