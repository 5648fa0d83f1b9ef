"""The settings on the page of log-in load as they stand there, and its functions do what they say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cdcd import manual
from cdcd.config.loading import load

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(manual.page("login")) if found == language]


@pytest.mark.parametrize("number", range(len(blocks("toml"))))
def test_a_file_of_settings_is_complete(number: int, tmp_path: Path) -> None:
    path = tmp_path / "cdcd.toml"
    path.write_text(blocks("toml")[number])
    settings = load(str(path)).settings
    has_password = settings.source.login.maker is not None
    has_token = settings.sink.client_properties.get("sasl.mechanism") == "OAUTHBEARER"
    assert has_password != has_token
    assert "sslmode=verify-" in settings.source.dsn or has_token


def test_the_functions_return_what_cdcd_wants(tmp_path: Path) -> None:
    of_password, of_token = blocks("python")
    names: dict[str, Any] = {}
    exec(of_password.replace("/run/passwords", str(tmp_path)), names)
    (tmp_path / "db-5432-cdcd").write_text("hunter2\n")
    assert names["password"]("db", 5432, "cdcd") == "hunter2"
    exec(of_token, names)
    (tmp_path / "kafka").write_text(json.dumps({"token": "abc", "expires_at": 5.0}))
    assert names["token"](f"file={tmp_path}/kafka") == ("abc", 5.0)
