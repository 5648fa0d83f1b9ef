import pytest
from confluent_kafka import KafkaError

from cdcd.errors import AccessDenied, KafkaUnavailable, SettingsError, Unpublishable
from cdcd.sink.kafka.errors import refuses_credentials, refuses_for_good, to_cdcd_error, unanswered
from cdcd.sink.kafka.tls_files import naming_files

HANDSHAKE = "sasl_plaintext://k:9092/bootstrap: SASL PLAIN mechanism handshake failed: Local: {} (n/a) (after 3ms)"


def test_a_row_that_is_too_large_for_its_topic_is_told_what_to_raise() -> None:
    failure = to_cdcd_error(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "writing records", "k:9092")
    assert "max.message.bytes" in failure.hint


def test_a_command_that_has_ended_does_not_say_that_it_tries_again() -> None:
    failure = to_cdcd_error(KafkaError(KafkaError._TRANSPORT), "reading topics", "k:9092")
    assert failure.hint.startswith("Look at the brokers and at sink.bootstrap_servers")


def test_a_refused_log_in_is_said_whole_and_without_the_clients_own_times() -> None:
    said = (
        "sasl_ssl://kafka.example.com:9093/bootstrap: SASL authentication error: Authentication failed during "
        "authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
    )
    for rest in ("", ", 4 identical error(s) suppressed"):
        error = KafkaError(KafkaError._AUTHENTICATION, f"{said} (after 246ms in state AUTH_REQ{rest})")
        failed = to_cdcd_error(error, "describing the cluster", "k:9092")
        assert failed.message == f"Kafka refused describing the cluster: {said} (_AUTHENTICATION)"


@pytest.mark.parametrize("how", ["Broker transport failure", "Timed out"])
def test_a_broker_that_goes_away_in_the_handshake_has_refused_nobody(how: str) -> None:
    cut = KafkaError(KafkaError._AUTHENTICATION, HANDSHAKE.format(how))
    assert not refuses_credentials(cut)
    assert not refuses_for_good(cut)
    wrong = KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: Authentication failed (after 3ms)")
    assert refuses_credentials(wrong)
    assert refuses_for_good(wrong)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (KafkaError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token: OAuth callback raised exception"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, "OAuth token not set within 10 seconds timeout"),
    ],
)
def test_without_a_token_the_brokers_have_refused_nobody(code: int, text: str) -> None:
    lacks = KafkaError(code, text)
    assert type(to_cdcd_error(lacks, "making an admin client", "k:9092")) is KafkaUnavailable
    assert not refuses_credentials(lacks)
    assert not refuses_for_good(lacks)


def test_an_answer_that_the_client_cannot_read_names_the_oldest_kafka() -> None:
    failed = to_cdcd_error(KafkaError(KafkaError._BAD_MSG), "describing topics", "b:1")
    assert isinstance(failed, KafkaUnavailable)
    assert "Kafka 2.8 or later" in failed.hint


@pytest.mark.parametrize(
    "text",
    [
        "Failed to create producer: ssl.key.location failed: error:05800074:x509 certificate routines::key mismatch",
        "Failed to open ssl.keystore.location: /c.p12: No such file or directory",
        "Failed to parse PKCS#12 file: /c.p12: error:11800071",
    ],
)
def test_a_file_that_cannot_be_used_may_be_half_written(text: str) -> None:
    failed = to_cdcd_error(KafkaError(KafkaError._INVALID_ARG, text), "making a producer", "k:9092")
    assert type(failed) is AccessDenied
    named = naming_files(failed, {"ssl.key.location": "/tls.key", "ssl.key.password": "x", "client.id": "c"})
    assert named.hint.endswith("The files: ssl.key.location = /tls.key.")
    assert str(naming_files(named, {"ssl.key.location": "/tls.key"})).count("/tls.key") == 1


def test_a_property_that_lacks_another_one_is_a_wrong_setting() -> None:
    text = "Failed to create producer: `ssl.keystore.password` is mandatory when `ssl.keystore.location` is set"
    failed = to_cdcd_error(KafkaError(KafkaError._INVALID_ARG, text), "making a producer", "k:9092")
    assert type(failed) is SettingsError


def test_a_producer_that_kafka_has_forgotten_is_no_fault_of_the_brokers_and_passes() -> None:
    failed = to_cdcd_error(KafkaError(KafkaError.INVALID_PRODUCER_ID_MAPPING), "writing to p.t", "b:1")
    assert isinstance(failed, KafkaUnavailable)
    assert "transactional.id.expiration.ms" in failed.hint


def test_a_long_text_of_a_broker_is_cut_and_still_tells_the_topic() -> None:
    text = f"Request Request(processor=2, {'x' * 5_000}): ProduceRequest for p.public.t [0]"
    failed = to_cdcd_error(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, text), "committing", "b:1")
    assert len(failed.message) < 300
    assert "Request Request(processor=2, xxx" in failed.message
    assert "xxx... (MSG_SIZE_TOO_LARGE)" in failed.message
    assert isinstance(failed, Unpublishable)
    assert failed.topic == "p.public.t"
    assert len(str(unanswered("reading", "b:1", KafkaError(KafkaError._TRANSPORT, text)))) < 500
