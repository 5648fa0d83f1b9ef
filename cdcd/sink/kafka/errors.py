"""Translates Kafka's errors into cdcd's, each with the hint for a person. `refusals` classifies the codes.

Before: the clients of this package catch a KafkaException.
After: they raise the error of `to_cdcd_error`; the supervisor acts on its class.
Source: librdkafka `rdkafka.h` (local codes, below 0) and the Kafka protocol guide, "Error Codes" (the broker's).
"""

from __future__ import annotations

import re
import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message

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
from cdcd.sink.kafka.refusals import CREDENTIALS, SIZE, TLS, UNREADABLE, Advice, Refusal, advice, refusal

TRY_AGAIN: Final = "Look at the brokers and at sink.bootstrap_servers: a daemon that runs tries again by itself."

ENDPOINT_HINT: Final = (
    "Look at the token endpoint (sasl.oauthbearer.token.endpoint.url under sink.librdkafka): a daemon that runs tries "
    "again by itself."
)

_AWAY: Final = Advice(TRY_AGAIN, "kafka-unavailable")
_LACKS_TOKEN: Final = Advice(ENDPOINT_HINT, "token-endpoint-unavailable")
_LACKS_MADE_TOKEN: Final = Advice(
    "Look at what sink.token_function needs: a daemon that runs tries again by itself.", "token-not-made"
)
_FORGOTTEN: Final = Advice(
    "Kafka forgets a producer that rests for the brokers' transactional.id.expiration.ms. The daemon goes on with a "
    "new one by itself.",
    "stream-restarted",
)
_PASSING: Final = {KafkaError._BAD_MSG: UNREADABLE, KafkaError.INVALID_PRODUCER_ID_MAPPING: _FORGOTTEN}
"""About codes that pass, where `TRY_AGAIN` would mislead."""

_AUTHENTICATION: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})

_CUT: Final = ("Local: Broker transport failure", "Local: Timed out")
_OAUTH_FAILED: Final = "Failed to acquire SASL OAUTHBEARER"
"""How librdkafka begins its report when the token endpoint gives no token: the brokers have refused nobody."""
_OAUTH_NOT_SET: Final = "OAuth token not set"
"""How confluent-kafka says the same of a function, when a client is made."""

_BROKER: Final = re.compile(r"\S+/(\d+): ")
"""Finds the broker that librdkafka's report is about, by its node id."""
_UNUSABLE_FILE: Final = re.compile(r"\bssl\.\w+\.location(: | failed)|PKCS#12 file")
"""How librdkafka names a file that it cannot use: somebody may be writing it, or the file that belongs to it."""

FOREIGN_TEXT_MAX: Final = 200
"""A broker may put its whole request into the text of an error: so many characters of it are shown."""

_SILENT: Final = " (no broker said a word: the listener may want another security.protocol)"
_BOOKKEEPING: Final = re.compile(r" \(after \d+ms(?: in state \w+)?(?:, \d+ identical error\(s\) suppressed)?\)$")
"""librdkafka's last words: "(after 246ms in state AUTH_REQ, 1 identical error(s) suppressed)"."""
_TOPIC: Final = re.compile(r"ProduceRequest for (\S+) \[\d+\]")
"""Finds the topic that made a transaction fail in librdkafka's text: most records have no delivery report."""


def kafka_error(error: KafkaException) -> KafkaError:
    """Return the KafkaError inside a KafkaException."""
    found = error.args[0]
    assert isinstance(found, KafkaError)
    return found


