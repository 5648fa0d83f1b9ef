"""Kafka consumers that read what is committed and leave no trace.

Before: the settings' client properties. After: `tail`, `verify` and the schema finder read topics with one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from cdcd.sink.kafka.client_config import LIBRDKAFKA_LOG
from cdcd.sink.kafka.errors import kafka_error, to_cdcd_error

log = logging.getLogger(__name__)

_PASSING: Final = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT})


def committed_consumer(config: Mapping[str, object], **more: object) -> Consumer:
    """A consumer of what is committed that leaves no trace; `more` are further properties.

    Raises SettingsError for properties that librdkafka does not know.
    """
    own = {
        "group.id": "cdcd-tail",  # librdkafka wants one; none is ever joined
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        "fetch.wait.max.ms": 100,
    }
    try:
        return Consumer({**config, **own, **more}, logger=LIBRDKAFKA_LOG)
    except KafkaException as error:
        raise to_cdcd_error(kafka_error(error), "making a consumer", str(config["bootstrap.servers"])) from None


def received(messages: Iterable[Message], bootstrap: str) -> Iterator[Message]:
    """The messages that are no errors. A broker that is away is waited for; anything else raises."""
    for message in messages:
        error = message.error()
        if error is None:
            yield message
        elif error.code() in _PASSING:
            log.warning("Kafka does not answer; trying again", extra={"error": error.str()})
        else:
            raise to_cdcd_error(error, f"reading {message.topic()}", bootstrap)
