"""An error of TLS says which certificate is out of date, and since when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from confluent_kafka import KafkaError

from cdcd.certificates import Validity, of_file, validity
from cdcd.errors import CdcdError
from cdcd.sink.kafka.errors import to_cdcd_error
from cdcd.sink.kafka.tls_files import OTHERS_VALID, naming_files
from cdcd.source.server_errors import connection_refused
from cdcd.source.tls_files import dating

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
EXPIRED, VALID, EARLY = (NOW - 9 * DAY, NOW - DAY), (NOW - DAY, NOW + DAY), (NOW + DAY, NOW + 9 * DAY)
LONG = (datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(2050, 1, 1, tzinfo=UTC))
"""From 2050 on the time has another form."""


def pem(period: tuple[datetime, datetime]) -> bytes:
    begin, end = period
    return trustme.CA().issue_cert("db.example.org", not_before=begin, not_after=end).cert_chain_pems[0].bytes()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def write(name: str, *periods: tuple[datetime, datetime]) -> str:
        (tmp_path / name).write_bytes(b"a comment\n" + b"".join(map(pem, periods)))
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize("period", [EXPIRED, VALID, EARLY, LONG])
def test_the_period_of_a_certificate_is_read_as_it_was_written(
    write: Callable[..., str], period: tuple[datetime, datetime]
) -> None:
    assert of_file(write("c", period), is_ca=False) == Validity(*period)


def test_of_a_client_the_first_certificate_counts_and_of_cas_the_one_that_lasts_longest(
    write: Callable[..., str],
) -> None:
    path = write("c", EXPIRED, EARLY, VALID)
    assert of_file(path, is_ca=False) == Validity(*EXPIRED)
    assert of_file(path, is_ca=True) == Validity(*EARLY)


def test_a_file_that_holds_no_certificate_has_no_dates(tmp_path: Path, write: Callable[..., str]) -> None:
    half = tmp_path / "half"
    half.write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    for path in (str(half), str(tmp_path), str(tmp_path / "none"), write("empty"), "/x\0y"):
        assert of_file(path, is_ca=True) is None


def test_bytes_that_are_no_certificate_are_a_value_error_and_nothing_else() -> None:
    from ssl import PEM_cert_to_DER_cert

    whole = PEM_cert_to_DER_cert(pem(VALID).decode())
    assert validity(whole) == Validity(*VALID)
    for at in range(120):
        for other in (0, 0x1F, 0x30, 0x84, 0xFF):
            try:
                validity(whole[:at] + bytes([other]) + whole[at + 1 :])
                validity(whole[:at])
            except ValueError:
                pass


def of_kafka(client: str, ca: str) -> CdcdError:
    error = to_cdcd_error(KafkaError(KafkaError._SSL, "handshake failed"), "asking", "k:9093")
    return naming_files(error, {"ssl.certificate.location": client, "ssl.ca.location": ca})


def of_postgresql(client: str, ca: str) -> CdcdError:
    refused = connection_refused("SSL error: tlsv13 alert certificate expired", "cdcd")
    return dating(refused, {"sslcert": client, "sslrootcert": ca})


@pytest.mark.parametrize("make", [of_kafka, of_postgresql])
@pytest.mark.parametrize(
    ("period", "said"),
    [
        (EXPIRED, f"expired on {EXPIRED[1]:%Y-%m-%d %H:%M} UTC"),
        (EARLY, f"is not valid before {EARLY[0]:%Y-%m-%d %H:%M} UTC"),
    ],
)
def test_the_message_names_the_file_that_is_out_of_date_and_the_date(
    write: Callable[..., str],
    make: Callable[[str, str], CdcdError],
    period: tuple[datetime, datetime],
    said: str,
) -> None:
    client, ca = write("client.pem", period), write("ca.pem", VALID)
    error = make(client, ca)
    assert error.message.endswith(f" = {client} {said}")
    assert f"{ca} (valid from " in error.hint
    assert make(ca, client).message.endswith(f" = {client} {said}"), "a CA as well"


def test_an_error_of_kafka_that_is_named_twice_says_it_once(write: Callable[..., str]) -> None:
    properties = {"ssl.certificate.location": write("client.pem", EXPIRED)}
    error = naming_files(to_cdcd_error(KafkaError(KafkaError._SSL, "no"), "asking", "k:9093"), properties)
    said = str(error)
    assert str(naming_files(error, properties)) == said


def test_if_all_files_are_valid_the_servers_own_certificate_is_named_as_what_may_be_wrong(
    write: Callable[..., str],
) -> None:
    client, ca = write("client.pem", VALID), write("ca.pem", VALID)
    error = of_kafka(client, ca)
    assert error.hint.endswith(OTHERS_VALID)
    assert "expired on" not in error.message
    refused = dating(connection_refused("SSL error: certificate verify failed", "cdcd"), {"sslrootcert": ca})
    assert "The server's own certificate may have expired" in refused.hint


def test_a_wrong_host_name_is_no_matter_of_dates(write: Callable[..., str]) -> None:
    text = 'server certificate for "db.example.org" does not match host name "10.0.0.1"'
    error = dating(connection_refused(text, "cdcd"), {"sslrootcert": write("ca.pem", VALID)})
    assert "db.example.org" in error.message
    assert "10.0.0.1" in error.message
    assert "may have expired" not in error.hint
