from __future__ import annotations

import pytest

from cdcd.avro.codecs.lookup import TypeOptions, codec_for
from cdcd.avro.registry_subjects import Strategy, SubjectNames
from cdcd.avro.schema import envelope_schema, key_schema
from cdcd.source.pg_types import PgType
from cdcd.transaction.relations import MESSAGES, ResolvedColumn, ResolvedRelation

INT4 = PgType(23, "pg_catalog", "int4")
OPTIONS = TypeOptions()


def texts(relation: ResolvedRelation) -> list[tuple[str, str]]:
    codecs = [codec_for(column.pgtype, column.typmod, OPTIONS) for column in relation.columns]
    return [
        ("key", key_schema(relation, codecs)),
        ("value", envelope_schema(relation, codecs)),
        ("value", envelope_schema(relation, codecs, of_truncate=True)),
    ]


@pytest.mark.parametrize(
    ("strategy", "key", "value"),
    [
        ("topic", "p.public.t-key", "p.public.t-value"),
        ("record", "public.t.Key", "public.t.Envelope"),
        ("topic-record", "p.public.t-public.t.Key", "p.public.t-public.t.Envelope"),
    ],
)
def test_a_subject_is_named_as_confluents_serializers_name_it(strategy: Strategy, key: str, value: str) -> None:
    names = SubjectNames(strategy, lambda schema, name: f"p.{schema}.{name}")
    table = ResolvedRelation(7, "public", "t", "d", [ResolvedColumn("id", INT4, -1, True)])
    found = [names.name("public", "t", part, text) for part, text in texts(table)]
    assert found == [key, value, value], "truncates share the subject of rows"


@pytest.mark.parametrize("strategy", ["topic", "record", "topic-record"])
def test_no_two_tables_share_a_subject_whatever_their_names(strategy: Strategy) -> None:
    names = SubjectNames(strategy, lambda schema, name: f"{schema!r}.{name!r}")
    tables = [("a", "b.c"), ("a.b", "c"), ("A", "b.c"), ("a", "b_x2e_c"), ("a", "b-c"), ("a", "b c")]
    column = ResolvedColumn("id", INT4, -1, True)
    relations = [MESSAGES, *(ResolvedRelation(7, *table, "d", [column]) for table in tables)]
    found = {names.name(each.schema, each.name, *part) for each in relations for part in texts(each)}
    assert len(found) == 2 * len(relations)
