"""Kafka's error codes, each in one class: does the failure pass, whom does it concern, and what can a person do?

Before: `errors` has the code of a failed operation.
After: `errors` makes the error of that class; the supervisor acts on it.
Source: librdkafka `rdkafka.h` (local codes, below 0) and the Kafka protocol guide, "Error Codes" (the broker's).

A code that is not here passes: a broker is away, has no leader, or starts. So does one that a later Kafka adds, because
to stop for it would be worse than to try again. `test_refusals` names every code of Kafka, those that pass included.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from confluent_kafka import KafkaError

from cdcd.error_codes import Code
from cdcd.sink.acls import IDEMPOTENT_WRITE, of_topics, of_transactions


class Refusal(Enum):
    """Whom a failure concerns, and whether it passes."""

    PASSES = auto()
    """The daemon tries again: a broker is away, starts, is slow, has a new leader, or has too few replicas in sync."""
    OF_TOPIC = auto()
    """One topic refuses records; other topics may take theirs."""
    OF_ACCESS = auto()
    """The brokers refuse the user, the credentials or the certificate. It may pass if it has worked before: a file is
    rotated, an ACL is on its way to all brokers."""
    OF_REQUEST = auto()
    """The brokers refuse what the daemon asks for, and would refuse it every time."""
    OF_SETTING = auto()
    """librdkafka refuses a setting."""
    FENCED = auto()
    """Another producer has the transactional.id."""


class Advice(NamedTuple):
    """What a person can do about a refusal, and cdcd's code for it."""

    hint: str
    code: Code


CREDENTIALS: Final = Advice(
    "Check sasl.* and security.protocol under sink.librdkafka, and the user on the broker.", "kafka-login-refused"
)
TLS: Final = Advice(
    "Check ssl.* and security.protocol under sink.librdkafka: the broker's certificate, CA and host name, and the "
    "client's certificate, which may have expired.",
    "kafka-tls-failed",
)
SIZE: Final = Advice(
    "Raise max.message.bytes of the topic above the largest row. A topic without a limit of its own has that of the "
    "brokers, message.max.bytes. Readers may need a larger fetch size as well.",
    "row-too-large",
)
CLOCK: Final = Advice(
    "Compare the clocks of this machine and of the brokers; the topic's message.timestamp.before.max.ms and "
    "message.timestamp.after.max.ms say how far they may differ.",
    "clocks-differ",
)
_INVALID: Final = Advice(
    "Topics of tables without a key cannot be compacted: take cleanup.policy=compact off the topic, or give the table "
    "a primary key or a replica identity. A compacted topic takes truncate events if sink.tombstones = true. "
    "If the table has a key: " + CLOCK.hint[0].lower() + CLOCK.hint[1:],
    "record-refused",
)
_COMPRESSION: Final = Advice(
    "Set compression.type under sink.librdkafka to one that the brokers take.", "kafka-config-invalid"
)
_VERSION: Final = Advice("Exactly once needs brokers that have transactions: Kafka 2.8 or later.", "kafka-too-old")
UNREADABLE: Final = Advice(
    "Use brokers of Kafka 2.8 or later: Kafka's client cannot read the answers of older ones about many topics.",
    "kafka-too-old",
)
"""librdkafka 2.16 sizes its memory too small for Metadata of version 9, the newest that Kafka 2.4 to 2.7 have."""

_OF_TOPIC: Final[Mapping[int, Advice]] = {
    KafkaError.MSG_SIZE_TOO_LARGE: SIZE,
    KafkaError.RECORD_LIST_TOO_LARGE: SIZE,
    KafkaError.INVALID_MSG_SIZE: SIZE,
    KafkaError.INVALID_RECORD: _INVALID,
    KafkaError._INVALID_DIFFERENT_RECORD: _INVALID,
}

