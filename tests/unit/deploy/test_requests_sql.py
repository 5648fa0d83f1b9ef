"""The table of requests is the same, whoever makes it."""

from __future__ import annotations

from pathlib import Path

from cdcd.source.requests_table import CREATE_SCHEMA, CREATE_TABLE

FILE = Path(__file__).parents[3] / "deploy" / "postgres" / "requests.sql"


def test_the_file_for_people_makes_the_table_that_the_daemon_makes() -> None:
    text = " ".join(FILE.read_text().split())
    assert f"{CREATE_SCHEMA}; {' '.join(CREATE_TABLE.split())};" in text
