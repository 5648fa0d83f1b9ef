"""Fixture of AWS's credentials: a file of one test, and nothing else that botocore would find.

Before: botocore reads AWS's variables and files. After: tests of AWS's IAM.
"""

from __future__ import annotations

from pathlib import Path

import pytest

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


class Credentials:
    """The file, which somebody else may renew."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def write(self, key: str) -> None:
        """Have this access key in the file, with SECRET."""
        self.file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {SECRET}\n")

    def remove(self) -> None:
        """Have none."""
        self.file.unlink()


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Credentials:
    """Give the credentials, with KEY in them, to this process and to what it starts; the region is eu-west-1."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    made = Credentials(tmp_path / "credentials")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(made.file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    made.write(KEY)
    return made
