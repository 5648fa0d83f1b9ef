"""The HTTP port: it serves short answers to anybody, and withstands clients that are slow, many or hostile.

Before: a client sends a request. After: `http_answers` gives the answer to a path.
Source: RFC 9112 (HTTP/1.1), RFC 9110 (its status codes).

One thread serves all connections. A connection has one request, of a few kilobytes and within a few seconds, and is
closed after the answer. Connections are bounded in number, and the oldest one gives way: so a client that opens many
and says nothing keeps nobody else out. Answers are bounded in number, too, because each one takes memory until its
client has read it.

On a loopback address only browsers and tools of this machine can ask. A page from elsewhere could still ask through the
browser, under a name of its own that leads here. So a request there must name an address or localhost. On other
addresses any name is right: Kubernetes asks by the pod's address, Prometheus by a service's name.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final

from cdcd.errors import SettingsError

REQUEST_BYTES_MAX: Final = 8192
REQUEST_TIMEOUT_S: Final = 5.0
"""How long a client may take to send its request."""

ANSWER_TIMEOUT_S: Final = 10.0
"""How long a client may take to read its answer."""

REQUESTS_MAX: Final = 256
"""Connections that have not sent their request yet."""

ANSWERS_MAX: Final = 8
"""Connections that have not read their answer yet."""

BACKLOG: Final = 1024
"""Connections that wait to be accepted. If there are more, TCP lets a client try again after a second."""

ACCEPTED_AT_ONCE: Final = 16
"""More would push out others before their requests were read."""

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """The answer to a request. `kind` is its media type, without the character set, which is UTF-8."""

    status: HTTPStatus
    kind: str
    body: bytes


class MonitoringServer:
    """Serves until `close`."""

    def __init__(
        self, host: str, port: int, answer: Callable[[str], Answer], request_timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        """Bind; `port` 0 takes a free one. `answer` takes what follows GET, such as `/metrics`.

        Raises SettingsError (the user's fault) if the address is taken or unknown.
        """
        try:
            # Without a look-up of the host's name, which can take seconds. SO_REUSEADDR, which this sets, lets the
            # daemon have its port again while connections of a killed one linger.
            is_v6 = ":" in host
            listening = socket.create_server(
                (host, port),
                family=socket.AF_INET6 if is_v6 else socket.AF_INET,
                dualstack_ipv6=is_v6 and socket.has_dualstack_ipv6(),
            )
        except OSError as error:
            hint = "Change [monitoring] host or port, or stop the program that uses them"
            raise SettingsError(
                f"Cannot listen on {host}:{port}: {error.strerror or error}", hint, code="port-taken"
            ) from error
        self.port: int = listening.getsockname()[1]
        self._connections = _Connections(answer, request_timeout_s, is_local=_is_loopback(listening.getsockname()[0]))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(listening)), name="health", daemon=True)
        self._thread.start()
        self._started.wait()

    def close(self) -> None:
        """Stop listening, and leave the clients; returns once the thread has ended."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    async def _run(self, listening: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            server = await asyncio.start_server(
                self._connections.serve, sock=listening, limit=REQUEST_BYTES_MAX, backlog=ACCEPTED_AT_ONCE
            )
            listening.listen(BACKLOG)
        finally:
            self._started.set()
        await self._stopping.wait()
        server.close()


def url(host: str, port: int) -> str:
    """The URL of the page for a browser on this machine."""
    try:
        address = ip_address(host)
    except ValueError:
        return f"http://{host}:{port}/"
    if address.is_unspecified:  # any address: one of them is the loopback address
        address = ip_address("127.0.0.1")
    return f"http://{f'[{address}]' if address.version == 6 else address}:{port}/"


