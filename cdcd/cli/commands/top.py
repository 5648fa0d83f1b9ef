"""`cdcd top`: the status of the running daemon on a terminal, live, for whom no browser reaches the page.

Before: `cli.main` has parsed the options. After: `status` asks the daemon, again and again.
"""

from __future__ import annotations

import time
from argparse import Namespace
from typing import TextIO

from cdcd.cli.commands import Load
from cdcd.cli.commands.status import NoAnswer, Page, display, fetch, page, show
from cdcd.monitoring.status_text import lines
from cdcd.terminal.screen import Screen
from cdcd.terminal.text_format import duration


def execute(args: Namespace, load: Load, out: TextIO) -> bool:
    """Show the status until Ctrl-C; once, as `cdcd status` does, if that is asked for or `out` is no terminal."""
    where = page(args, load)
    if args.json or args.once or not out.isatty():
        return show(where, as_json=args.json, out=out)
    _live(where, args.interval, out)
    return True


def _live(where: Page, interval_s: float, out: TextIO) -> None:
    document, silent_since_s = fetch(where), 0.0
    with Screen(out) as screen:
        while True:
            try:
                document, silent_since_s = fetch(where), 0.0
                screen.show(lines(document, display(out)))
            except NoAnswer as error:
                silent_since_s = silent_since_s or time.monotonic()
                silent = f"{error.message}, for {duration(time.monotonic() - silent_since_s)}. What it said last:"
                screen.show([display(out).cut(silent), "", *lines(document, display(out))])
            time.sleep(interval_s)
