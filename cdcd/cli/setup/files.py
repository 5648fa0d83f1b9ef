"""Writes the files of `cdcd init` and `cdcd files`, each whole or not at all. It overwrites only what it is told to.

Before: a command has the texts. After: a person reads them, and runs them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from cdcd.errors import SettingsError


def check_free(files: Mapping[Path, str], option: str) -> None:
    """Raise SettingsError if a file is there with another text. `option` says where they go."""
    taken = [str(path) for path, text in files.items() if path.exists() and _text(path) != text]
    if taken:
        hint = f"Name another place with {option}, or add --force to overwrite"
        exist = "exists" if len(taken) == 1 else "exist"
        raise SettingsError(f"{' and '.join(taken)} {exist} already", hint, code="arguments-invalid")


def write(files: Mapping[Path, str], *, force: bool, option: str = "--config") -> None:
    """Write the files. Raises SettingsError if one of them cannot be written, or is there and not `force`.

    `option`: the one that says where they go.
    """
    if not force:
        check_free(files, option)
    for path, text in files.items():
        try:
            _write(path, text, force=force)
        except FileExistsError:
            if _text(path) != text:  # it was made meanwhile
                raise SettingsError(
                    f"{path} exists already", "Add --force to overwrite it", code="arguments-invalid"
                ) from None
        except OSError as error:
            hint = f"Name another place with {option}"
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
