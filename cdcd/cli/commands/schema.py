"""`cdcd schema`: prints the Avro schemas of the published tables.

Before: `cli.main` has parsed the options. After: a person reads the lines, or a script the JSON.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from typing import TextIO

from cdcd.cli.commands import Load
from cdcd.config.settings import Settings
from cdcd.reading.table_schemas import TableSchemas, selected_schemas
from cdcd.sink.topics import TopicNames


def execute(args: Namespace, load: Load, out: TextIO) -> bool:
    """Print the schemas of the tables that the options name, or of all."""
    schemas(load().settings, args.tables, as_json=args.json, out=out)
    return True


def schemas(settings: Settings, tables: Sequence[str], *, as_json: bool, out: TextIO) -> None:
    """Write the schemas of the published tables to `out`, or of `tables` (schema.table; `*` is any characters).

    Raises RequestRejected if one of `tables` is not published, or nothing is.
    """
    source, names = settings.source, TopicNames(settings.sink.prefix, settings.sink.topic)
    wanted = selected_schemas(
        tables, source.dsn, source.application_name, source.publication, names, settings.avro.numeric
    )
    for _, _, table in wanted:
        out.writelines(f"{line}\n" for line in ([_as_json(table)] if as_json else as_text(table)))


def as_text(table: TableSchemas) -> list[str]:
    """A line for the table, then a line for each column: name, PostgreSQL type, Avro type, whether it is in the key."""
    keys = set() if table.key is None else {field["name"] for field in table.key["fields"]}
    [before] = [field for field in table.value["fields"] if field["name"] == "before"]
    columns = before["type"][1]["fields"]
    width = max((len(field["name"]) for field in columns), default=0)
    types = max((len(field["pg_type"]) for field in columns), default=0)
    lines = [f"{table.table} -> {table.topic}{'' if keys else ' (no key: one partition)'}"]
    for field in columns:
        avro = field["type"][1]
        shown = avro if isinstance(avro, str) else json.dumps(avro, ensure_ascii=False)
        key = " (key)" if field["name"] in keys else ""
        lines.append(f"    {field['name']:{width}}  {field['pg_type']:{types}}  {shown}{key}")
    return lines


def _as_json(table: TableSchemas) -> str:
    return json.dumps(table.__dict__, ensure_ascii=False)
