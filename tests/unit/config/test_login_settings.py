"""What makes a password or a token is named by one setting, and no output shows more than who makes it."""

from __future__ import annotations

from typing import Any

import pytest

from cdcd.config.reference import MASK, effective
from cdcd.errors import SettingsError

COMMAND = 'password_command = ["vault", "read", "-field=hunter2"]\n'


def source(lines: str, dsn: str = "host=db user=cdcd") -> str:
    return f'[source]\ndsn = "{dsn}"\n{lines}[sink]\nbootstrap_servers = "localhost:9092"\n'


def test_the_words_of_a_command_are_not_shown_but_its_program_is(load_text: Any) -> None:
    loaded = load_text(source(COMMAND + 'primary_dsn = "host=primary"\n') + 'token_function = "aws-msk-iam"\n')
    shown = {key: value for key, value, _ in effective(loaded)}
    assert shown["source.password_command"] == ["vault", MASK, MASK]
    assert shown["sink.token_function"] == "aws-msk-iam"
    assert "hunter2" not in repr(loaded)
    settings = loaded.settings.source
    assert settings.login.maker is settings.primary_login.maker is not None
    assert settings.login is settings.login


def test_a_command_is_a_list_in_json_in_the_environment(load_text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDCD_SOURCE__PASSWORD_COMMAND", '["gcloud", "sql"]')
    assert load_text(source("")).settings.source.password_command == ("gcloud", "sql")
    monkeypatch.setenv("CDCD_SOURCE__PASSWORD_COMMAND", "gcloud sql")
    with pytest.raises(SettingsError, match=r"source\.password_command is not JSON"):
        load_text(source(""))


@pytest.mark.parametrize(
    ("lines", "dsn"),
    [
        (COMMAND + 'password_function = "aws-rds-iam"\n', "host=db"),
        (COMMAND, "host=db password=hunter2"),
        ('password_function = "logins:make"\n', "postgresql://cdcd:hunter2@db/shop"),
    ],
)
def test_two_passwords_are_a_wrong_setting(load_text: Any, lines: str, dsn: str) -> None:
    with pytest.raises(SettingsError, match="exclude each other") as caught:
        load_text(source(lines, dsn))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["aws-msk-iam", "logins", "logins:", ":make", "logins:make()", "os.system('x')", ""])
def test_what_names_no_function_is_a_wrong_setting(load_text: Any, name: str) -> None:
    with pytest.raises(SettingsError, match="must be written as module:function, or be aws-rds-iam"):
        load_text(source(f'password_function = "{name}"\n'))


def test_a_function_of_a_token_beside_another_mechanism_is_a_wrong_setting(load_text: Any) -> None:
    text = source("") + 'token_function = "tokens:make"\nlibrdkafka = {"sasl.mechanism" = "PLAIN"}\n'
    with pytest.raises(SettingsError, match=r"sink\.token_function needs another sasl\.mechanism"):
        load_text(text)
