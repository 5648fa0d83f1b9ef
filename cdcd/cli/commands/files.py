"""`cdcd files`: the files that the manual calls `deploy/...`, listed, printed, or written below a directory.

Before: `cli.main` has parsed the options. After: Prometheus, Grafana, systemd, Helm and others read the files.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TextIO

from cdcd.cli.commands import Load
from cdcd.cli.setup.files import write
from cdcd.errors import SettingsError
from cdcd.manual import shipped_files
from cdcd.terminal.output import Control
from cdcd.terminal.text_format import plural


def execute(args: Namespace, load: Load, out: TextIO) -> bool:  # noqa: ARG001  # this command needs no settings
    """List the files; or print those that are named; or, with `--to`, write them. Raises SettingsError."""
    if args.to is not None:
        _write([name for given in args.names for name in _named(given)] or shipped_files.names(), args, out)
    elif args.names:
        names = [_one(given) for given in args.names]
        out.writelines(Control(shipped_files.text(name)) for name in names)
    else:
        _list(out)
    return True


def _list(out: TextIO) -> None:
    for folder, about in shipped_files.FOLDERS.items():
        out.write(f"{about}\n")
        out.writelines(f"  {name}\n" for name in shipped_files.named(folder))
    out.write("\n")
    out.write("To print a file: cdcd files NAME. To write all of them into ./deploy: cdcd files --to deploy\n")


def _write(names: list[str], args: Namespace, out: TextIO) -> None:
    """Write the files, each at its own path below `--to`: the manual's paths hold below a directory named deploy."""
    files = {Path(args.to, name): shipped_files.text(name) for name in names}
    try:
        for folder in {path.parent for path in files}:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{error.filename} cannot be made: {error.strerror}"
        raise SettingsError(message, "Name another place with --to", code="arguments-invalid") from None
    write(files, force=args.force, option="--to")
    out.write(f"Wrote {plural(len(files), 'file')} below {args.to}\n")


def _named(given: str) -> list[str]:
    """The file or the files of the folder. Raises SettingsError if there is neither."""
    found = shipped_files.named(given)
    if not found:
        raise SettingsError(f"There is no file {given}", "cdcd files lists them", code="arguments-invalid")
    return found


def _one(given: str) -> str:
    """The file to print. Raises SettingsError for a folder."""
    name, *others = _named(given)
    if others:
        hint = f"Name a file of it, or write it: cdcd files {given} --to deploy"
        raise SettingsError(f"{given} is a folder of {len(others) + 1} files", hint, code="arguments-invalid")
    return name
