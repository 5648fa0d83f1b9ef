"""The options of pgoutput, for START_REPLICATION and for pg_logical_slot_peek_binary_changes.

Before: the caller has the settings, and the version of the server.
After: `replication_stream` starts the stream with them; `cdcd peek` asks the server to decode with them.
Source: PostgreSQL, "Logical Streaming Replication Parameters", versions 14 to 18.
"""

from __future__ import annotations

from typing import Final

from cdcd.errors import RequestRejected
from cdcd.source.identifiers import publication_names

ORIGIN_SINCE: Final = 160_000
"""The first server version that knows the option `origin`."""


def streaming_mode(wanted: str, server_version: int) -> str:
    """How transactions in progress come: "off", "on" or "parallel". `wanted` may be "auto", too.

    `server_version` is a number such as 160004. Raises RequestRejected if the server is too old for "parallel".
    """
    if wanted == "auto":
        return "parallel" if server_version >= 160_000 else "on"
    if wanted == "parallel":
        _require(server_version, 16, "source.streaming = parallel", 'Set source.streaming = "auto"')
    return wanted


def start_options(
    publication: str,
    server_version: int,
    *,
    binary: bool,
    messages: bool,
    streaming: str = "off",
    two_phase: bool = False,
    origin: str = "any",
) -> dict[str, str]:
    """The options, by name. `streaming` is what `streaming_mode` returned; without it only whole transactions come.

    Raises RequestRejected if the server is too old for one of them.
    """
    options = {
        "proto_version": str(_protocol_version(streaming, two_phase=two_phase)),
        "publication_names": publication_names([publication]),
        "binary": str(binary).lower(),
        "messages": str(messages).lower(),
    }
    if streaming != "off":
        options["streaming"] = streaming
    if two_phase:
        _require(server_version, 15, "source.two_phase", "Set source.two_phase = false")
        options["two_phase"] = "on"
    if origin != "any":
        _require(server_version, ORIGIN_SINCE // 10_000, f"source.origin = {origin}", 'Set source.origin = "any"')
        options["origin"] = origin
    return options


def _protocol_version(streaming: str, *, two_phase: bool) -> int:
    """The lowest version of the protocol that supports these options."""
    if streaming == "parallel":
        return 4
    if two_phase:
        return 3
    return 1 if streaming == "off" else 2


def _require(server_version: int, major: int, setting: str, hint: str) -> None:
    if server_version < major * 10_000:
        raise RequestRejected(
            f"{setting} needs PostgreSQL {major}, this is {server_version // 10_000}", hint, code="server-too-old"
        )
