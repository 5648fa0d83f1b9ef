"""Writes a software bill of materials of an installation, as CycloneDX 1.6 JSON, to standard output.

Before: cdcd and its pinned dependencies are installed: run it with the Python of that installation.
After: the image holds the file next to the installation, and a release beside its wheels; scanners read it.
Source: CycloneDX, "JSON Reference"; package-url, "pypi" and "deb"; Python, "Core metadata specifications"; PEP 770.

It needs no network and no package but the standard library. It also names what wheels bring along, which no list of
Python packages has: their shared libraries, such as libpq, OpenSSL and librdkafka, and what their own bills name. It
has no time and no random number, so the same installation gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
from hashlib import sha256
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TOOLS = ("pip", "setuptools")
"""They install cdcd, and are no part of it."""


def bill_of_materials(
    installed: list[Distribution], base: str = "", system: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """The document for these distributions, one of which is cdcd. `base`: the image below, `system`: what it holds."""
    by_name = {_normal(each.metadata["Name"]): each for each in installed}
    cdcd = by_name.pop("cdcd")
    properties = [{"name": "cdcd:base-image", "value": base}] if base else []
    packages = [by_name[name] for name in sorted(by_name)]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**_component(cdcd), "type": "application"}, "properties": properties},
        "components": [
            *map(_component, packages),
            *(library for each in packages for library in _libraries(each)),
            *(part for each in packages for part in _parts(each)),
            *(system or ()),
        ],
        "dependencies": [
            {"ref": _purl(each), "dependsOn": sorted(_purl(by_name[name]) for name in _needs(each) & by_name.keys())}
            for each in (cdcd, *packages)
        ],
    }


def packages_here() -> list[Distribution]:
    """The packages of the Python that runs this, without the tools that installed them."""
    return [each for each in distributions() if _normal(each.metadata["Name"]) not in _TOOLS]


def license_of(package: Distribution) -> str:
    """The license that a package names: an SPDX expression, a name, or its classifiers; empty if it names none."""
    if expression := package.metadata.get("License-Expression"):
        return expression
    if (name := package.metadata.get("License", "").strip()) and "\n" not in name and name != "UNKNOWN":
        return name
    classifiers = package.metadata.get_all("Classifier") or []
    return "; ".join(each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License ::"))


def system_packages(root: Path) -> list[dict[str, Any]]:
    """The Debian packages that the image at this directory holds, and the Python that runs this."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', (root / "usr/lib/os-release").read_text(), re.MULTILINE))
    distro = f"{release['ID']}-{release.get('VERSION_ID', 'testing')}"
    version = platform.python_version()
    python = f"pkg:generic/python@{version}"
    components = [{"type": "platform", "bom-ref": python, "name": "python", "version": version, "purl": python}]
    for entry in (root / "var/lib/dpkg/status").read_text().split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Architecture|Status): (.*)$", entry, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            place = f"{release['ID']}/{quote(name, safe='')}@{quote(version, safe='')}"
            purl = f"pkg:deb/{place}?arch={fields['Architecture']}&distro={distro}"
            components.append({"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl})
    return components


def _component(package: Distribution) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": _purl(package),
        "name": package.metadata["Name"],
        "version": package.version,
        "purl": _purl(package),
    }
    if expression := package.metadata.get("License-Expression"):
        component["licenses"] = [{"expression": expression}]
    elif name := license_of(package):
        component["licenses"] = [{"license": {"name": name}}]
    return component


def _libraries(package: Distribution) -> list[dict[str, Any]]:
    """The shared libraries that the wheel brings along, in its directory `*.libs`."""
    files = sorted(path for path in package.files or () if path.parts[0].endswith(".libs"))
    return [
        {
            "type": "file",
            "bom-ref": f"{_purl(package)}#{path.as_posix()}",
            "name": path.name,
            "hashes": [{"alg": "SHA-256", "content": sha256(path.read_binary()).hexdigest()}],
        }
        for path in files
    ]


def _parts(package: Distribution) -> list[dict[str, Any]]:
    """What the wheel's own bills of materials name (PEP 770): crates, and the packages that libraries came from."""
    found: dict[str, dict[str, Any]] = {}
    for path in package.files or ():
        if ".dist-info/sboms/" in path.as_posix() and path.suffix == ".json":
            for part in json.loads(path.read_text()).get("components", ()):
                purl = part.get("purl", "").partition("?")[0]
                if purl and not purl.startswith("pkg:pypi/"):
                    reference = f"{_purl(package)}#{purl}"
                    names = {key: part[key] for key in ("name", "version") if key in part}
                    found[reference] = {"type": "library", "bom-ref": reference, **names, "purl": purl}
    return [found[reference] for reference in sorted(found)]


def _needs(package: Distribution) -> set[str]:
    matches = (_REQUIREMENT.match(requirement) for requirement in package.requires or ())
    return {_normal(match[0]) for match in matches if match}


def _purl(package: Distribution) -> str:
    return f"pkg:pypi/{_normal(package.metadata['Name'])}@{package.version}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the bill of materials of this Python's packages.")
    parser.add_argument("--base", default="", help="the name of the image that lies below")
    parser.add_argument("--root", type=Path, help="a directory with os-release and dpkg's status of that image")
    options = parser.parse_args()
    system = system_packages(options.root) if options.root else []
    json.dump(bill_of_materials(packages_here(), options.base, system), sys.stdout, indent=1, sort_keys=True)
