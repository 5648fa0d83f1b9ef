"""Kafka takes tokens that are good for seconds: they are renewed in time, and a renewal that fails is waited for.

The broker validates each token with the key that the server publishes, and ends a connection whose token has expired.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import servers
from servers.kafka import FAST_START
from support.daemon import cdcd
from support.fix_postgres import Database
from support.stream import StreamFixture, metric
from support.token_server import AUDIENCE, TokenServer

pytestmark = pytest.mark.whole

_numbers = itertools.count(1)

LIFETIME_S = 16  # librdkafka renews a token after 80% of it and up to a second, and uses it after 90%
SECRET = "verysecret"

FUNCTION = f"""
import base64, json, time, urllib.request

def token(config):
    settings = dict(pair.split("=", 1) for pair in config.split(","))
    login = base64.b64encode(b"function:{SECRET}").decode()
    request = urllib.request.Request(
        settings["url"], b"grant_type=client_credentials", headers={{"Authorization": "Basic " + login}}
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        made = json.load(answer)
    return made["access_token"], time.time() + made["expires_in"]
"""


@pytest.fixture(scope="module")
def tokens() -> Iterator[TokenServer]:
    """Start the server of tokens."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with pytest.MonkeyPatch.context() as patch, TokenServer({"cdcd": SECRET, "function": SECRET}, LIFETIME_S) as server:
        patch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")  # it is on loopback
        yield server


@pytest.fixture(scope="module")
def kafka(tokens: TokenServer) -> Iterator[servers.Kafka]:
    """Start a broker that validates tokens, and ends connections whose token has expired."""
    package = "org.apache.kafka.common.security.oauthbearer"
    listener = "listener.name.oauth."
    settings = {
        f"{listener}sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{listener}oauthbearer.sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
        f"{listener}oauthbearer.sasl.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
        f"{listener}oauthbearer.connections.max.reauth.ms": "60000",
        "sasl.oauthbearer.jwks.endpoint.url": f"{tokens.issuer}/jwks",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": tokens.issuer,
        "sasl.oauthbearer.clock.skew.seconds": "0",
    }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.issuer}/jwks"
    with servers.Kafka(settings=settings, listeners={"OAUTH": "SASL_PLAINTEXT"}, jvm=(*FAST_START, allowed)) as server:
        if not server.is_kraft:
            pytest.skip("this Kafka cannot validate signed tokens")
        yield server


@pytest.fixture
def streams(database: Database, kafka: servers.Kafka, tmp_path: Path) -> Iterator[list[StreamFixture]]:
    """Two streams from one database."""
    numbers = next(_numbers), next(_numbers)
    folders = [tmp_path / str(number) for number in numbers]
    for folder in folders:
        folder.mkdir()
    with ExitStack() as stack:
        made = [
            stack.enter_context(StreamFixture(database.dsn, kafka.bootstrap, f"tokens-{number}", folder))
            for number, folder in zip(numbers, folders, strict=True)
        ]
        made[0].sql("CREATE TABLE t (id int PRIMARY KEY)")
        yield made


def oidc(tokens: TokenServer) -> dict[str, Any]:
    return {
        "librdkafka": {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "cdcd",
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.token.endpoint.url": tokens.url,
        }
    }


def of_function(tokens: TokenServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (folder / "vault.py").write_text(FUNCTION)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.oauthbearer.config": f"url={tokens.url}"}
    return {"token_function": "vault:token", "librdkafka": properties}


def test_tokens_are_renewed_before_the_broker_ends_a_connection_and_a_failure_is_named_and_waited_for(
    streams: list[StreamFixture],
    kafka: servers.Kafka,
    tokens: TokenServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_a_function = of_function(tokens, tmp_path, monkeypatch)
    by_endpoint, by_function = daemons = [
        stream.daemon(sink={"bootstrap_servers": kafka.address("OAUTH"), **login})
        for stream, login in zip(streams, (oidc(tokens), of_a_function), strict=True)
    ]
    of_endpoint = f"the token endpoint {tokens.url} answers 503"
    of_function_ = 'sink.token_function = "vault:token" made no token: it raised HTTPError: HTTP Error 503'
    # There is no token at the start.
    tokens.is_out_of_order = True
    for daemon in daemons:
        daemon.start()
    by_function.wait_for_log(f"starting again in 0.2 s: {of_function_}")
    assert of_function_ in cdcd(by_function, "check", code=1)
    by_endpoint.wait_for_log(of_endpoint, 60)
    tokens.is_out_of_order = False
    for daemon in daemons:
        daemon.wait_for_log("going on", 60)
    # The streams go on for longer than a token is good.
    given, number = tokens.given, 0
    end = time.monotonic() + 1.2 * LIFETIME_S
    while time.monotonic() < end:
        number += 1
        streams[0].sql(f"INSERT INTO t VALUES ({number})")
        for daemon in daemons:
            daemon.wait_until_confirmed(timeout_s=LIFETIME_S)
    assert tokens.given >= given + 2
    for daemon in daemons:
        log = daemon.log_since_start().partition("going on")[2]
        for word in ("starting again", "lost Kafka", "going on"):
            assert word not in log
    # No token can be made for so long that the last one expires.
    known = [len(daemon.log.read_text()) for daemon in daemons]
    tokens.is_out_of_order = True
    for daemon, seen, why in zip(daemons, known, (of_endpoint, of_function_), strict=True):
        told = f"lost Kafka: {why}"
        daemon.until(lambda d=daemon, s=seen, t=told: t in d.log.read_text()[s:], told, 60)  # type: ignore[misc]
        assert metric(daemon, "cdcd_unreachable_seconds") > 0
    streams[0].sql("INSERT INTO t SELECT generate_series(200000, 200100)")
    tokens.is_out_of_order = False
    for stream, daemon in zip(streams, daemons, strict=True):
        daemon.wait_until_confirmed(timeout_s=60)
        assert daemon.stop() == 0
        assert SECRET not in daemon.log.read_text()
        stream.check(("public", "t"))


def test_a_client_that_the_token_server_does_not_know_is_told_so(
    streams: list[StreamFixture], kafka: servers.Kafka, tokens: TokenServer
) -> None:
    settings = oidc(tokens)
    settings["librdkafka"]["sasl.oauthbearer.client.secret"] = "guessed"
    daemon = streams[0].daemon(sink={"bootstrap_servers": kafka.address("OAUTH"), **settings})
    said = cdcd(daemon, "check", code=1)
    assert "token" in said
    assert "guessed" not in said
