"""Makes tokens for Kafka (SASL/OAUTHBEARER) with a function: AWS's IAM for MSK, or one of the user.

Before: `sink.token_function` names it. `client_config` asks for a token before a client is made.
After: librdkafka calls it as `oauth_cb`, in a thread of its own, when 80% of a token's life have passed, and every ten
seconds while it fails. `token_endpoint` tells the failure if no broker answers.
Source: confluent-kafka, `oauth_cb`; librdkafka, `rd_kafka_oauthbearer_set_token`.

A client of confluent-kafka waits ten seconds for its first token, and then tells only that there is none. So a token is
made before the client, and given to all clients that want one at about the same time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, Final, TypeAlias

from cdcd.errors import KafkaUnavailable
from cdcd.made_secret import NamedFunction, NotMadeError, text

MSK_IAM: Final = "aws-msk-iam"
_MSK_FUNCTION: Final = "cdcd.aws_iam:msk_token"

REUSED_FOR_S: Final = 10.0
_HINT: Final = "Look at what the function needs: a daemon that runs tries again by itself."

Made: TypeAlias = "tuple[Any, ...]"
"""What `oauth_cb` returns: the token, when it expires (seconds since 1970), and perhaps a principal and extensions."""

log = logging.getLogger(__name__)


class TokenFunction:
    """The `oauth_cb` of all clients of one cluster. For any thread."""

    def __init__(self, name: str, bootstrap: str, clock: Callable[[], float] = time.time) -> None:
        """`name`: module:function, or MSK_IAM. Import nothing yet. `clock`: seconds since 1970."""
        self.name = name
        self.failure: str | None = None
        """Why the last try made no token; None if it made one."""
        self._call = NamedFunction("sink.token_function", _MSK_FUNCTION if name == MSK_IAM else name)
        self._argument = bootstrap if name == MSK_IAM else None
        self._clock = clock
        self._lock = Lock()
        self._made: Made = ()
        self._reused_until_s = 0.0

    def __call__(self, config: str | None) -> Made:
        """Return a token. `config`: sasl.oauthbearer.config. Raises NotMadeError and SettingsError, for librdkafka."""
        with self._lock:
            now_s = self._clock()
            if now_s < self._reused_until_s:
                return self._made
            try:
                made = _checked(self._call(config or "" if self._argument is None else self._argument), now_s)
            except NotMadeError as error:
                if self.failure is None:
                    log.warning("%s made no token: it %s", self._setting, error.why)
                self.failure = error.why
                raise
            if self.failure is not None:
                log.warning("%s makes tokens again", self._setting)
            self.failure = None
            self._made = made
            self._reused_until_s = now_s + min(REUSED_FOR_S, (made[1] - now_s) / 2)
            return made

    def raise_if_failing(self, config: str | None) -> None:
        """Make a token. Raises KafkaUnavailable if there is none, and SettingsError if there is no such function."""
        try:
            self(config)
        except NotMadeError:
            raise self.unavailable("making a client") from None

    def unavailable(self, doing: str) -> KafkaUnavailable:
        """Return the error of a call for which there is no token; `doing` is a participle: "describing topics"."""
        return KafkaUnavailable(
            f"{self._setting} made no token: it {self.failure}; so no broker could be asked, {doing}",
            _HINT,
            code="token-not-made",
        )

    @property
    def _setting(self) -> str:
        return f'sink.token_function = "{self.name}"'


def token_function(properties: Mapping[str, object]) -> TokenFunction | None:
    """Return the function among the properties of a client, if there is one."""
    found = properties.get("oauth_cb")
    return found if isinstance(found, TokenFunction) else None


def _checked(made: object, now_s: float) -> Made:
    """Return what the function has made. Raises NotMadeError if librdkafka would not take it."""
    if not isinstance(made, tuple) or not 2 <= len(made) <= 4:
        raise NotMadeError("did not return a pair: the token, and when it expires")
    token, expires_s, *more = made
    if not isinstance(expires_s, int | float) or isinstance(expires_s, bool):
        raise NotMadeError("did not return when the token expires, as a number of seconds since 1970")
    if expires_s <= now_s:
        raise NotMadeError("gave a token that has expired")
    return (text(token), float(expires_s), *more)
