"""The page about sizing: its question to the server has an answer on each version."""

from __future__ import annotations

import re

import pytest
from support.fix_postgres import Database
from support.pages import blocks


@pytest.mark.postgres_versions("oldest", "newest")
def test_the_question_after_the_wal_has_an_answer(database: Database) -> None:
    [question] = [block.text for block in blocks("sizing") if block.language == "sql"]
    [(an_hour,)] = database.connect().execute(question.encode()).fetchall()
    assert re.fullmatch(r"\d+ (bytes|kB|MB|GB|TB)", an_hour)
