"""What a walsender streams is read from its command, as cdcd and others write it."""

from __future__ import annotations

import pytest

from cdcd.source.slot_conflicts import publications, streams_messages

START = 'START_REPLICATION SLOT "s" LOGICAL 0/0 ("proto_version" \'4\', '


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (START + '"publication_names" \'"pub_a"\', "binary" \'true\')', ["pub_a"]),
        (START + 'publication_names \'"One, two","it\'\'s ""odd"""\')', ["One, two", 'it\'s "odd"']),
        (START + "publication_names 'Plain,other')", ["plain", "other"]),
        (START + "\"binary\" 'true')", []),
        ("SELECT 'publication_names ''x'''", []),
        ("<insufficient privilege>", []),
        ("", []),
    ],
)
def test_the_publications_of_a_command(query: str, wanted: list[str]) -> None:
    assert publications(query) == wanted


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (START + "\"messages\" 'true')", True),
        (START + "messages 'on')", True),
        (START + "\"messages\" 'false')", False),
        (START + "\"binary\" 'true')", False),
        (START + "\"publication_names\" '\"messages\" ''true''')", False),
        ("SELECT 'messages ''true'''", False),
        ("SELECT messages 'true'", False),
        ("", False),
    ],
)
def test_whether_a_command_asks_for_messages(query: str, *, wanted: bool) -> None:
    assert streams_messages(query) is wanted
