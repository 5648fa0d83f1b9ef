"""`cdcd schema`: the Avro schemas that the published tables get, from the catalog, before a row has come.

Before: `cli.main` has loaded the settings. After: a person reads the lines, or a script the JSON.
Source: PostgreSQL, "System Catalogs": pg_publication_tables, pg_attribute; "Logical Replication Message Formats",
Relation.

The catalog's rows are put into a Relation message, as the server would send it now; from there on all is as in the
daemon, so the schemas are the ones that it will publish.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TextIO

from cdcd.avro.codecs.lookup import TypeOptions, codec_for
from cdcd.avro.schema import envelope_schema, key_schema
from cdcd.config.settings import Settings
from cdcd.errors import RequestRejected
from cdcd.sink.topics import TopicNames
from cdcd.snapshot import published_tables
from cdcd.source.catalog import Catalog
from cdcd.source.session import Session
from cdcd.source.table_selection import select_published
from cdcd.transaction.relations import Relations


@dataclass(frozen=True)
class TableSchemas:
    """What one table's events look like. `key` is None where they have none."""

    table: str
    topic: str
    key: dict[str, Any] | None
    value: dict[str, Any]
    row_filter: str = ""
    """Of the publication: SQL that tells which rows have events; empty where all do."""

    def as_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.__dict__, ensure_ascii=False)

    def as_text(self) -> str:
        """A line for the table, then one a column: its name, PostgreSQL's type, Avro's, and whether the key has it."""
        keys = set() if self.key is None else {field["name"] for field in self.key["fields"]}
        [before] = [field for field in self.value["fields"] if field["name"] == "before"]
        columns = before["type"][1]["fields"]
        width = max((len(field["name"]) for field in columns), default=0)
        types = max((len(field["pg_type"]) for field in columns), default=0)
        lines = [f"{self.table} -> {self.topic}{'' if keys else ' (no key: one partition)'}"]
        for field in columns:
            avro = field["type"][1]
            shown = avro if isinstance(avro, str) else json.dumps(avro, ensure_ascii=False)
            key = " (key)" if field["name"] in keys else ""
            lines.append(f"    {field['name']:{width}}  {field['pg_type']:{types}}  {shown}{key}")
        return "\n".join(lines)


def schemas(settings: Settings, tables: Sequence[str], *, as_json: bool, out: TextIO) -> None:
    """Write the schemas of the published tables (of `tables`: schema.table, `*` stands for any characters) to `out`.

    Raises RequestRejected if one of `tables` is not published, or nothing is.
    """
    source, names = settings.source, TopicNames(settings.sink.prefix, settings.sink.topic)
    found = published_schemas(source.dsn, source.publication, names, settings.avro.numeric)
    if not found:
        raise RequestRejected(
            f"the publication {source.publication} has no tables, or does not exist",
            f'Add some: ALTER PUBLICATION "{source.publication}" ADD TABLE ...',
        )
    wanted = [found[table] for table in select_published(tables, found, source.publication)]
    out.writelines(f"{table.as_json() if as_json else table.as_text()}\n" for table in wanted)


def published_schemas(
    dsn: str, publication: str, names: TopicNames, numeric: Literal["decimal", "string"] = "decimal"
) -> dict[str, TableSchemas]:
    """The schemas of all tables of a publication, by schema.table; none if it has none or does not exist."""
    with Session(dsn) as session:
        types = TypeOptions(numeric=numeric, any_encoding=session.encoding == "SQL_ASCII")
        return {made.table: made for _, _, made in published(session, publication, names, types)}


def published(
    session: Session, publication: str, names: TopicNames, types: TypeOptions
) -> Iterator[tuple[str, str, TableSchemas]]:
    """Schema, name and Avro schemas of every published table."""
    relations = Relations(Catalog(session))
    for table in published_tables.published(session, publication):
        relation = relations.resolve(table.relation)
        schema, name = relation.schema, relation.name
        codecs = [codec_for(column.pgtype, column.typmod, types) for column in relation.columns]
        made = TableSchemas(
            f"{schema}.{name}",
            names.topic(schema, name),
            json.loads(key_schema(relation, codecs)) if relation.keyed else None,
            json.loads(envelope_schema(relation, codecs)),
            table.row_filter,
        )
        yield schema, name, made
