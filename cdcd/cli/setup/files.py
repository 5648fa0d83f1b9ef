"""Writes the files of `cdcd init`, each whole or not at all. It overwrites nothing unless it is told to.

Before: `init` has the texts. After: a person reads them, and runs them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from cdcd.errors import SettingsError


def check_free(files: Mapping[Path, str]) -> None:
    """Raise SettingsError if a file is there with another text."""
    taken = [str(path) for path, text in files.items() if path.exists() and _text(path) != text]
    if taken:
        are, others = ("exists", "another file") if len(taken) == 1 else ("exist", "others")
        hint = f"Name {others} with --config, or add --force to overwrite"
        raise SettingsError(f"{' and '.join(taken)} {are} already", hint, code="arguments-invalid")


def write(files: Mapping[Path, str], *, force: bool) -> None:
    """Write the files. Raises SettingsError if one of them cannot be written, or is there and not `force`."""
    if not force:
        check_free(files)
    for path, text in files.items():
        try:
            _write(path, text, force=force)
        except FileExistsError:
            if _text(path) != text:  # it was made meanwhile
                raise SettingsError(
                    f"{path} exists already", "Add --force to overwrite it", code="arguments-invalid"
                ) from None
        except OSError as error:
            hint = "Name another file with --config"
            message = f"{path} cannot be written: {error.strerror}"
            raise SettingsError(message, hint, code="arguments-invalid") from None


def _write(path: Path, text: str, *, force: bool) -> None:
    """Write a file next to its place, and put it there at once."""
    with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        made = Path(file.name)
        try:
            file.write(text)
            file.flush()
            made.chmod(0o755 if path.suffix == ".sh" else 0o644)
            if force:
                made.replace(path)
            else:
                os.link(made, path)  # unlike a rename, it fails if the file is there
        finally:
            with suppress(FileNotFoundError):
                made.unlink()


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
