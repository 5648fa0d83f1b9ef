"""Looks through the root directory of an image, and says what should not be there, and how large it is.

Before: .build/release has built the image, and unpacked or mounted it.
After: a finding ends the release.
Source: Open Container Initiative, "Image Format Specification"; CycloneDX, "JSON Reference".
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAMS = {"gcc", "cc", "c++", "ld", "as", "make", "git", "curl", "wget", "pip", "pip3", "uv", "ssh"}
"""A compiler, and what would fetch things: the daemon needs none of them."""
LEFTOVERS = (".git", ".build", ".github", "pyproject.toml", "Dockerfile", "cdcd.toml")
CACHES = ("root/.cache", "var/lib/apt/lists", "var/cache/apt/archives", "tmp", "var/tmp", "src", "dist")
PLACE = Path("opt/cdcd")
NAME = re.compile(r"^Name: (.+)$", re.MULTILINE)


def findings(root: Path) -> list[str]:
    """What should not be in the image whose root directory this is; a line each."""
    return [*_files(root), *_bill(root)]


def sizes(root: Path) -> dict[str, int]:
    """Bytes of the files, each inode once: of the whole image, and of cdcd with its packages."""
    seen: set[tuple[int, int]] = set()
    whole = own = 0
    for path in _walk(root):
        status = path.lstat()
        if (status.st_dev, status.st_ino) not in seen and not stat.S_ISDIR(status.st_mode):
            seen.add((status.st_dev, status.st_ino))
            whole += status.st_size
            own += status.st_size * path.is_relative_to(root / PLACE)
    return {"image": whole, "cdcd and its packages": own}


def _files(root: Path) -> Iterator[str]:
    for place in CACHES:
        if any(path.is_file() and path.lstat().st_size for path in _walk(root / place)):
            yield f"/{place} is not empty"
    for name in LEFTOVERS:
        if (root / name).exists() or (root / PLACE / name).exists():
            yield f"{name} of the repository"
    for path in _walk(root):
        inside = path.relative_to(root)
        mode = path.lstat().st_mode
        if path.parent.name in ("bin", "sbin") and (path.name in PROGRAMS or re.fullmatch(r"pip3?[.\d]*", path.name)):
            yield f"/{inside} is a program that the daemon does not need"
        if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
            yield f"/{inside} runs with another user's or group's rights"
        if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
            yield f"/{inside} may be written by everybody"
        if inside.is_relative_to(PLACE) and (path.name in ("pip", "setuptools") or "cdcd/tests" in str(inside)):
            yield f"/{inside} belongs to building or testing"
        if inside.is_relative_to(PLACE) and path.lstat().st_uid != 0:
            yield f"/{inside} is not root's: the daemon could change itself"


def _bill(root: Path) -> Iterator[str]:
    """Whether the bill of materials names every package that is there, and no other."""
    bill: dict[str, Any] = json.loads((root / PLACE / "sbom.cdx.json").read_text())
    named = [component.get("purl", "") for component in [bill["metadata"]["component"], *bill["components"]]]
    places = (root / PLACE).glob("lib/python3*/site-packages/*.dist-info/METADATA")
    python = {_normal(NAME.findall(path.read_text(errors="replace"))[0]) for path in places}
    yield from _differences("Python package", python, named, r"pkg:pypi/([^@?#]+)")
    status = root / "var/lib/dpkg/status"
    entries = status.read_text().split("\n\n") if status.exists() else []
    installed = [entry for entry in entries if re.search(r"^Status: .* installed$", entry, re.MULTILINE)]
    debian = {re.findall(r"^Package: (.+)$", entry, re.MULTILINE)[0] for entry in installed}
    yield from _differences("Debian package", debian, named, r"pkg:deb/[^/]+/([^@?#]+)")


def _differences(kind: str, there: set[str], purls: list[str], pattern: str) -> Iterator[str]:
    named = {match[1].replace("%2B", "+") for purl in purls if (match := re.match(pattern, purl))}
    for name in sorted(there - named):
        yield f"the {kind} {name} is not in the bill of materials"
    for name in sorted(named - there):
        yield f"the {kind} {name} is in the bill of materials alone"


def _walk(root: Path) -> Iterator[Path]:
    """Every file and directory below, in order; links are not followed, and what the kernel shows is left out."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name for name in folders if Path(folder, name) not in (root / "proc", root / "sys", root / "dev")
        )
        yield from (Path(folder, name) for name in sorted([*folders, *files]))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
