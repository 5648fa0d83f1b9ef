"""The tokens are signed as AWS asks: the signature is computed anew from the secret key, and the time counts."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from support.fix_aws import KEY, SECRET, Credentials
from support.signatures import RefusedError, verify

from cdcd.aws_iam import msk_token, rds_token
from cdcd.made_secret import NotMadeError

HOST = "shop.c9example.eu-west-1.rds.amazonaws.com"
BROKERS = "b-1.shop.x1.c2.kafka.eu-west-1.amazonaws.com:9098,b-2.shop.x1.c2.kafka.eu-west-1.amazonaws.com:9098"


@pytest.fixture(autouse=True)
def _only_these(aws: Credentials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")


def now() -> datetime:
    return datetime.now(UTC)


def msk_url(token: str) -> str:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()


def test_the_tests_verify_signatures_as_awss_own_example_has_them() -> None:
    # Amazon S3 API Reference, "Authenticating Requests: Using Query Parameters".
    url = (
        "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential="
        "AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z"
        "&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
        "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    )
    secrets = {"AKIAIOSFODNN7EXAMPLE": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
    verify(url, "s3", secrets, datetime(2013, 5, 24, 12, tzinfo=UTC), "UNSIGNED-PAYLOAD")
    with pytest.raises(RefusedError, match="signature"):
        verify(url.replace("test", "text"), "s3", secrets, datetime(2013, 5, 24, 12, tzinfo=UTC), "UNSIGNED-PAYLOAD")


def test_a_password_of_rds_is_signed_for_its_host_port_and_user_and_expires() -> None:
    token = rds_token(HOST, 5432, "cdcd")
    assert token.startswith(f"{HOST}:5432/?Action=connect&DBUser=cdcd&")
    found = verify(f"https://{token}", "rds-db", {KEY: SECRET}, now())
    assert "/eu-west-1/" in found["X-Amz-Credential"]
    assert SECRET not in token
    with pytest.raises(RefusedError, match="expired"):
        verify(f"https://{token}", "rds-db", {KEY: SECRET}, now() + timedelta(seconds=901))
    for changed in (token.replace("DBUser=cdcd", "DBUser=root"), token.replace(HOST, f"x{HOST}")):
        with pytest.raises(RefusedError, match="signature"):
            verify(f"https://{changed}", "rds-db", {KEY: SECRET}, now())
    with pytest.raises(RefusedError, match="signature"):
        verify(f"https://{token}", "rds-db", {KEY: "another"}, now())


def test_a_token_of_msk_is_signed_for_its_region_and_says_when_it_expires() -> None:
    token, expires_s = msk_token(BROKERS)
    found = verify(msk_url(token), "kafka-cluster", {KEY: SECRET}, now())
    assert found["Action"] == "kafka-cluster:Connect"
    assert msk_url(token).startswith("https://kafka.eu-west-1.amazonaws.com/")
    assert 890 <= expires_s - now().timestamp() <= 900
    with pytest.raises(RefusedError, match="expired"):
        verify(msk_url(token), "kafka-cluster", {KEY: SECRET}, datetime.fromtimestamp(expires_s, UTC))
    with pytest.raises(RefusedError, match="signature"):
        verify(msk_url(token), "kafka-cluster", {KEY: "another"}, now())


@pytest.mark.parametrize(
    "brokers",
    [
        "boot-abc.c1.kafka-serverless.eu-central-1.amazonaws.com:9098",
        "b-1-public.shop.x1.c2.kafka.eu-central-1.amazonaws.com:9198",
    ],
)
def test_the_region_is_in_the_name_of_the_brokers(brokers: str) -> None:
    assert "kafka.eu-central-1.amazonaws.com" in msk_url(msk_token(brokers)[0])


def test_a_name_of_ones_own_takes_the_region_of_awss_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for make in (lambda: rds_token("db.example.org", 5432, "cdcd"), lambda: msk_token("kafka.example.org:9098")):
        monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
        with pytest.raises(NotMadeError, match="AWS_DEFAULT_REGION"):
            make()
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-2")
        make()
    assert "us-east-2" in rds_token("db.example.org", 5432, "cdcd")


def test_credentials_that_are_renewed_in_their_file_are_in_the_next_token(aws: Credentials) -> None:
    aws.remove()
    with pytest.raises(NotMadeError, match="no credentials"):
        rds_token(HOST, 5432, "cdcd")
    with pytest.raises(NotMadeError, match="no credentials"):
        msk_token(BROKERS)
    for key in ("AKIDFIRST", "AKIDSECOND"):
        aws.write(key)
        verify(f"https://{rds_token(HOST, 5432, 'cdcd')}", "rds-db", {key: SECRET}, now())
        verify(msk_url(msk_token(BROKERS)[0]), "kafka-cluster", {key: SECRET}, now())
