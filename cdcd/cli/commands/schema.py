"""`cdcd schema`: prints the Avro schemas of the published tables, or puts them into the schema registry.

Before: `cli.main` has parsed the options. After: a person reads the lines, or a script the JSON.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any, TextIO

from cdcd.avro.registry_store import RegistryStore
from cdcd.cli.commands import Load
from cdcd.config.format_choice import refuse_without_avro
from cdcd.config.settings import Settings
from cdcd.daemon.schema_registry import registry_ids, subject_names
from cdcd.errors import SettingsError
from cdcd.progress.records import kafka_topic
from cdcd.reading.format_schemas import schema_describer, tableless_schemas
from cdcd.reading.table_schemas import TableSchemas, selected_schemas, selected_texts


def execute(args: Namespace, load: Load, out: TextIO) -> bool:
    """Print or register the schemas of the tables that the options name, or of all."""
    settings = load().settings
    refuse_without_avro(settings, "cdcd schema")
    if args.register:
        register(settings, args.tables, as_json=args.json, out=out)
    else:
        schemas(settings, args.tables, as_json=args.json, out=out)
    return True


def register(settings: Settings, tables: Sequence[str], *, as_json: bool, out: TextIO) -> None:
    """Register the schemas of the published tables, or of `tables`, and write each subject and id to `out`.

    Without `tables`, or with `.messages` or `.transaction` among them, those of events of no table are, too. Raises
    SettingsError without a registry, and what RegistryStore raises if the registry refuses a schema.
    """
    source = settings.source
    ids = registry_ids(settings, _thread, may_register=True)
    if ids is None:
        raise SettingsError(
            "avro.registry_url is not set",
            "Set it to the URL of the registry, and run this again",
            code="registry-not-set",
        )
    store, names = RegistryStore(ids, subject_names(settings)), subject_names(settings)
    tableless = {f".{each.name}": each for each in tableless_schemas(settings)}
    found = [each for name, each in tableless.items() if not tables or name in tables]
    named = [table for table in tables if table not in tableless]
    if named or not tables:
        found += selected_texts(
            named,
            source.login,
            source.application_name,
            source.publication,
            settings.avro.numeric,
            settings.column_rules(),
            schema_describer(settings),
        )
    for texts in found:
        for part, text in texts.parts():
            subject = names.name(texts.schema, texts.name, part, text)
            header = store.header_for(texts.schema, texts.name, part, text)
            made = {"table": f"{texts.schema}.{texts.name}", "subject": subject, "id": int.from_bytes(header[1:])}
            out.write(f"{json.dumps(made, ensure_ascii=False)}\n" if as_json else f"{subject} has id {made['id']}\n")


def _thread(run: Callable[[], None], name: str) -> Thread:
    return Thread(target=run, name=name, daemon=True)


def schemas(settings: Settings, tables: Sequence[str], *, as_json: bool, out: TextIO) -> None:
    """Write the schemas of the published tables to `out`, or of `tables` (schema.table; `*` is any characters).

    Raises RequestRejected if one of `tables` is not published, or nothing is.
    """
    source, names = settings.source, settings.topic_names()
    wanted = selected_schemas(
        tables,
        source.login,
        source.application_name,
        source.publication,
        names,
        settings.avro.numeric,
        settings.column_rules(),
        schema_describer(settings),
    )
    for _, _, table in wanted:
        out.writelines(f"{line}\n" for line in ([_as_json(table)] if as_json else as_text(table)))


def as_text(table: TableSchemas) -> list[str]:
    """A line for the table, then a line for each column: name, PostgreSQL type, Avro type, whether it is in the key."""
    keys = set() if table.key is None else {field["name"] for field in table.key["fields"]}
    [before] = [field for field in table.value["fields"] if field["name"] == "before"]
    columns = before["type"][1]["fields"]
    width = max((len(field["name"]) for field in columns), default=0)
    types = max((len(field.get("pg_type", "")) for field in columns), default=0)
    lines = [f"{table.table} -> {kafka_topic(table.topic)}{'' if keys else ' (no key: one partition)'}"]
    for field in columns:
        avro = _value_type(field["type"])
        shown = avro if isinstance(avro, str) else json.dumps(avro, ensure_ascii=False)
        key = " (key)" if field["name"] in keys else ""
        lines.append(f"    {field['name']:{width}}  {field.get('pg_type', ''):{types}}  {shown}{key}")
    return lines


def _value_type(avro_type: Any) -> Any:
    """The type of values that are not null."""
    return next(branch for branch in avro_type if branch != "null") if isinstance(avro_type, list) else avro_type


def _as_json(table: TableSchemas) -> str:
    return json.dumps(table.__dict__ | {"topic": kafka_topic(table.topic)}, ensure_ascii=False)
