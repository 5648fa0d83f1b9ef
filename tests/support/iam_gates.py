"""Stand-ins for AWS in front of real servers: they take a token only if its signature is right and it has not expired.

Before: `signatures` verifies. After: a real PostgreSQL or a real broker, which trusts whoever comes through the gate.
Source: PostgreSQL, "Message Formats" (RDS asks for the password in clear text); Kafka protocol guide, SaslHandshake and
SaslAuthenticate; RFC 7628, section 3.1 (OAUTHBEARER).
"""

from __future__ import annotations

import base64
import contextlib
import socket
import struct
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Self

from support.signatures import RefusedError, verify

_SSL_REQUEST: Final = 80877103
_API_VERSIONS, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = 18, 17, 36
_SASL_AUTHENTICATION_FAILED: Final = 58


class Gate:
    """Listens on a port of its own while a `with` lasts; a thread a connection."""

    def __init__(self, upstream: int, secrets: Mapping[str, str]) -> None:
        """`upstream`: the port of the real server. `secrets`: the secret key of each access key."""
        self.secrets = dict(secrets)
        self.admitted: list[str] = []
        """The access key of each login."""
        self.refused: list[str] = []
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()

    def cut(self) -> None:
        """End all connections."""
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def now(self) -> datetime:
        """The time by which tokens expire."""
        return datetime.now(UTC)

    def admit(self, client: socket.socket, server: socket.socket) -> bool:
        """Log the client in at this gate; returns whether it may pass."""
        raise NotImplementedError

    def check(self, url: str, service: str, wanted: Mapping[str, str]) -> str:
        """Return why a token is refused; empty if it is not."""
        try:
            found = verify(url, service, self.secrets, self.now())
            for name, value in wanted.items():
                if found.get(name) != value:
                    raise RefusedError(f"{name} is not {value}")
        except RefusedError as error:
            self.refused.append(str(error))
            return str(error)
        self.admitted.append(found["X-Amz-Credential"].partition("/")[0])
        return ""

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._handle, args=(client,), daemon=True).start()

    def _handle(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self._upstream)) as server:
            pair = {client, server}
            self._open |= pair
            try:
                if self.admit(client, server):
                    back = threading.Thread(target=_pipe, args=(server, client), daemon=True)
                    back.start()
                    _pipe(client, server)
                    back.join()
            finally:
                self._open -= pair


class RdsGate(Gate):
    """Asks for a password of RDS for this gate's host and port, and the user that logs in."""

    def admit(self, client: socket.socket, server: socket.socket) -> bool:
        packet = _packet(client)
        while struct.unpack_from(">i", packet)[0] == _SSL_REQUEST:
            client.sendall(b"N")
            packet = _packet(client)
        names = packet[4:].split(b"\0")
        user = dict(zip(names[::2], names[1::2], strict=False)).get(b"user", b"").decode()
        client.sendall(b"R" + struct.pack(">ii", 8, 3))
        assert _exactly(client, 1) == b"p"
        token = _packet(client).rstrip(b"\0").decode()
        where = f"127.0.0.1:{self.port}/?"
        why = self.check(f"https://{token}", "rds-db", {"Action": "connect", "DBUser": user})
        if why or not token.startswith(where):
            said = f'SFATAL\0C28000\0MPAM authentication failed for user "{user}"\0\0'.encode()
            client.sendall(b"E" + struct.pack(">i", len(said) + 4) + said)
            return False
        server.sendall(struct.pack(">i", len(packet) + 4) + packet)
        return True


class MskGate(Gate):
    """Asks for a token of MSK by OAUTHBEARER."""

    def admit(self, client: socket.socket, server: socket.socket) -> bool:
        while True:
            request = _exactly(client, struct.unpack(">i", _exactly(client, 4))[0])
            api, version, correlation = struct.unpack_from(">hhi", request)
            head = struct.pack(">i", correlation)
            if api == _API_VERSIONS:
                server.sendall(struct.pack(">i", len(request)) + request)
                answer = _exactly(server, struct.unpack(">i", _exactly(server, 4))[0])
                client.sendall(struct.pack(">i", len(answer)) + answer)
            elif api == _SASL_HANDSHAKE:
                name = b"OAUTHBEARER"
                _send(client, head + struct.pack(">hih", 0, 1, len(name)) + name)
            else:
                assert (api, version) in {(_SASL_AUTHENTICATE, 0), (_SASL_AUTHENTICATE, 1)}
                (client_id,) = struct.unpack_from(">h", request, 8)
                said = request[10 + max(client_id, 0) + 4 :]
                token = said.partition(b"auth=Bearer ")[2].partition(b"\x01")[0].decode()
                url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
                why = self.check(url, "kafka-cluster", {"Action": "kafka-cluster:Connect"}).encode()
                code = _SASL_AUTHENTICATION_FAILED if why else 0
                message = struct.pack(">h", len(why)) + why if why else struct.pack(">h", -1)
                lifetime = struct.pack(">q", 0) if version == 1 else b""
                _send(client, head + struct.pack(">h", code) + message + struct.pack(">i", 0) + lifetime)
                return not why


def _send(to: socket.socket, message: bytes) -> None:
    to.sendall(struct.pack(">i", len(message)) + message)


def _packet(source: socket.socket) -> bytes:
    """Read what follows a length that counts itself."""
    return _exactly(source, struct.unpack(">i", _exactly(source, 4))[0] - 4)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            raise ConnectionError("the other side has gone")
        data += part
    return data


def _pipe(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(1 << 16):
            target.sendall(part)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
