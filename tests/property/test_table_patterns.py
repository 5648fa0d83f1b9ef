"""One pattern language for tables, whatever their names: a quoted name means one table, and a plain one at least it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdcd.config.settings import SourceSettings
from cdcd.source.identifiers import identifier
from cdcd.source.slot_conflicts import publications
from cdcd.source.start_options import start_options
from cdcd.source.table_selection import (
    CandidateTable,
    TablePattern,
    qualified_name,
    select_candidates,
    select_published,
    split_name,
)

hostile = st.text(st.sampled_from('ab""..[]*?%\\\\\'; \n-!$é\u2028{}~'), min_size=1, max_size=8)
any_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=63)
names = hostile | any_text
tables = st.tuples(names, names)


@given(tables, tables)
def test_a_table_written_as_a_pattern_means_that_table_and_no_other(
    table: tuple[str, str], other: tuple[str, str]
) -> None:
    for pattern in (TablePattern(qualified_name(*table)), TablePattern(identifier(*table))):
        assert pattern.matches(*table)
        assert pattern.is_valid
        assert pattern.names_one_table
        assert pattern.matches(*other) == (table == other)


@given(tables)
def test_a_name_is_read_as_it_was_written(table: tuple[str, str]) -> None:
    assert split_name(qualified_name(*table)) == table


@given(tables)
def test_a_name_without_quotes_matches_itself(table: tuple[str, str]) -> None:
    name = ".".join(table)
    if '"' not in name:
        assert TablePattern(name).matches(*table)


@given(st.lists(tables, min_size=1, max_size=6, unique=True), st.data())
def test_settings_and_commands_select_the_same_tables(known: list[tuple[str, str]], data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.sampled_from(known), min_size=1, unique=True))
    words = [qualified_name(*table) for table in wanted]
    settings = SourceSettings(dsn="", tables=tuple(words))
    candidates = [CandidateTable(oid, *table, None, True) for oid, table in enumerate(known)]
    patterns = [TablePattern.parse(text) for text in settings.tables]
    by_settings = [(table.schema, table.name) for table in select_candidates(patterns, candidates)]
    assert by_settings == select_published(words, known, "p") == [table for table in known if table in wanted]


@given(st.text(st.sampled_from('a.*?[]!"-\\\\'), max_size=12), tables)
def test_any_text_is_a_pattern_or_is_refused_and_never_another_error(text: str, table: tuple[str, str]) -> None:
    TablePattern(text).matches(*table)
    if TablePattern(text).is_valid:
        assert TablePattern.parse(text).text == text


@given(names)
def test_a_publication_is_read_back_from_the_command_that_names_it(publication: str) -> None:
    options = start_options(
        publication, 180_000, binary=True, messages=True, streaming="off", two_phase=False, origin="any"
    )
    value = options["publication_names"].replace("'", "''")
    assert publications(f"START_REPLICATION SLOT s LOGICAL 0/0 (\"publication_names\" '{value}')") == [publication]
