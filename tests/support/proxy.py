"""A TCP proxy on loopback that breaks connections as networks do: cut, reset, delay, swallow, half open.

Before: a client that connects to this proxy's port. After: a server on loopback.

The proxy runs one asyncio loop in its own thread. The methods that break connections may be called from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Collection
from typing import Any, Self

CHUNK_BYTES = 1 << 16
UNDER_WAY_MAX = 1000
"""How many chunks of one direction may be delayed at a time."""


class Link:
    """One connection through the proxy: the client's side and the server's."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.sender = 0
        """Who has connected, as `Proxy` was told to find out; 0: not known."""
        self.server: asyncio.StreamWriter | None = None
        self.is_half_open = False
        self.has_lost_client = False
        self.drops_answers = False
        self.late: Late | None = None

    def swallow_answers(self) -> None:
        """Hand on no more answers of the server: the next one ends the connection instead."""
        self.drops_answers = True

    def lose(self) -> bool:
        """End the connection, and drop the chunk that has just come. An action for `Proxy.arm`."""
        self.abort(reset=True)
        return False

    def abort(self, *, reset: bool) -> None:
        """End both sides at once. With `reset`, end them by RST, as a firewall does after it forgot a connection."""
        for side in (self.client, None if self.late else self.server):
            if side is not None:
                _abort(side, reset=reset)


class Armed:
    """An action that waits for the chunk that it is meant for."""

    def __init__(self, wanted: Callable[[bytes], bool], action: Callable[[Link], bool]) -> None:
        self.wanted = wanted
        self.action = action
        self.waiting = True
        """The chunk has not come yet, or the action is not done."""


class Late:
    """A chunk that a client sent before it lost its connection. The server gets it later."""

    def __init__(self, proxy: Proxy, wanted: Callable[[bytes], bool]) -> None:
        self._proxy = proxy
        self._wanted = wanted
        self._link: Link | None = None
        self._chunk = b""
        self.answered = threading.Event()
        self.armed = proxy.arm(self._is_it, self._lose)

    def hand_on(self) -> bool:
        """Send the chunk to the server. Returns whether the server has answered it."""
        assert self._link is not None, "it has not come yet"
        assert self._link.server is not None
        self._proxy.write(self._link.server, self._chunk)
        return self.answered.wait(10)

    def _is_it(self, data: bytes) -> bool:
        self._chunk = data
        return self._wanted(data)

    def _lose(self, link: Link) -> bool:
        self._link, link.late = link, self
        return link.lose()


