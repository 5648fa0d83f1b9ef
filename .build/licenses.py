"""Writes the licenses of an installation's packages to standard output: a line for each package, then the texts.

Before: cdcd and its pinned dependencies are installed: run it with the Python of that installation.
After: a release holds the file beside its wheels.
Source: Python, "Core metadata specifications" (License-Expression, License-File).

It ends with an error if a package names no license, or one that cdcd may not be shipped with. Wheels bring shared
libraries along, too: their texts are the packages' affair, and the bill of materials (sbom.py) names them.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution

from sbom import license_of, packages_here

REFUSED = re.compile(r"(?<![Ll])A?GPL|Affero|(?<!Lesser )General Public|SSPL|BUSL|Proprietary", re.IGNORECASE)
"""Licenses whose terms would reach cdcd itself, or that are none. LGPL (psycopg) binds psycopg alone."""
TEXT = re.compile(r"\.dist-info/(licen[cs]es/.*|(licen[cs]e|copying|notice)[^/]*)$", re.IGNORECASE)


def page(packages: list[Distribution]) -> str:
    """The whole text. Raises SystemExit with the packages that name no license, or a refused one."""
    packages = sorted(packages, key=lambda each: each.metadata["Name"].lower())
    if bad := [f"{each.metadata['Name']}: {license_of(each) or 'none'}" for each in packages if is_refused(each)]:
        raise SystemExit("a license that cdcd may not be shipped with: " + ", ".join(bad))
    table = [f"{each.metadata['Name']} {each.version}: {license_of(each)}" for each in packages]
    return "\n".join([*table, "", *(text for each in packages for text in texts(each))])


def is_refused(package: Distribution) -> bool:
    """Whether cdcd may not be shipped with it. Of licenses to choose from (OR), one that is not refused is enough."""
    choices = license_of(package).split(" OR ")
    return all(not each or REFUSED.search(each) is not None for each in choices)


def texts(package: Distribution) -> list[str]:
    """The license texts that its wheel has, each under a heading."""
    files = sorted(path for path in package.files or () if TEXT.search(path.as_posix()))
    return [
        f"{'=' * 80}\n{package.metadata['Name']} {package.version}: {path.name}\n\n{path.read_text()}" for path in files
    ]


if __name__ == "__main__":
    sys.stdout.write(page(packages_here()))
