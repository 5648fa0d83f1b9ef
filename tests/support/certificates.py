"""A CA of the tests' own, and the certificates of its servers and clients."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import servers
import trustme


class Certificates:
    """A CA, its certificates for this machine and for the client `cdcd`, and another CA that signed neither."""

    def __init__(self, folder: Path) -> None:
        ca, other = trustme.CA(), trustme.CA()
        self.authority = ca
        self.ca, self.other_ca = folder / "ca.pem", folder / "other.pem"
        self.server, self.server_key = folder / "server.pem", folder / "server.key"
        self.client, self.client_key, self.keystore = folder / "client.pem", folder / "client.key", folder / "both.pem"
        ca.cert_pem.write_to_path(self.ca)
        other.cert_pem.write_to_path(self.other_ca)
        server = ca.issue_cert("localhost", "127.0.0.1")
        client = ca.issue_cert("cdcd@example.org", common_name="cdcd")
        server.cert_chain_pems[0].write_to_path(self.server)
        server.private_key_pem.write_to_path(self.server_key)
        client.cert_chain_pems[0].write_to_path(self.client)
        client.private_key_pem.write_to_path(self.client_key)
        # Kafka reads only PKCS#8.
        key = subprocess.run(
            ["openssl", "pkcs8", "-topk8", "-nocrypt", "-in", self.server_key], capture_output=True, check=True
        ).stdout
        self.keystore.write_bytes(key + server.cert_chain_pems[0].bytes())
        for path in folder.iterdir():
            path.chmod(0o644)
        self.client_key.chmod(0o600)
        if server_user := servers.PostgreSQL(home=folder / "none", data=folder / "none")._user():
            shutil.chown(self.server_key, server_user)
        self.server_key.chmod(0o600)


@contextmanager
def certificates_for_servers() -> Iterator[Certificates]:
    """Certificates in a folder that PostgreSQL's user can reach."""
    with tempfile.TemporaryDirectory(dir=servers.default_home() / "run") as folder:
        Path(folder).chmod(0o755)
        yield Certificates(Path(folder))