def to_cdcd_error(error: KafkaError, doing: str, bootstrap: str) -> CdcdError:
    """Translate the error of an operation; `doing` is the operation as a participle: "committing ..."."""
    code, text = error.code(), shown(error.str())
    kind = refusal(code)
    refused = f"Kafka refused {doing}: {text} ({error.name()})"
    if kind is Refusal.FENCED:
        return Fenced(
            f"another producer has taken over this daemon's transactional.id while {doing} ({error.name()})",
            "Let only one cdcd run for this slot and prefix; the newer daemon goes on where this one stopped.",
            code="daemon-fenced",
        )
    if kind is Refusal.OF_SETTING and _UNUSABLE_FILE.search(error.str()):
        return AccessDenied(f"Kafka's client cannot use a file: {text}", TLS.hint, code="kafka-tls-failed")
    if kind is Refusal.OF_SETTING:
        return SettingsError(
            f"Kafka's client refuses a setting: {text}",
            "Correct it under [sink.librdkafka]; a password belongs into a file of secrets_dir, such as "
            "sink__librdkafka__sasl.password.",
            code="kafka-config-invalid",
        )
    found = advice(code)
    if found is not None and kind is Refusal.OF_TOPIC:
        match = _TOPIC.search(error.str())
        error_class = RecordTooLarge if found == SIZE else Unpublishable
        return error_class(refused, found.hint, code=found.code, topic=match[1] if match else "")
    if found is not None and kind is Refusal.OF_ACCESS and not _is_passing(error):
        return AccessDenied(refused, found.hint, code=found.code)
    if found is not None and kind is Refusal.OF_REQUEST:
        return RequestRejected(refused, found.hint, code=found.code)
    passing = _PASSING.get(code, _AWAY)
    if _lacks_token(error):
        passing = _LACKS_MADE_TOKEN if text.startswith(_OAUTH_NOT_SET) else _LACKS_TOKEN
    failed = f"Kafka ({bootstrap}) failed {doing}: {text} ({error.name()})"
    return KafkaUnavailable(failed, passing.hint, code=passing.code)


def shown(text: str) -> str:
    """Return what a message shows of a text of librdkafka or a broker: without the client's own times and states."""
    text = _BOOKKEEPING.sub("", text)
    return text if len(text) <= FOREIGN_TEXT_MAX else f"{text[: FOREIGN_TEXT_MAX - 3]}..."


def refuses_credentials(error: KafkaError | None) -> bool:
    """Whether the brokers refuse the credentials: librdkafka goes on trying, but a person should know at once."""
    return error is not None and advice(error.code()) in (CREDENTIALS, TLS) and not _is_passing(error)


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
    if _lacks_token(error):
        return True
    return error.code() == KafkaError._AUTHENTICATION and any(how in error.str() for how in _CUT)


def _lacks_token(error: KafkaError) -> bool:
    return error.code() in _AUTHENTICATION and error.str().startswith((_OAUTH_FAILED, _OAUTH_NOT_SET))


def is_about_group(message: Message) -> bool:
    """Whether a consumer's message is no record but an error of its consumer group.

    librdkafka looks for the coordinator of every group.id, also of a consumer that joins no group. Nobody needs the
    answer, and a user without a right to the group gets GROUP_AUTHORIZATION_FAILED: some time, by the broker's speed.
    """
    return message.topic() is None and message.error() is not None


class Reports:
    """Keeps the last error that a client reported by `error_cb`: a lost connection, refused credentials."""

    def __init__(self) -> None:
        self._last: KafkaError | None = None
        self._of_brokers: dict[int, str] = {}
        self._at = 0.0

    def __call__(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # it follows the error that says why
            self._last = error
            self._at = time.monotonic()
            if match := _BROKER.match(error.str()):
                self._of_brokers[int(match[1])] = shown(error.str()[match.end() :])

    def of_broker(self, node_id: int) -> str:
        """Return what the last report about a broker says; empty if there was none."""
        return self._of_brokers.get(node_id, "")

    def last(self, within_s: float) -> KafkaError | None:
        """Return the last report; None if it is older than `within_s`, and so explains nothing any more."""
        return self._last if time.monotonic() - self._at <= within_s else None


def closed(what: str) -> CdcdError:
    """Return the error of a call whose client another thread has closed: no caller waits for it any more."""
    return KafkaUnavailable(f"{what} was closed while it was in use", TRY_AGAIN, code="kafka-unavailable")


def unanswered(doing: str, bootstrap: str, last: KafkaError | None) -> CdcdError:
    """Return the error of a call that got no answer in time. `last` is the client's last report: it tells why."""
    if last is not None and (refuses_credentials(last) or _lacks_token(last)):
        return to_cdcd_error(last, doing, bootstrap)
    # A listener with TLS or a log-in does not answer a client without, and librdkafka reports nothing.
    report = f" (last: {shown(last.str())})" if last is not None else _SILENT
    return KafkaUnavailable(
        f"Kafka ({bootstrap}) did not answer in time, {doing}{report}", TRY_AGAIN, code="kafka-unavailable"
    )
