"""Makes the Avro schemas of published tables from the catalog, without waiting for a row.

Before: a command has the name of a publication.
After: `cdcd schema` prints the schemas; `verify` and `spark.load` use them.
Source: PostgreSQL, "System Catalogs": pg_publication_tables, pg_attribute; "Logical Replication Message Formats",
Relation.

This module makes a Relation message from the catalog, as the server would send it now. The rest is the daemon's own
code. So the schemas are those that the daemon will publish.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cdcd.avro.codecs.lookup import TypeOptions, codecs_for
from cdcd.avro.schema import envelope_schema, key_schema
from cdcd.errors import RequestRejected
from cdcd.sink.topics import TopicNames
from cdcd.snapshot.published_relations import published_relations
from cdcd.source.catalog import Catalog
from cdcd.source.session import Session
from cdcd.source.table_selection import qualified_name, select_published
from cdcd.transaction.relations import Relations


@dataclass(frozen=True)
class TableSchemas:
    """The schemas of one table's keys and events."""

    table: str
    """`schema.table`, quoted where that is needed."""
    topic: str
    key: dict[str, Any] | None
    """None: the table's events have no key."""
    value: dict[str, Any]
    row_filter: str = ""
    """The publication's row filter, an SQL condition: only rows that meet it have events. Empty: all rows have."""


def selected_schemas(
    tables: Sequence[str],
    dsn: str,
    application_name: str,
    publication: str,
    names: TopicNames,
    numeric: Literal["decimal", "string"],
) -> list[tuple[str, str, TableSchemas]]:
    """Schema, name and Avro schemas of the published tables, or of `tables` (schema.table; `*` is any characters).

    Raises RequestRejected if one of `tables` is not published, or if nothing is.
    """
    found = list(_published(dsn, application_name, publication, names, numeric))
    if not found:
        raise RequestRejected(
            f"the publication {publication} has no tables, or does not exist",
            f'Add some: ALTER PUBLICATION "{publication}" ADD TABLE ...',
        )
    selected = set(select_published(tables, [(schema, name) for schema, name, _ in found], publication))
    return [each for each in found if each[:2] in selected]


def _published(
    dsn: str, application_name: str, publication: str, names: TopicNames, numeric: Literal["decimal", "string"]
) -> Iterator[tuple[str, str, TableSchemas]]:
    with Session(dsn, application_name) as session:
        types = TypeOptions(numeric, any_encoding=session.encoding == "SQL_ASCII")
        relations = Relations(Catalog(session, publication))
        for table in published_relations(session, publication):
            relation = relations.resolve(table.relation)
            schema, name = relation.schema, relation.name
            codecs = codecs_for(relation.types, types)
            schemas = TableSchemas(
                qualified_name(schema, name),
                names.topic(schema, name),
                json.loads(key_schema(relation, codecs)) if relation.has_key else None,
                json.loads(envelope_schema(relation, codecs)),
                table.row_filter,
            )
            yield schema, name, schemas
