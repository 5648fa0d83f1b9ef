"""A schema registry behind mutual TLS, whose certificates are renewed while the daemon's process goes on."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from support.json_server import JsonHandler, JsonServer

from cdcd.avro.registry_answers import RegistryError
from cdcd.avro.registry_requests import RegistryRequests
from cdcd.errors import SettingsError
from cdcd.file_watch import LOOK_EVERY_S


class Handler(JsonHandler):
    def get(self) -> tuple[int, object]:
        return 200, {"compatibilityLevel": "BACKWARD"}


class Registry:
    """Renews everything at once, as a person does who renews a CA: what was valid before is refused."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.now_s = 0.0
        self.renew_server()
        self.write_client()
        self.files = {
            "ssl.ca.location": str(folder / "ca.pem"),
            "ssl.certificate.location": str(folder / "client.pem"),
            "ssl.key.location": str(folder / "client.key"),
        }

    def renew_server(self) -> None:
        self.ca = trustme.CA()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.ca.configure_trust(self.context)
        self.ca.issue_cert("localhost").configure_cert(self.context)

    def write_client(self, *, with_key: bool = True) -> None:
        client = self.ca.issue_cert("cdcd@example.org")
        self.ca.cert_pem.write_to_path(self._folder / "ca.pem")
        client.cert_chain_pems[0].write_to_path(self._folder / "client.pem")
        if with_key:
            client.private_key_pem.write_to_path(self._folder / "client.key")

    def look(self, requests: RegistryRequests) -> None:
        """Ask twice, each time late enough for another look at the files; the second answer counts."""
        self.now_s += LOOK_EVERY_S
        try:
            requests.compatibility()
        except RegistryError:
            pass
        self.now_s += LOOK_EVERY_S
        requests.compatibility()


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path)


@pytest.fixture
def requests(registry: Registry) -> Iterator[RegistryRequests]:
    with JsonServer(Handler, tls=lambda: registry.context) as server:
        yield RegistryRequests(server.url, registry.files, lambda: registry.now_s)


def test_renewed_files_are_read_by_a_new_client(registry: Registry, requests: RegistryRequests) -> None:
    registry.look(requests)
    registry.renew_server()
    with pytest.raises(RegistryError):
        registry.look(requests)
    registry.write_client()
    registry.look(requests)


def test_a_certificate_without_its_key_is_waited_for(registry: Registry, requests: RegistryRequests) -> None:
    registry.write_client(with_key=False)
    registry.look(requests)
    registry.renew_server()
    registry.write_client()
    registry.look(requests)


def test_a_file_that_cannot_be_used_is_named(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "client.key").write_bytes(b"")
    with pytest.raises(SettingsError, match="cannot use its files") as refused:
        RegistryRequests("https://localhost:1", registry.files)
    assert str(tmp_path / "client.key") in refused.value.hint
