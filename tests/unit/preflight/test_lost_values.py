from __future__ import annotations

from typing import Any

import pytest

from cdcd.debezium.modes import Modes
from cdcd.preflight.findings import Level
from cdcd.preflight.lost_values import COLUMNS_SHOWN, judge
from cdcd.source.pg_types import PgType
from cdcd.source.table_columns import TableColumns
from cdcd.transaction.column_rules import NO_RULES

INT4 = PgType(23, "pg_catalog", "int4")
NUMERIC = PgType(1700, "pg_catalog", "numeric")
INTERVAL = PgType(1186, "pg_catalog", "interval")
TIME = PgType(1083, "pg_catalog", "time")
TIMESTAMP = PgType(1114, "pg_catalog", "timestamp")
MULTIRANGE = PgType(4451, "pg_catalog", "int4multirange", "m")
AMOUNT = PgType(90000, "public", "amount", "d", base=NUMERIC, base_typmod=(5 << 16 | 2) + 4)
ENDED = PgType(90001, "public", "ended", "c")
NUMERICS = PgType(1231, "pg_catalog", "_numeric", element=NUMERIC, is_array=True)
TIMES = PgType(1183, "pg_catalog", "_time", element=TIME, is_array=True)
BITS = PgType(1561, "pg_catalog", "_bit", element=PgType(1560, "pg_catalog", "bit"), is_array=True)


def finding(modes: Modes, *types: PgType, typmods: tuple[int, ...] = ()) -> Any:
    names = tuple(f"c{number}" for number in range(len(types)))
    oids = tuple(each.oid for each in types)
    table = TableColumns("public", "t", names, oids, (), typmods=typmods or (-1,) * len(types))
    found = list(judge(modes, [table], {each.oid: each for each in types}, NO_RULES))
    assert len(found) <= 1
    return found[0] if found else None


def test_a_table_whose_values_all_fit_has_no_finding() -> None:
    text = PgType(25, "pg_catalog", "text")
    assert finding(Modes(), INT4, text, TIMESTAMP, TIME) is None
    assert finding(Modes(decimal="string"), NUMERIC, AMOUNT) is None


@pytest.mark.parametrize(
    ("pgtype", "modes", "lost", "cure"),
    [
        (NUMERIC, Modes(), "NaN and infinity", "debezium.decimal_handling_mode"),
        (AMOUNT, Modes(), "NaN and infinity", "debezium.decimal_handling_mode"),
        (NUMERIC, Modes(decimal="double"), "digits behind the 15th", "debezium.decimal_handling_mode"),
        (INTERVAL, Modes(), "infinity, and which part", "debezium.interval_handling_mode"),
        (INTERVAL, Modes(interval="string"), "(infinity)", ""),
        (TIMESTAMP, Modes(time="nanoseconds"), "times before 1677", 'debezium.time_precision_mode = "microseconds"'),
        (TIMESTAMP, Modes(time="connect"), "microseconds", 'debezium.time_precision_mode = "adaptive"'),
        (TIME, Modes(time="connect"), "microseconds", 'debezium.time_precision_mode = "adaptive"'),
        (TIMES, Modes(), "a second dimension, and of elements: microseconds", ""),
        (NUMERICS, Modes(), "a second dimension, and of elements: NaN", "debezium.decimal_handling_mode"),
        (BITS, Modes(), "all: they are null", ""),
        (
            MULTIRANGE,
            Modes(),
            "do not have columns of type int4multirange",
            "debezium.include_unknown_datatypes = true",
        ),
        (ENDED, Modes(), "do not have columns of type ended", "debezium.include_unknown_datatypes = true"),
    ],
)
def test_a_column_is_named_with_what_is_lost_and_with_the_cure(
    pgtype: PgType, modes: Modes, lost: str, cure: str
) -> None:
    found = finding(modes, INT4, pgtype)
    assert (found.level, found.code) == (Level.WARNING, "values-lost")
    assert "public.t.c1 (" in found.message
    assert lost in found.message
    assert found.hint.startswith(f"These settings lose fewer: {cure}" if cure else "With debezium.unrepresentable")


def test_what_the_cure_holds_is_not_named() -> None:
    assert finding(Modes(unknown_types=True), MULTIRANGE, ENDED) is None
    assert finding(Modes(time="connect"), TIMESTAMP, TIME, typmods=(3, 0)) is None


def test_many_columns_are_counted() -> None:
    found = finding(Modes(), *[NUMERIC] * (COLUMNS_SHOWN + 2))
    assert "of 22 columns" in found.message
    assert ", and 2 more" in found.message


def test_the_header_that_keeps_the_text_is_named_until_it_is_set() -> None:
    assert "With debezium.unrepresentable_in_header = true" in finding(Modes(), NUMERIC).hint
    assert "The header __cdcd.unrepresentable has the text" in finding(Modes(keeps_lost=True), NUMERIC).hint