class _Places:
    """The connections that are in one phase, oldest first."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._taken: dict[asyncio.WriteTransport, None] = {}

    def take(self, connection: asyncio.WriteTransport) -> None:
        """Take a place. If there is none, the oldest connection ends."""
        if len(self._taken) >= self._places:
            oldest = next(iter(self._taken))
            del self._taken[oldest]
            oldest.abort()
        self._taken[connection] = None

    def leave(self, connection: asyncio.WriteTransport) -> None:
        """Give the place back, if the connection has one."""
        self._taken.pop(connection, None)


class _Connections:
    """Serves the connections of one port. For the thread of its event loop."""

    def __init__(self, answer: Callable[[str], Answer], request_timeout_s: float, *, is_local: bool) -> None:
        self._answer = answer
        self._request_timeout_s = request_timeout_s
        self._is_local = is_local
        self._asking = _Places(REQUESTS_MAX)
        self._reading = _Places(ANSWERS_MAX)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: one request, one answer."""
        connection = writer.transport
        try:
            self._asking.take(connection)
            head, body = await self._answer_to(reader)
            self._asking.leave(connection)
            self._reading.take(connection)
            await self._send(writer, head, body)
        except (EOFError, OSError) as error:  # a client that leaves or is too slow is not an error of the daemon
            log.debug("a client left: %s", error)
        except asyncio.CancelledError:
            log.debug("the port was closed")
        finally:
            self._asking.leave(connection)
            self._reading.leave(connection)
            connection.abort()
            with suppress(OSError, asyncio.CancelledError):  # else asyncio logs that nobody asked how it ended
                await writer.wait_closed()

    async def _answer_to(self, reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
        try:
            async with asyncio.timeout(self._request_timeout_s):
                return self._encoded(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            return _encode(_refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))

    def _encoded(self, head: bytes) -> tuple[bytes, bytes]:
        lines = head.decode("latin-1").split("\r\n")
        match lines[0].split(" "):
            case ["GET" | "HEAD" as method, target, version] if version.startswith("HTTP/1."):
                log.debug("request", extra={"method": method, "target": target})
                if self._is_local and not all(map(_is_local_name, _hosts(lines[1:]))):
                    return _encode(_refusal(HTTPStatus.MISDIRECTED_REQUEST))
                return _encode(self._answered(target), has_body=method == "GET")
            case [_, _, version] if version.startswith("HTTP/1."):
                return _encode(_refusal(HTTPStatus.METHOD_NOT_ALLOWED), {"Allow": "GET, HEAD"})
        return _encode(_refusal(HTTPStatus.BAD_REQUEST))

    def _answered(self, target: str) -> Answer:
        try:
            return self._answer(target)
        except Exception:
            log.exception("A request failed with an unexpected error")
            return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _send(self, writer: asyncio.StreamWriter, head: bytes, body: bytes) -> None:
        writer.transport.set_write_buffer_limits(0)  # `drain` waits until the system has taken everything
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            writer.write(head)
            writer.write(body)
            await writer.drain()
            writer.close()
            await writer.wait_closed()


def _encode(answer: Answer, more: dict[str, str] | None = None, *, has_body: bool = True) -> tuple[bytes, bytes]:
    headers = {"Content-Type": f"{answer.kind}; charset=utf-8", "Content-Length": len(answer.body), **_HEADERS}
    lines = [f"{name}: {value}\r\n" for name, value in (headers | (more or {})).items()]
    head = f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n{''.join(lines)}\r\n".encode("ascii")
    return head, answer.body if has_body else b""


def _refusal(status: HTTPStatus) -> Answer:
    return Answer(status, "text/plain", f"{status.phrase}\n".encode())


def _hosts(headers: list[str]) -> list[str]:
    fields = (header.partition(":") for header in headers)
    return [value.strip() for name, _, value in fields if name.strip().lower() == "host"]


def _is_local_name(host: str) -> bool:
    """Whether a Host header names an address or localhost, with a port or without."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0].rstrip(".")
    return name.lower() == "localhost" or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    return ip_address(address.partition("%")[0]).is_loopback
