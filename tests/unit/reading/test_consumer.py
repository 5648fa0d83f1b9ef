import logging

import pytest

from cdcd.errors import KafkaUnavailable, SettingsError
from cdcd.reading.consumer import TopicReader
from cdcd.sink.kafka.client_config import LIBRDKAFKA_LOG


def test_a_property_that_librdkafka_does_not_know_is_a_wrong_setting() -> None:
    with pytest.raises(SettingsError, match=r"security\.protocl"):
        TopicReader({"bootstrap.servers": "127.0.0.1:1", "security.protocl": "SSL"})


def test_a_broker_that_does_not_answer_is_said_once_not_at_every_attempt() -> None:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("cdcd").addHandler(handler)
    LIBRDKAFKA_LOG.propagate = True
    try:
        with (
            TopicReader({"bootstrap.servers": "127.0.0.1:1", "reconnect.backoff.max.ms": 100}, timeout_s=1.0) as reader,
            pytest.raises(KafkaUnavailable, match=r"Kafka \(127\.0\.0\.1:1\) failed reading topics"),
        ):
            reader.topics()
    finally:
        logging.getLogger("cdcd").removeHandler(handler)
    assert len([line for line in said if line.startswith("FAIL")]) <= 1
