"""Finds out whether it lacks a token if no broker answers: without one, librdkafka asks no broker.

Before: `admin_calls` and `cluster_probe` got no answer in time.
After: their errors name the endpoint, or the function.
Source: librdkafka CONFIGURATION.md, `sasl.oauthbearer.method=oidc`; RFC 6749, section 5.2.

librdkafka tells nothing for 20 s and more: it asks the endpoint five times before it reports a failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from confluent_kafka import KafkaError

from cdcd.errors import CdcdError, KafkaUnavailable, without_password
from cdcd.sink.kafka.errors import ENDPOINT_HINT, unanswered
from cdcd.sink.kafka.token_function import token_function

_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_TIMEOUT_S: Final = 3.0
_SERVER_ERROR: Final = 500


def no_answer(properties: Mapping[str, object], doing: str, bootstrap: str, last: KafkaError | None) -> CdcdError:
    """Return the error of a call that got no answer in time: of what gives no token, or else `unanswered`."""
    function = token_function(properties)
    if function is not None and function.failure is not None:
        return function.unavailable(doing)
    return endpoint_error(properties, doing) or unanswered(doing, bootstrap, last)


def endpoint_error(properties: Mapping[str, object], doing: str) -> KafkaUnavailable | None:
    """Return the error if these properties name a token endpoint that does not work; else None.

    The request has no credentials: a working endpoint refuses it with a status of 400 to 499.
    """
    url = str(properties.get(_URL, ""))
    if not url.startswith(("http://", "https://")):
        return None
    try:
        with urlopen(Request(url, b"", method="POST"), timeout=_TIMEOUT_S):  # noqa: S310 - http or https, see above
            return None
    except HTTPError as error:
        if error.code < _SERVER_ERROR:
            return None
        why = f"answers {error.code}"
    except OSError as error:
        why = f"does not answer: {error}"
    return KafkaUnavailable(
        f"the token endpoint {without_password(url)} {why}; so no broker could be asked, {doing}",
        ENDPOINT_HINT,
        code="token-endpoint-unavailable",
    )
