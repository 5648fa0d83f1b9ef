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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from cdcd.avro.codecs.lookup import TypeOptions, codecs_for
from cdcd.avro.schema import envelope_schema, key_schema
from cdcd.errors import RequestRejected
from cdcd.sink.topics import TopicNames
from cdcd.snapshot.published_relations import published_relations
from cdcd.source.catalog import Catalog
from cdcd.source.login import Dsn
from cdcd.source.session import Session
from cdcd.source.table_selection import qualified_name, select_published
from cdcd.transaction.column_rules import NO_RULES, ColumnRules
from cdcd.transaction.relations import MESSAGES, Relations, ResolvedRelation


@dataclass(frozen=True)
class SchemaTexts:
    """The schemas of one table, as JSON: exactly what the daemon publishes or registers."""

    schema: str
    name: str
    key: str
    """Empty: the table's events have no key."""
    value: str
    truncate: str
    """The schema of its truncates; empty for logical messages."""
    row_filter: str = ""

    def parts(self) -> Iterator[tuple[str, str]]:
        """Each schema after "key" or "value", which is the part of the record that it describes."""
        if self.key:
            yield "key", self.key
        yield "value", self.value
        if self.truncate:
            yield "value", self.truncate


Describe: TypeAlias = "Callable[[ResolvedRelation, str], tuple[str, str, str]]"
"""Makes the schemas of a relation: of its keys, events and truncates. The text is the database's encoding."""


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
    dsn: Dsn,
    application_name: str,
    publication: str,
    names: TopicNames,
    numeric: Literal["decimal", "string"],
    rules: ColumnRules = NO_RULES,
    describe: Describe | None = None,
) -> list[tuple[str, str, TableSchemas]]:
    """Schema, name and Avro schemas of the published tables, or of `tables` (schema.table; `*` is any characters).

    Raises RequestRejected if one of `tables` is not published, or if nothing is.
    """
    return [
        (each.schema, each.name, _parsed(each, names))
        for each in selected_texts(tables, dsn, application_name, publication, numeric, rules, describe)
    ]


def selected_texts(
    tables: Sequence[str],
    dsn: Dsn,
    application_name: str,
    publication: str,
    numeric: Literal["decimal", "string"],
    rules: ColumnRules = NO_RULES,
    describe: Describe | None = None,
) -> list[SchemaTexts]:
    """The schemas of the published tables, or of `tables` (schema.table; `*` is any characters).

    Raises RequestRejected if one of `tables` is not published, or if nothing is.
    """
    found = list(published_texts(dsn, application_name, publication, numeric, rules, describe))
    if not found:
        raise RequestRejected(
            f"the publication {publication} has no tables, or does not exist",
            f'Add some: ALTER PUBLICATION "{publication}" ADD TABLE ...',
            code="publication-missing",
        )
    selected = set(select_published(tables, [(each.schema, each.name) for each in found], publication))
    return [each for each in found if (each.schema, each.name) in selected]


def published_texts(
    dsn: Dsn,
    application_name: str,
    publication: str,
    numeric: Literal["decimal", "string"],
    rules: ColumnRules = NO_RULES,
    describe: Describe | None = None,
) -> Iterator[SchemaTexts]:
    """The schemas of the published tables, by the daemon's `rules` for columns; nothing if there is no publication.

    `describe`: of another format than cdcd's own.
    """
    describe = describe or partial(_own, numeric)
    with Session(dsn, application_name) as session:
        relations = Relations(Catalog(session, publication), rules=rules)
        for table in published_relations(session, publication):
            relation = relations.resolve(table.relation)
            texts = describe(relation, session.encoding)
            yield SchemaTexts(relation.schema, relation.name, *texts, table.row_filter)


def _own(numeric: Literal["decimal", "string"], relation: ResolvedRelation, encoding: str) -> tuple[str, str, str]:
    codecs = codecs_for(relation.types, TypeOptions(numeric, any_encoding=encoding == "SQL_ASCII"))
    return (
        key_schema(relation, codecs) if relation.has_key else "",
        envelope_schema(relation, codecs),
        envelope_schema(relation, codecs, of_truncate=True),
    )


def message_texts() -> SchemaTexts:
    """The schema of logical messages, which are no table."""
    codecs = codecs_for(MESSAGES.types, TypeOptions())
    return SchemaTexts(MESSAGES.schema, MESSAGES.name, "", envelope_schema(MESSAGES, codecs), "")


def _parsed(texts: SchemaTexts, names: TopicNames) -> TableSchemas:
    return TableSchemas(
        qualified_name(texts.schema, texts.name),
        names.topic(texts.schema, texts.name),
        json.loads(texts.key) if texts.key else None,
        json.loads(texts.value),
        texts.row_filter,
    )
