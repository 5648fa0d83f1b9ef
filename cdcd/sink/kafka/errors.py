"""Translates Kafka's errors into cdcd's: the code decides the error class, and the hint for a person.

Before: the clients of this package catch a KafkaException.
After: they raise the error of `to_cdcd_error`; the supervisor acts on its class.
Source: librdkafka `rdkafka.h` (local codes, below 0) and the Kafka protocol guide, "Error Codes" (the broker's).
"""

from __future__ import annotations

import re
import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from cdcd.errors import CdcdError, Fenced, KafkaUnavailable, RequestRejected, SettingsError, Unpublishable

_FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})

_AUTHENTICATION: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})

_CUT: Final = ("Local: Broker transport failure", "Local: Timed out")

_SETTINGS: Final = frozenset({KafkaError._INVALID_ARG, KafkaError._NOT_CONFIGURED, KafkaError._UNKNOWN_PROTOCOL})

TRY_AGAIN: Final = "Look at the brokers and at sink.bootstrap_servers: a daemon that runs tries again by itself."

_CREDENTIALS: Final = "Check sasl.* and security.protocol under sink.librdkafka, and the user on the broker."
_TLS: Final = "Check ssl.* and security.protocol under sink.librdkafka: the broker's certificate, CA and host name."
SIZE_HINT: Final = (
    "Raise max.message.bytes of the topic (or message.max.bytes of the brokers) above the largest row; readers may "
    'need a larger fetch size as well. Or set sink.on_unpublishable = "park": the other tables go on.'
)
_UNPUBLISHABLE: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
    }
)
"""One topic refuses a record; other topics may take theirs."""

_TOPIC: Final = re.compile(r"ProduceRequest for (\S+) \[\d+\]")
"""Finds the topic that made a transaction fail in librdkafka's text: most records have no delivery report."""

_VERSION: Final = "Exactly once needs brokers that have transactions: Kafka 2.5 or later."

_HINTS: Final[dict[int, str]] = {
    KafkaError._AUTHENTICATION: _CREDENTIALS,
    KafkaError.SASL_AUTHENTICATION_FAILED: _CREDENTIALS,
    KafkaError.UNSUPPORTED_SASL_MECHANISM: _CREDENTIALS,
    KafkaError.ILLEGAL_SASL_STATE: _CREDENTIALS,
    KafkaError._SSL: _TLS,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        "Grant the user Write, Describe, Create and Read on the topics that start with sink.prefix "
        "(kafka-acls.sh --add --allow-principal User:... --producer --topic PREFIX --resource-pattern-type prefixed)."
    ),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "Grant the user Write and Describe on the transactional ids that start with sink.prefix "
        "(kafka-acls.sh --add --allow-principal User:... --operation Write --operation Describe "
        "--transactional-id PREFIX --resource-pattern-type prefixed)."
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (
        "Grant the user IdempotentWrite on the cluster (kafka-acls.sh --add --allow-principal User:... "
        "--operation IdempotentWrite --cluster)."
    ),
    KafkaError.MSG_SIZE_TOO_LARGE: SIZE_HINT,
    KafkaError.RECORD_LIST_TOO_LARGE: SIZE_HINT,
    KafkaError.INVALID_MSG_SIZE: SIZE_HINT,
    KafkaError.INVALID_RECORD: (
        "Topics of tables without a key cannot be compacted: take cleanup.policy=compact off the topic, or give the "
        "table a primary key or a replica identity."
    ),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "Set transaction.timeout.ms under sink.librdkafka to no more than the brokers' transaction.max.timeout.ms, or "
        "let the user describe the cluster's configs, so that cdcd sees the limit by itself."
    ),
    KafkaError.UNSUPPORTED_VERSION: _VERSION,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: _VERSION,
    KafkaError._UNSUPPORTED_FEATURE: _VERSION,
    KafkaError.INVALID_REPLICATION_FACTOR: "Set sink.replication_factor to no more than there are brokers.",
    KafkaError.INVALID_PARTITIONS: "Set sink.partitions to 1 or more.",
    KafkaError.INVALID_CONFIG: "Correct sink.topic_config.",
    KafkaError.POLICY_VIOLATION: "The brokers have a policy (create.topic.policy.class.name): follow it in [sink].",
    KafkaError.TOPIC_EXCEPTION: (
        "Kafka takes two names that differ only in '.' and '_' as one: choose another sink.prefix, or a sink.topic "
        "that keeps them apart, such as {prefix}.{schema}-{table}."
    ),
}


