"""`cdcd status`: the status of the running daemon, once, for people and for scripts.

Before: `cli.main` has parsed the options. After: the daemon's monitoring port gives /status.json, which its page shows,
too; `monitoring.status_text` makes lines of it. `top` shows the same again and again.

Whatever answers at the port is not trusted: its answer is bounded, and its text does not steer the terminal.
"""

from __future__ import annotations

import http.client
import json
import sys
import urllib.error
from argparse import Namespace
from dataclasses import dataclass
from typing import Final, TextIO

from cdcd.cli.commands import Load
from cdcd.errors import FatalError, RetriableError, SettingsError
from cdcd.monitoring.http_server import url
from cdcd.monitoring.status_report import FORMAT, Document
from cdcd.monitoring.status_report import as_json as status_json
from cdcd.monitoring.status_request import status_body
from cdcd.monitoring.status_text import Display, lines
from cdcd.terminal.output import Control
from cdcd.terminal.screen import has_colour, size

ANSWER_WITHIN_S: Final = 5.0


class NoAnswer(RetriableError):
    """No daemon answers at the port."""


@dataclass(frozen=True)
class Page:
    """Where a daemon shows its status, and who it must be."""

    url: str
    slot: str = ""
    """Empty: whoever answers."""
    prefix: str = ""


def execute(args: Namespace, load: Load, out: TextIO) -> bool:
    """Show the status. Returns whether changes flow, or the daemon stands by."""
    return show(page(args, load), as_json=args.json, out=out)


def page(args: Namespace, load: Load) -> Page:
    """The daemon's page: of the option, or as the settings say. Raises SettingsError if they do not."""
    if args.url:
        return Page(str(args.url))
    settings = load().settings
    monitoring = settings.monitoring
    if monitoring.port == 0:
        raise SettingsError(
            "monitoring.port is 0: the daemon has taken a free port, and only its log names it",
            "Add --url URL, with the url of the log's first line",
            code="arguments-invalid",
        )
    return Page(url(monitoring.host, monitoring.port), settings.source.slot, settings.sink.prefix)


def show(where: Page, *, as_json: bool, out: TextIO) -> bool:
    """Show the status of the daemon whose page this is. Returns whether changes flow, or it stands by."""
    document = fetch(where)
    if as_json:
        out.write(f"{status_json(document)}\n")
    else:
        out.writelines(Control(f"{line}\n") for line in lines(document, display(out)))
    return bool(document["state"]["is_ready"] or document["state"]["name"] == "waiting")


def fetch(where: Page) -> Document:
    """The status of the daemon whose page this is.

    Raises NoAnswer if nobody answers, FatalError if somebody else does.
    """
    target = f"{where.url.rstrip('/')}/status.json"
    if not target.startswith(("http://", "https://")):
        raise _no_url(where.url)
    try:
        body = status_body(target, ANSWER_WITHIN_S)
    except urllib.error.HTTPError as error:
        raise _stranger(target, f"HTTP status {error.code}") from None
    except http.client.InvalidURL:
        raise _no_url(where.url) from None
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "reason", error)
        raise NoAnswer(
            f"no daemon answers at {target}: {getattr(why, 'strerror', None) or why}",
            "Is `cdcd run` started on this machine, or in this container? monitoring.port, or --url, says where",
            code="monitoring-unanswered",
        ) from None
    try:
        document: Document = json.loads(body)
        if document["format"] != FORMAT:
            raise FatalError(
                f"the daemon at {target} is of another version of cdcd",
                "Run the cdcd that the daemon was started with",
                code="monitoring-foreign",
            )
        lines(document, Display(80, has_blocks=True))  # whatever is missing is missed here
        found = document["source"]["slot"], document["sink"]["prefix"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
        raise _stranger(target, "no status of cdcd") from None
    if where.slot and found != (where.slot, where.prefix):
        raise FatalError(
            f"the daemon at {target} is another one: its slot is {found[0]} and its prefix {found[1]}, but the "
            f"settings name {where.slot} and {where.prefix}",
            "Look whether the daemon of these settings runs, and whether monitoring.port is its own. "
            f"cdcd status --url {where.url} shows the other one",
            code="monitoring-foreign",
        )
    return document


def _no_url(address: str) -> SettingsError:
    return SettingsError(
        f"{address} is no URL of a daemon", "Write it as http://127.0.0.1:9478/", code="arguments-invalid"
    )


def _stranger(target: str, what: str) -> FatalError:
    return FatalError(
        f"{target} answers, but not as a daemon of cdcd does: {what}",
        "Another program has the port: correct monitoring.port, or --url",
        code="monitoring-foreign",
    )


def display(out: TextIO) -> Display:
    """What the terminal of `out` can show."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    columns = size()[0] if out.isatty() else None
    return Display(columns, has_colour(out), has_blocks=encoding == "utf8")
