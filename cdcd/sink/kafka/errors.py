"""Translates Kafka's errors into cdcd's, each with the hint for a person. `refusals` classifies the codes.

Before: the clients of this package catch a KafkaException.
After: they raise the error of `to_cdcd_error`; the supervisor acts on its class.
Source: librdkafka `rdkafka.h` (local codes, below 0) and the Kafka protocol guide, "Error Codes" (the broker's).
"""

from __future__ import annotations

import re
import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from cdcd.errors import (
    AccessDenied,
    CdcdError,
    Fenced,
    KafkaUnavailable,
    RecordTooLarge,
    RequestRejected,
    SettingsError,
    Unpublishable,
)
from cdcd.sink.kafka.refusals import CREDENTIALS, SIZE, TLS, Refusal, hint, refusal

TRY_AGAIN: Final = "Look at the brokers and at sink.bootstrap_servers: a daemon that runs tries again by itself."

ENDPOINT_HINT: Final = (
    "Look at the token endpoint (sasl.oauthbearer.token.endpoint.url under sink.librdkafka): a daemon that runs tries "
    "again by itself."
)

_AUTHENTICATION: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})

_CUT: Final = ("Local: Broker transport failure", "Local: Timed out")
_OAUTH_FAILED: Final = "Failed to acquire SASL OAUTHBEARER"
"""How librdkafka begins its report when the token endpoint gives no token: the brokers have refused nobody."""

_TOPIC: Final = re.compile(r"ProduceRequest for (\S+) \[\d+\]")
"""Finds the topic that made a transaction fail in librdkafka's text: most records have no delivery report."""


def kafka_error(error: KafkaException) -> KafkaError:
    """Return the KafkaError inside a KafkaException."""
    found = error.args[0]
    assert isinstance(found, KafkaError)
    return found


def to_cdcd_error(error: KafkaError, doing: str, bootstrap: str) -> CdcdError:
    """Translate the error of an operation; `doing` is the operation as a participle: "committing ..."."""
    code, text = error.code(), error.str()
    kind = refusal(code)
    refused = f"Kafka refused {doing}: {text} ({error.name()})"
    if kind is Refusal.FENCED:
        return Fenced(
            f"another producer has taken over this daemon's transactional.id while {doing} ({error.name()})",
            "Let only one cdcd run for this slot and prefix; the newer daemon goes on where this one stopped.",
        )
    if kind is Refusal.OF_SETTING:
        return SettingsError(f"Kafka's client refuses a setting: {text}", "Correct it under [sink].")
    if kind is Refusal.OF_TOPIC:
        match = _TOPIC.search(text)
        error_class = RecordTooLarge if hint(code) == SIZE else Unpublishable
        return error_class(refused, hint(code), topic=match[1] if match else "")
    if kind is Refusal.OF_ACCESS and not _is_passing(error):
        return AccessDenied(refused, hint(code))
    if kind is Refusal.OF_REQUEST:
        return RequestRejected(refused, hint(code))
    try_again = ENDPOINT_HINT if _lacks_token(error) else TRY_AGAIN
    return KafkaUnavailable(f"Kafka ({bootstrap}) failed {doing}: {text} ({error.name()})", try_again)


def refuses_credentials(error: KafkaError | None) -> bool:
    """Whether the brokers refuse the credentials: librdkafka goes on trying, but a person should know at once."""
    return error is not None and hint(error.code()) in (CREDENTIALS, TLS) and not _is_passing(error)


def refuses_for_good(error: KafkaError | None) -> bool:
    """Whether every other try must fail, too. (A broken handshake may only mean that a broker restarts.)"""
    if error is None:
        return False
    return (error.code() in _AUTHENTICATION and not _is_passing(error)) or (
        error.code() == KafkaError._SSL and "certificate verify failed" in error.str()
    )


def _is_passing(error: KafkaError) -> bool:
    """Whether no broker has refused anybody, though librdkafka gives that code.

    It does so when a broker goes away in SASL's handshake, and when the token endpoint gives no token.
    """
    return error.code() == KafkaError._AUTHENTICATION and (
        _lacks_token(error) or any(how in error.str() for how in _CUT)
    )


def _lacks_token(error: KafkaError) -> bool:
    return error.code() == KafkaError._AUTHENTICATION and error.str().startswith(_OAUTH_FAILED)


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
    if last is not None and (refuses_credentials(last) or _lacks_token(last)):
        return to_cdcd_error(last, doing, bootstrap)
    report = f" (last: {last.str()})" if last is not None else ""
    return KafkaUnavailable(f"Kafka ({bootstrap}) did not answer in time, {doing}{report}", TRY_AGAIN)
