"""Makes the tokens of AWS's IAM: passwords of RDS and Aurora, and tokens of MSK. They are signed on this machine.

Before: `source.login` and `sink.kafka.token_function`; the credentials come from where botocore finds them.
After: PostgreSQL or Kafka asks AWS whether the signature is right.
Source: AWS, "IAM database authentication" and "IAM access control for MSK"; Signature Version 4.

Every token has a new session: the credentials in files and variables may have been renewed.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, Final

from cdcd.errors import SettingsError
from cdcd.made_secret import NotMadeError

_RDS_HOST: Final = re.compile(r"\.([a-z0-9-]+)\.rds\.amazonaws\.com(\.cn)?$")
_MSK_HOST: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::\d+)?(?:,|$)")


def rds_token(host: str, port: int, user: str) -> str:
    """Return a password for RDS or Aurora. A server takes it for 15 minutes."""
    session = _module("botocore.session").Session()
    region = _region(session, _RDS_HOST.search(host))
    if session.get_credentials() is None:
        raise NotMadeError("found no credentials of AWS")
    client = session.create_client("rds", region_name=region)
    return str(client.generate_db_auth_token(DBHostname=host, Port=port, DBUsername=user))


def msk_token(bootstrap: str) -> tuple[str, float]:
    """Return a token for MSK, and when it expires, in seconds since 1970."""
    session = _module("botocore.session").Session()
    region = _region(session, _MSK_HOST.search(bootstrap))
    credentials = session.get_credentials()
    if credentials is None:
        raise NotMadeError("found no credentials of AWS")
    signer = _module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")

    class Found(_module("botocore.credentials").CredentialProvider):  # type: ignore[misc]
        def load(self) -> Any:
            return credentials

    token, expires_ms = signer.generate_auth_token_from_credentials_provider(region, Found())
    return str(token), expires_ms / 1000


def _region(session: Any, in_host: re.Match[str] | None) -> str:
    """Return the region that the host's name has, or else the one that AWS's own settings name."""
    region = in_host[1] if in_host else session.get_config_variable("region")
    if not region:
        raise NotMadeError("knows no region: set AWS_DEFAULT_REGION")
    return str(region)


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise SettingsError(
            f"AWS's IAM needs {name.partition('.')[0]}, which is not installed",
            "Run: pip install 'cdcd[aws]'",
            code="aws-client-missing",
        ) from None
