"""A token is made before a client needs it, and shared by clients that want one at the same time; a failure is told."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from cdcd.errors import KafkaUnavailable, SettingsError
from cdcd.made_secret import NotMadeError
from cdcd.sink.kafka.client_config import (
    KafkaConnection,
    check_properties,
    client_config,
    idempotent_producer_config,
    with_token_function,
)
from cdcd.sink.kafka.token_endpoint import no_answer
from cdcd.sink.kafka.token_function import TokenFunction

MODULE = """
lifetime_s, failure, calls, more = 900.0, None, [], ()
now_s = 0.0
def make(config):
    calls.append(config)
    if failure is not None:
        raise failure
    return (f"token{len(calls)}", now_s + lifetime_s, *more)
"""


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module with the function; its `now_s` is the time."""
    (tmp_path / "tokens.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tokens", raising=False)
    return __import__("tokens")


def made(tokens: Any) -> TokenFunction:
    return TokenFunction("tokens:make", "localhost:9092", clock=lambda: float(tokens.now_s))


def test_clients_that_want_a_token_at_the_same_time_share_one(tokens: Any) -> None:
    function = made(tokens)
    assert function("region=eu") == ("token1", 900.0)
    tokens.now_s = 9.9
    assert function("region=eu") == ("token1", 900.0)
    tokens.now_s = 10.0
    assert function("region=eu") == ("token2", 910.0)
    assert tokens.calls == ["region=eu", "region=eu"]


def test_a_token_is_shared_for_no_longer_than_half_of_its_life(tokens: Any) -> None:
    function, tokens.lifetime_s = made(tokens), 6.0
    function(None)
    tokens.now_s = 3.0
    assert function(None) == ("token2", 9.0)
    assert tokens.calls == ["", ""]


def test_principal_and_extensions_are_handed_on(tokens: Any) -> None:
    tokens.more = ("cdcd", {"logicalCluster": "lkc-1"})
    assert made(tokens)(None) == ("token1", 900.0, "cdcd", {"logicalCluster": "lkc-1"})


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ("'hunter2'", "did not return a pair"),
        ("('hunter2', 'soon')", "number of seconds"),
        ("('hunter2', 5.0)", "a token that has expired"),
        ("('', 9e9)", "gave nothing"),
        ("(b'hunter2\\xff', 9e9)", "not UTF-8"),
        ("(5, 9e9)", "of the type int"),
    ],
)
def test_what_is_no_token_is_told_without_a_word_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: str, why: str
) -> None:
    (tmp_path / "tokens.py").write_text(f"def make(_): return {result}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tokens", raising=False)
    function = TokenFunction("tokens:make", "localhost:9092", clock=lambda: 5.0)
    with pytest.raises(NotMadeError, match=why) as caught:
        function(None)
    assert "hunter2" not in str(caught.value)


def test_a_failure_is_logged_once_and_so_is_its_end(tokens: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cdcd")
    function, tokens.failure = made(tokens), OSError("the vault is away")
    for _ in range(3):
        with pytest.raises(NotMadeError):
            function(None)
    tokens.failure = None
    function(None)
    assert [record.getMessage() for record in caplog.records] == [
        'sink.token_function = "tokens:make" made no token: it raised OSError: the vault is away',
        'sink.token_function = "tokens:make" makes tokens again',
    ]


def test_without_a_token_no_client_is_made_and_the_error_says_why(tokens: Any) -> None:
    function, tokens.failure = made(tokens), OSError("the vault is away")
    properties = with_token_function({}, function)
    for make in (
        lambda: client_config("localhost:9092", "cdcd", properties),
        lambda: idempotent_producer_config(KafkaConnection("localhost:9092", "cdcd", properties)),
    ):
        with pytest.raises(KafkaUnavailable, match="made no token: it raised OSError: the vault is away"):
            make()
    assert "the vault is away" in no_answer(properties, "describing topics", "localhost:9092", None).message
    tokens.failure = None
    assert client_config("localhost:9092", "cdcd", properties)["oauth_cb"] is function
    assert "the vault" not in no_answer(properties, "describing topics", "localhost:9092", None).message


def test_the_mechanism_follows_and_the_protocol_is_encrypted_unless_the_user_says_otherwise(tokens: Any) -> None:
    function = made(tokens)
    config = client_config("localhost:9092", "cdcd", with_token_function({}, function))
    assert (config["sasl.mechanism"], config["security.protocol"]) == ("OAUTHBEARER", "SASL_SSL")
    given = with_token_function({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "OAUTHBEARER"}, function)
    config = client_config("localhost:9092", "cdcd", given)
    assert "sasl.mechanism" not in config
    assert config["security.protocol"] == "SASL_PLAINTEXT"
    assert with_token_function({"client.id": "x"}, None) == {"client.id": "x"}


@pytest.mark.parametrize(
    "properties",
    [
        {"sasl.mechanism": "PLAIN"},
        {"sasl.mechanisms": "SCRAM-SHA-512"},
        {"sasl.oauthbearer.method": "oidc"},
        {"enable.sasl.oauthbearer.unsecure.jwt": True},
    ],
)
def test_a_function_and_another_way_to_log_in_are_a_wrong_setting(tokens: Any, properties: Any) -> None:
    with pytest.raises(SettingsError, match=r"sink\.token_function"):
        check_properties(with_token_function(properties, made(tokens)))


def test_a_function_that_is_not_there_is_a_wrong_setting() -> None:
    properties = with_token_function({}, TokenFunction("nowhere:make", "localhost:9092"))
    with pytest.raises(SettingsError, match="nowhere:make, which cannot be imported"):
        client_config("localhost:9092", "cdcd", properties)
