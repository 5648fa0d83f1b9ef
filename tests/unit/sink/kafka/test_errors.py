import pytest
from confluent_kafka import KafkaError

from cdcd.sink.kafka.errors import refuses_credentials, refuses_for_good, to_cdcd_error

HANDSHAKE = "sasl_plaintext://k:9092/bootstrap: SASL PLAIN mechanism handshake failed: Local: {} (n/a) (after 3ms)"


def test_a_row_that_is_too_large_for_its_topic_may_be_published_or_parked() -> None:
    failure = to_cdcd_error(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "writing records", "k:9092")
    assert "max.message.bytes" in failure.hint
    assert 'sink.on_unpublishable = "park"' in failure.hint


def test_a_command_that_has_ended_does_not_say_that_it_tries_again() -> None:
    failure = to_cdcd_error(KafkaError(KafkaError._TRANSPORT), "reading topics", "k:9092")
    assert failure.hint.startswith("Look at the brokers and at sink.bootstrap_servers")


@pytest.mark.parametrize("how", ["Broker transport failure", "Timed out"])
def test_a_broker_that_goes_away_in_the_handshake_has_refused_nobody(how: str) -> None:
    cut = KafkaError(KafkaError._AUTHENTICATION, HANDSHAKE.format(how))
    assert not refuses_credentials(cut)
    assert not refuses_for_good(cut)
    wrong = KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: Authentication failed (after 3ms)")
    assert refuses_credentials(wrong)
    assert refuses_for_good(wrong)
