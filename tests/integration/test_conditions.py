"""PostgreSQL takes a condition of a snapshot, or says why not; none can reach what stands beside it by accident."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.fix_postgres import Database

from cdcd.source.session import Session
from cdcd.source.snapshot_conditions import broken_condition


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    with Session(database.dsn) as session:
        session.rows("DROP TABLE IF EXISTS public.t")
        session.rows("CREATE TABLE public.t (id int, v text) PARTITION BY LIST (id)")
        yield session


def why(session: Session, where: str) -> str:
    return broken_condition(session, "public", "t", where)


@pytest.mark.parametrize("where", ["id % 2 = 0", "v LIKE '%x' -- all", "id = 1 OR v IS NULL", "id IN (SELECT 1)"])
def test_a_condition_with_the_columns_of_the_table_is_taken(session: Session, where: str) -> None:
    assert why(session, where) == ""


@pytest.mark.parametrize(
    "where", ["nobody = 1", "t.id = 1", "id", "id = 1) OR (id = 2", "count(*) > 1", "id =", "id = 1; SELECT 1"]
)
def test_what_is_no_condition_of_a_row_is_refused(session: Session, where: str) -> None:
    assert why(session, where)