_OF_ACCESS: Final[Mapping[int, Advice]] = {
    KafkaError._AUTHENTICATION: CREDENTIALS,
    KafkaError.SASL_AUTHENTICATION_FAILED: CREDENTIALS,
    KafkaError.UNSUPPORTED_SASL_MECHANISM: CREDENTIALS,
    KafkaError.ILLEGAL_SASL_STATE: CREDENTIALS,
    KafkaError.DELEGATION_TOKEN_AUTH_DISABLED: CREDENTIALS,
    KafkaError.DELEGATION_TOKEN_NOT_FOUND: CREDENTIALS,
    KafkaError.DELEGATION_TOKEN_OWNER_MISMATCH: CREDENTIALS,
    KafkaError.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: CREDENTIALS,
    KafkaError.DELEGATION_TOKEN_AUTHORIZATION_FAILED: CREDENTIALS,
    KafkaError.DELEGATION_TOKEN_EXPIRED: CREDENTIALS,
    KafkaError.INVALID_PRINCIPAL_TYPE: CREDENTIALS,
    KafkaError.UNACCEPTABLE_CREDENTIAL: CREDENTIALS,
    KafkaError.PRINCIPAL_DESERIALIZATION_FAILURE: CREDENTIALS,
    KafkaError._SSL: TLS,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Advice(
        "Let the user make, write, describe and read the topics that start with sink.prefix: "
        f"{of_topics('PREFIX').command()}",
        "kafka-acl-missing",
    ),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Advice(
        "Let the user write and describe the transactional.ids of sink.prefix and source.slot: "
        f"{'; '.join(acl.command() for acl in of_transactions('PREFIX', 'SLOT'))}",
        "kafka-acl-missing",
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Advice(
        f"Let the user write with an idempotent producer: {IDEMPOTENT_WRITE.command()}",
        "kafka-acl-missing",
    ),
}

_OF_REQUEST: Final[Mapping[int, Advice]] = {
    KafkaError.INVALID_TIMESTAMP: CLOCK,
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: _COMPRESSION,
    KafkaError._BAD_COMPRESSION: _COMPRESSION,
    KafkaError.INVALID_TRANSACTION_TIMEOUT: Advice(
        "Set transaction.timeout.ms under sink.librdkafka to no more than the brokers' transaction.max.timeout.ms, or "
        "let the user describe the cluster's configs, so that cdcd sees the limit by itself.",
        "kafka-config-invalid",
    ),
    KafkaError.INVALID_REQUIRED_ACKS: _VERSION,
    KafkaError.UNSUPPORTED_VERSION: _VERSION,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: _VERSION,
    KafkaError._UNSUPPORTED_FEATURE: _VERSION,
    KafkaError.INVALID_REPLICATION_FACTOR: Advice(
        "Set sink.replication_factor to what the brokers allow: at most the number of brokers, or -1 for their "
        "default.",
        "topic-settings-refused",
    ),
    KafkaError.INVALID_PARTITIONS: Advice("Set sink.partitions to 1 or more.", "topic-settings-refused"),
    KafkaError.INVALID_CONFIG: Advice("Correct sink.topic_config.", "topic-settings-refused"),
    KafkaError.POLICY_VIOLATION: Advice(
        "The brokers have a policy (create.topic.policy.class.name): follow it in [sink].", "topic-settings-refused"
    ),
    KafkaError.TOPIC_EXCEPTION: Advice(
        "Kafka takes two names that differ only in '.' and '_' as one: choose another sink.prefix, or a sink.topic "
        "that keeps them apart, such as {prefix}.{schema}-{table}.",
        "topics-collide",
    ),
}

_OF_SETTING: Final = frozenset({KafkaError._INVALID_ARG, KafkaError._NOT_CONFIGURED, KafkaError._UNKNOWN_PROTOCOL})

_FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})


def refusal(code: int) -> Refusal:
    """Return the class of an error code."""
    if code in _FENCED:
        return Refusal.FENCED
    if code in _OF_SETTING:
        return Refusal.OF_SETTING
    for found, codes in (
        (Refusal.OF_TOPIC, _OF_TOPIC), (Refusal.OF_ACCESS, _OF_ACCESS), (Refusal.OF_REQUEST, _OF_REQUEST),
    ):  # fmt: skip
        if code in codes:
            return found
    return Refusal.PASSES


def advice(code: int) -> Advice | None:
    """Return what a person can do about an error code; None if it passes, or if only its text tells."""
    return _OF_TOPIC.get(code) or _OF_ACCESS.get(code) or _OF_REQUEST.get(code)
