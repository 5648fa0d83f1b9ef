import logging

import pytest
from confluent_kafka import KafkaException

from cdcd.cli.commands.tail import TailedEvent, _nearest
from cdcd.errors import SettingsError
from cdcd.reading.consumer import committed_consumer
from cdcd.sink.kafka.client_config import LIBRDKAFKA_LOG


def test_a_property_that_librdkafka_does_not_know_is_a_wrong_setting() -> None:
    with pytest.raises(SettingsError, match=r"security\.protocl"):
        committed_consumer({"bootstrap.servers": "127.0.0.1:1", "security.protocl": "SSL"})


def test_a_broker_that_does_not_answer_is_said_once_not_at_every_attempt() -> None:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("cdcd").addHandler(handler)
    LIBRDKAFKA_LOG.propagate = True
    consumer = committed_consumer({"bootstrap.servers": "127.0.0.1:1", "reconnect.backoff.max.ms": 100})
    try:
        with pytest.raises(KafkaException):
            consumer.list_topics(timeout=1.0)
    finally:
        consumer.close()
        logging.getLogger("cdcd").removeHandler(handler)
    assert len([line for line in said if line.startswith("FAIL")]) <= 1


@pytest.mark.parametrize(("xid", "shown"), [(0, "(0/10 #3)"), (741, "(0/10 #3 xid 741)")])
def test_a_row_of_a_snapshot_has_no_transaction(xid: int, shown: str) -> None:
    value = {"op": "r", "source": {"commit_lsn": 16, "seq": 3, "xid": xid}, "after": {"id": 1}}
    assert shown in TailedEvent("t", 0, 0, 0, {"id": 1}, value).as_text()


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("public.*", "Did you mean cdcd.public.*?"),
        ("public.orders", "Did you mean cdcd.public.orders?"),
        ("public.ordres", "Did you mean cdcd.public.orders?"),
        ("cdcd.public.ordres", "Did you mean cdcd.public.orders?"),
        ("elsewher", "Did you mean elsewhere?"),
        ("shipping.*", "cdcd makes a table's topic with its first event"),
    ],
)
def test_a_topic_that_is_not_there_has_a_neighbour_rather_of_our_own(wanted: str, hint: str) -> None:
    there = ["public.order", "cdcd.public.orders", "cdcd.progress", "elsewhere"]
    assert _nearest(wanted, "cdcd", there) == hint