class Proxy:
    """Listens on its own port, and hands everything on to `target_port` until a method breaks something."""

    def __init__(self, target_port: int, sender: Callable[[int, int], int] = lambda _from, _to: 0) -> None:
        """`sender` says who has connected from one port to another. Only `part` needs it."""
        self._target_port = target_port
        self._sender = sender
        self._parted: Collection[int] = ()
        self._joined = asyncio.Event()
        self._links: set[Link] = set()
        self._refusing = False
        self._delay_s = 0.0
        self._armed: list[Armed] = []
        self._loop: asyncio.AbstractEventLoop
        self._runs = threading.Event()
        self._ended = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"proxy {self.port}")
        self.bytes = 0

    # Methods that any thread may call

    def cut(self, *, reset: bool = False) -> None:
        """End every connection, but accept new ones."""
        self._call(self._abort_all, reset)

    def refuse(self, refusing: bool) -> None:
        """End every connection and refuse new ones; False accepts them again."""

        def change() -> None:
            self._refusing = refusing
            if refusing:
                self._abort_all(False)

        self._call(change)

    def delay(self, seconds: float) -> None:
        """Hand on every chunk so much later, with others under way, as over a distance. 0 ends the delay."""

        def change() -> None:
            self._delay_s = seconds

        self._call(change)

    def swallow(self, swallowing: bool) -> None:
        """Be a black hole: connections stay open, but nothing passes, also not of new ones. False lets it all pass."""
        self._call(self._open.clear if swallowing else self._open.set)

    def part(self, senders: Collection[int], *, reset: bool = False) -> None:
        """Let nothing pass from and to these senders, until `part(())`. With `reset`, their connections end, too."""

        def change() -> None:
            self._parted = senders
            (self._joined.clear if senders else self._joined.set)()
            for link in list(self._links):
                if reset and self._sender_of(link) in senders:
                    link.abort(reset=True)

        self._call(change)

    def half_open(self) -> None:
        """End every connection on the server's side only. The client is not told, and gets nothing more."""

        def change() -> None:
            for link in self._links:
                if link.server is not None:
                    link.is_half_open = True
                    _abort(link.server, reset=False)

        self._call(change)

    def lose_clients(self) -> None:
        """End every connection on the client's side only. The server is not told, and gets nothing more."""

        def change() -> None:
            for link in self._links:
                link.has_lost_client = True
                _abort(link.client, reset=True)

        self._call(change)

    def arm(self, wanted: Callable[[bytes], bool], action: Callable[[Link], bool]) -> Armed:
        """Do `action` at the next chunk of a client that is `wanted`. It returns whether to hand the chunk on.

        Of several that want a chunk, the first one gets it.
        """
        armed = Armed(wanted, action)
        self._armed.append(armed)
        return armed

    def late(self, wanted: Callable[[bytes], bool]) -> Late:
        """Hold back the next chunk of a client that is `wanted`, and end the client's connection."""
        return Late(self, wanted)

    def disarm(self, armed: Armed) -> bool:
        """Take an action away; returns whether it was still waiting for its chunk."""
        try:
            self._armed.remove(armed)
        except ValueError:
            return False
        return True

    def write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """Send data that no client sends now."""
        self._call(writer.write, data)

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
            await self._passage(link)
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

    async def _passage(self, link: Link) -> None:
        """Wait until something may pass."""
        await self._open.wait()
        while self._parted and self._sender_of(link) in self._parted:
            await self._joined.wait()

    def _sender_of(self, link: Link) -> int:
        """Who has connected. To find out takes long on a busy machine, so only `part` makes the proxy ask."""
        if not link.sender:
            link.sender = self._sender(link.client.get_extra_info("peername")[1], self.port)
        return link.sender

    def _upward(self, link: Link, data: bytes) -> bool:
        armed = next((each for each in list(self._armed) if each.wanted(data)), None)
        if armed is None or not self.disarm(armed):
            return True
        try:
            return armed.action(link)
        finally:
            armed.waiting = False

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        link: Link,
        writer: asyncio.StreamWriter,
        look: Callable[[Link, bytes], bool] | None,
    ) -> None:
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(UNDER_WAY_MAX)
        arrivals = asyncio.create_task(self._arrive(under_way, link, writer))
        try:
            while data := await reader.read(CHUNK_BYTES):
                self.bytes += len(data)
                if look is not None and not look(link, data):
                    continue
                if look is None and link.late is not None:
                    link.late.answered.set()
                if look is None and link.drops_answers:
                    break
                await self._passage(link)
                if self._delay_s:
                    await under_way.put((self._loop.time() + self._delay_s, data))
                else:
                    await under_way.join()
                    await _hand_on(link, writer, data)
            await under_way.join()
        except OSError:
            if look is not None and link.has_lost_client:
                return  # the client's side is gone, and the server must not know
            if look is None and link.is_half_open:
                return  # the server's side is gone, and the client must not know
        finally:
            arrivals.cancel()
        if (look is None and link.is_half_open) or (look is not None and link.has_lost_client):
            return
        link.abort(reset=False)

    async def _arrive(
        self, under_way: asyncio.Queue[tuple[float, bytes]], link: Link, writer: asyncio.StreamWriter
    ) -> None:
        """Hand on each chunk at its time."""
        while True:
            due_s, data = await under_way.get()
            await asyncio.sleep(due_s - self._loop.time())
            await self._passage(link)
            with contextlib.suppress(OSError):  # the writer's own side is read, too, and ends the link
                await _hand_on(link, writer, data)
            under_way.task_done()

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
        await asyncio.sleep(0.05)  # the loop closes transports in its next turns

    def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(function, *arguments)

    def __enter__(self) -> Self:
        self._thread.start()
        self._runs.wait(5)
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._ended.set)
        self._thread.join(5)


async def _hand_on(link: Link, writer: asyncio.StreamWriter, data: bytes) -> None:
    if not (link.is_half_open or link.has_lost_client):
        writer.write(data)
        await writer.drain()


def is_produce(data: bytes) -> bool:
    """Whether a chunk begins with Kafka's Produce request: 4 bytes of length, then the request's number."""
    return data[4:6] == b"\x00\x00"


def is_list_offsets(data: bytes) -> bool:
    """Whether a chunk begins with a ListOffsets request."""
    return data[4:6] == b"\x00\x02"


def is_end_of_transaction(data: bytes) -> bool:
    """Whether a chunk begins with an EndTxn request, which commits or aborts."""
    return data[4:6] == b"\x00\x1a"


def _abort(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    if reset:
        with contextlib.suppress(OSError, AttributeError):
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