def kafka_error(error: KafkaException) -> KafkaError:
    """Return the KafkaError inside a KafkaException."""
    found = error.args[0]
    assert isinstance(found, KafkaError)
    return found


def to_cdcd_error(error: KafkaError, doing: str, bootstrap: str) -> CdcdError:
    """Translate the error of an operation; `doing` is the operation as a participle: "committing ..."."""
    code = error.code()
    if code in _FENCED:
        return Fenced(
            f"another producer has taken over this daemon's transactional.id while {doing} ({error.name()})",
            "Let only one cdcd run for this slot and prefix; the newer daemon goes on where this one stopped.",
        )
    if code in _SETTINGS:
        return SettingsError(f"Kafka's client refuses a setting: {error.str()}", "Correct it under [sink].")
    if code in _UNPUBLISHABLE:
        match = _TOPIC.search(error.str())
        refused = f"Kafka refused {doing}: {error.str()} ({error.name()})"
        return Unpublishable(refused, _HINTS[code], topic=match[1] if match else "")
    if code in _HINTS:
        return RequestRejected(f"Kafka refused {doing}: {error.str()} ({error.name()})", _HINTS[code])
    return KafkaUnavailable(
        f"Kafka ({bootstrap}) failed {doing}: {error.str()} ({error.name()})",
        TRY_AGAIN,
    )


def refuses_credentials(error: KafkaError | None) -> bool:
    """Whether the brokers refuse the credentials: librdkafka goes on trying, but a person should know at once."""
    return error is not None and _HINTS.get(error.code()) in (_CREDENTIALS, _TLS) and not _was_cut(error)


def refuses_for_good(error: KafkaError | None) -> bool:
    """Whether every other try must fail, too. (A broken handshake may only mean that a broker restarts.)"""
    if error is None:
        return False
    return (error.code() in _AUTHENTICATION and not _was_cut(error)) or (
        error.code() == KafkaError._SSL and "certificate verify failed" in error.str()
    )


def _was_cut(error: KafkaError) -> bool:
    """Whether the connection broke. librdkafka gives the same code when a broker goes away in SASL's handshake."""
    message = error.str()
    return error.code() == KafkaError._AUTHENTICATION and any(how in message for how in _CUT)


class Reports:
    """Keeps the last error that a client reported by `error_cb`: a lost connection, refused credentials."""

    def __init__(self) -> None:
        self._last: KafkaError | None = None
        self._at = 0.0

    def __call__(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # it follows the error that says why
            self._last = error
            self._at = time.monotonic()

    def last(self, within_s: float) -> KafkaError | None:
        """Return the last report; None if it is older than `within_s`, and so explains nothing any more."""
        return self._last if time.monotonic() - self._at <= within_s else None


def closed(what: str) -> CdcdError:
    """Return the error of a call whose client another thread has closed: no caller waits for it any more."""
    return KafkaUnavailable(f"{what} was closed while it was in use", TRY_AGAIN)


def unanswered(doing: str, bootstrap: str, last: KafkaError | None) -> CdcdError:
    """Return the error of a call that got no answer in time. `last` is the client's last report: it tells why."""
    if last is not None and refuses_credentials(last):
        return to_cdcd_error(last, doing, bootstrap)
    report = f" (last: {last.str()})" if last is not None else ""
    return KafkaUnavailable(f"Kafka ({bootstrap}) did not answer in time, {doing}{report}", TRY_AGAIN)
