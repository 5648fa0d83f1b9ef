"""`cdcd help`: shows a page of the manual, or lists the pages.

Before: `cli.main` has parsed the options. After: a person reads the page, in a pager if standard output is a terminal.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TextIO

from cdcd import manual
from cdcd.cli.commands import Load
from cdcd.terminal.output import Control


def execute(args: Namespace, load: Load, out: TextIO) -> bool:  # noqa: ARG001  # this command needs no settings
    """Show the page of a topic; without one, the topics."""
    if args.topic is None:
        width = max(map(len, manual.TOPICS))
        for group, topics in manual.GROUPS.items():
            out.write(f"{group}\n")
            out.writelines(f"  {topic:{width}}  {manual.title(topic)}\n" for topic in topics)
            out.write("\n")
        out.write("To read a page: cdcd help TOPIC. The options of a command: cdcd COMMAND --help.\n")
        out.write("Alerts, a dashboard, a systemd unit, a Helm chart and other files (deploy/...): cdcd files\n")
    elif out.isatty():
        import pydoc  # here: only a terminal has a pager

        pydoc.pager(manual.page(args.topic))
    else:
        out.write(Control(manual.page(args.topic)))
    return True
