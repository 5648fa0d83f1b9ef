"""The published tables as Relation messages: as the stream would announce them now. Pure.

Before: `source.published_tables` reads the catalog.
After: `transaction.relations` resolves them, so that snapshot, stream and `cdcd schema` give a table the same schema.
Source: PostgreSQL, "Logical Replication Message Formats", Relation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cdcd.pgoutput.messages import Column, Relation
from cdcd.source.published_tables import PublishedTable, published_tables
from cdcd.source.query_runner import QueryRunner
from cdcd.transaction.relations import IDENTITY_FULL


@dataclass(frozen=True)
class PublishedRelation:
    """One published table: its Relation message as the stream would have it, and its row filter (SQL, or empty)."""

    relation: Relation
    row_filter: str


def published_relations(asks: QueryRunner, publication: str) -> list[PublishedRelation]:
    """The publication's tables, by schema and name."""
    return [PublishedRelation(_relation(table), table.row_filter) for table in published_tables(asks, publication)]


def _relation(table: PublishedTable) -> Relation:
    """The Relation message; a column is flagged if it belongs to the replica identity."""
    names = [column.name for column in table.columns]
    flagged: Iterable[str] = names if table.identity == IDENTITY_FULL else table.identity_columns
    columns = tuple(
        Column(column.name in flagged, column.name, column.type_oid, column.typmod) for column in table.columns
    )
    return Relation(0, table.oid, table.schema, table.name, table.identity, columns)
