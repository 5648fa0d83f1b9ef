from __future__ import annotations

import pytest

from cdcd.config.transport_security import insecure_connections
from cdcd.source.session import dsns_by_setting

LOCAL = "127.0.0.1:9092,localhost:9093"


def said(
    dsn: str = "", bootstrap: str = LOCAL, url: str | None = None, primary: str | None = None, **properties: object
) -> list[str]:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return [what for what, hint in insecure_connections(dsns_by_setting(dsn, primary), bootstrap, named, url) if hint]


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGSSLMODE", "PGHOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "dsn",
    [
        "host=localhost dbname=x",
        "host=/run/postgresql",
        "postgresql://u@127.0.0.1/x",
        "",
        "host=db sslmode=verify-full",
        "postgresql://u@db1,db2/x?sslmode=verify-ca",
        "host=[::1]",
    ],
)
def test_nothing_is_said_of_this_machine_or_of_a_verified_server(dsn: str) -> None:
    assert said(dsn) == []


@pytest.mark.parametrize("mode", ["", "sslmode=require", "sslmode=prefer", "sslmode=disable"])
def test_a_server_elsewhere_that_is_not_verified_is_told(mode: str) -> None:
    [what] = said(f"host=db {mode}")
    assert "not verified" in what


def test_who_asks_for_tls_to_this_machine_wants_it_verified() -> None:
    assert said("host=localhost sslmode=require")


def test_the_primary_of_a_standby_is_verified_like_the_standby() -> None:
    [what] = said("host=localhost", primary="host=db")
    assert "not verified" in what


def test_one_host_elsewhere_is_enough() -> None:
    assert said("host=localhost,db")


def test_brokers_elsewhere_need_tls_and_it_must_be_verified() -> None:
    assert said(bootstrap="kafka:9092") == ["Kafka is reached without TLS"]
    assert said(bootstrap="kafka:9092", security_protocol="SASL_PLAINTEXT") == ["Kafka is reached without TLS"]
    assert said(bootstrap="kafka:9092", security_protocol="SASL_SSL") == []
    assert said(security_protocol="SSL", enable_ssl_certificate_verification=False)
    assert said(security_protocol="ssl", ssl_endpoint_identification_algorithm="none")


def test_a_registry_elsewhere_needs_tls() -> None:
    assert said(url="http://registry:8081")
    assert said(url="https://registry") == said(url="http://localhost:8081") == []


def test_no_secret_is_repeated() -> None:
    told = list(
        insecure_connections(
            dsns_by_setting("host=db password=hush sslmode=require", None),
            "k:1",
            {"sasl.password": "hush"},
            "http://u:hush@r",
        )
    )
    assert len(told) == 3
    assert "hush" not in str(told)
