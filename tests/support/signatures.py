"""Verifies AWS's signatures as AWS does: it computes them anew from the secret key. Shares no code with botocore.

Before: a token of RDS or of MSK, which is a signed URL.
After: tests that play RDS or MSK.
Source: AWS, "Create a signed AWS API request" (Signature Version 4, query parameters).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, quote, urlsplit

ALGORITHM = "AWS4-HMAC-SHA256"


class RefusedError(Exception):
    """Says why a token is refused."""


NOTHING = hashlib.sha256(b"").hexdigest()


def verify(url: str, service: str, secrets: Mapping[str, str], now: datetime, payload: str = NOTHING) -> dict[str, str]:
    """Return the parameters of a signed GET, or raise RefusedError. `secrets`: the secret key of each access key.

    `payload`: the word for the body in what is signed.
    """
    parts = urlsplit(url)
    # What is added behind the signature is not signed.
    signed, _, rest = parts.query.partition("&X-Amz-Signature=")
    signature = rest.partition("&")[0]
    found = dict(parse_qsl(signed, keep_blank_values=True))
    if found.get("X-Amz-Algorithm") != ALGORITHM or not signature:
        raise RefusedError("it is not signed")
    access_key, day, region, its_service, ending = found["X-Amz-Credential"].split("/")
    if its_service != service or ending != "aws4_request" or access_key not in secrets:
        raise RefusedError("its credential is for something else")
    made = datetime.strptime(found["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    if not made - timedelta(minutes=5) <= now < made + timedelta(seconds=int(found["X-Amz-Expires"])):
        raise RefusedError("it has expired")
    scope = f"{day}/{region}/{service}/aws4_request"
    query = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(found.items()))
    request = f"GET\n{parts.path or '/'}\n{query}\nhost:{parts.netloc}\n\nhost\n{payload}"
    to_sign = f"{ALGORITHM}\n{found['X-Amz-Date']}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    if not hmac.compare_digest(_signature(secrets[access_key], scope, to_sign), signature):
        raise RefusedError("its signature is wrong")
    return found


def _signature(secret: str, scope: str, to_sign: str) -> str:
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, to_sign.encode(), "sha256").hex()
