"""A TCP proxy on loopback that does to a connection what networks do: cut, reset, delay, swallow, half open.

Before: a client that was told this proxy's port. After: a server on loopback.

The proxy has one asyncio loop in a thread of its own; the methods that break things may be called from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any, Self

CHUNK_BYTES = 1 << 16


class Link:
    """One connection through the proxy: the client's side and the server's."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.half = False
        self.deaf = False
        self.late: _Late | None = None

    def swallow_answers(self) -> None:
        """Let nothing more come from the server, and end the connection when it would have."""
        self.deaf = True

    def lose(self) -> bool:
        """For `Proxy.arm`: end the connection with what has just come, which is not handed on."""
        self.abort(reset=True)
        return False

    def abort(self, *, reset: bool) -> None:
        """End both sides at once; with `reset`, by RST, as a firewall does that has forgotten the connection."""
        for side in (self.client, None if self.late else self.server):
            if side is not None:
                _abort(side, reset=reset)


class _Late:
    """What a client has sent before it lost its connection, and the server is to get later."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self.chunk = b""
        self.answered = threading.Event()


class Proxy:
    """Listens on a port of its own and hands everything on to `target_port`, until told otherwise."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._links: set[Link] = set()
        self._refusing = False
        self._delay_s = 0.0
        self._armed: tuple[Callable[[bytes], bool], Callable[[Link], bool]] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._runs = threading.Event()
        self._ended = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"proxy {self.port}")
        self.bytes = 0

    # What may be called from any thread

    def cut(self, *, reset: bool = False) -> None:
        """End every connection; new ones are taken."""
        self._call(self._abort_all, reset)

    def refuse(self, refusing: bool) -> None:
        """End every connection and refuse new ones, until told otherwise."""

        def change() -> None:
            self._refusing = refusing
            if refusing:
                self._abort_all(False)

        self._call(change)

    def delay(self, seconds: float) -> None:
        """Hand on everything so much later; 0 ends it."""

        def change() -> None:
            self._delay_s = seconds

        self._call(change)

    def swallow(self, swallowing: bool) -> None:
        """A black hole: connections stay and nothing passes, nor is a new one answered; later all of it goes on."""
        self._call(self._open.clear if swallowing else self._open.set)

    def half_open(self) -> None:
        """End every connection for the server only: the client hears nothing of it, nor anything else, ever again."""

        def change() -> None:
            for link in self._links:
                if link.server is not None:
                    link.half = True
                    _abort(link.server, reset=False)

        self._call(change)

    def arm(self, wanted: Callable[[bytes], bool], action: Callable[[Link], bool]) -> None:
        """Once: at the first chunk of a client that is `wanted`, do `action`, which says whether it is handed on."""
        self._armed = (wanted, action)

    def late(self, wanted: Callable[[bytes], bool]) -> Callable[[], bool]:
        """Once: a client loses its connection with a chunk that is `wanted`.

        Call what is returned to have the server get it all the same; it tells whether the server has answered.
        """
        late = _Late()

        def is_it(data: bytes) -> bool:
            late.chunk = data
            return wanted(data)

        def lose(link: Link) -> bool:
            late.link, link.late = link, late
            return link.lose()

        def hand_on() -> bool:
            assert late.link is not None, "it has not come yet"
            assert late.link.server is not None
            self._call(late.link.server.write, late.chunk)
            return late.answered.wait(10)

        self.arm(is_it, lose)
        return hand_on

    @property
    def waiting(self) -> bool:
        """Whether what was armed has not come yet."""
        return self._armed is not None

    def disarm(self) -> bool:
        """Forget what was armed; whether it was still waiting."""
        waiting, self._armed = self._armed is not None, None
        return waiting

    # Inside the loop

    def _abort_all(self, reset: bool) -> None:
        for link in list(self._links):
            link.abort(reset=reset)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            _abort(writer, reset=True)
            return
        link = Link(writer)
        self._links.add(link)
        try:
            await self._open.wait()
            from_server, link.server = await asyncio.open_connection("127.0.0.1", self._target_port)
            await asyncio.gather(
                self._pump(reader, link, link.server, self._upward), self._pump(from_server, link, writer, None)
            )
        except OSError:
            pass
        finally:
            self._links.discard(link)
            link.late = None
            link.abort(reset=False)

    def _upward(self, link: Link, data: bytes) -> bool:
        armed = self._armed
        if armed is None or not armed[0](data):
            return True
        self._armed = None
        return armed[1](link)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        link: Link,
        writer: asyncio.StreamWriter,
        look: Callable[[Link, bytes], bool] | None,
    ) -> None:
        try:
            while data := await reader.read(CHUNK_BYTES):
                self.bytes += len(data)
                if look is not None and not look(link, data):
                    continue
                if look is None and link.late is not None:
                    link.late.answered.set()
                if look is None and link.deaf:
                    break
                await self._open.wait()
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                if not link.half:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            if look is None and link.half:
                return  # the server's side is gone, and the client must not know
        if look is None and link.half:
            return
        link.abort(reset=False)

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._serve, sock=self._listening, limit=CHUNK_BYTES)
        self._runs.set()
        await self._ended.wait()
        server.close()
        self._abort_all(False)
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await asyncio.sleep(0.05)  # transports close in the loop's next turns

    def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(function, *arguments)

    def __enter__(self) -> Self:
        self._thread.start()
        self._runs.wait(5)
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._ended.set)
        self._thread.join(5)


def is_produce(data: bytes) -> bool:
    """Whether a chunk begins with Kafka's Produce request: 4 bytes of length, then the number of the request."""
    return data[4:6] == b"\x00\x00"


def is_list_offsets(data: bytes) -> bool:
    """Whether it begins with ListOffsets."""
    return data[4:6] == b"\x00\x02"


def is_end_of_transaction(data: bytes) -> bool:
    """Whether it begins with EndTxn."""
    return data[4:6] == b"\x00\x1a"


def _abort(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    if reset:
        with contextlib.suppress(OSError, AttributeError):
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
