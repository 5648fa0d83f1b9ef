"""The finder keeps the schemas that it has found, within a bound."""

from __future__ import annotations

from cdcd.reading.schema_finder import KEPT_CHARACTERS_MAX, SchemaFinder


def test_the_oldest_texts_go_when_there_are_too_many() -> None:
    finder = SchemaFinder({}, "p.schemas", None)
    text = "x" * (KEPT_CHARACTERS_MAX // 4)
    for identifier in range(6):
        finder._keep(identifier, text)
        assert finder.find(identifier) is text
    assert list(finder._texts) == [2, 3, 4, 5]
    finder._keep(9, "x" * (KEPT_CHARACTERS_MAX + 1))
    assert list(finder._texts) == [9], "the wanted one stays, whatever its size"
