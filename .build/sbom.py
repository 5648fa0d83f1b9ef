"""Writes a software bill of materials of an installation, as CycloneDX 1.6 JSON, to standard output.

Before: the image build has installed cdcd and its pinned dependencies: run it with the Python of that installation.
After: the image holds the file next to the installation; scanners read it.
Source: CycloneDX, "JSON Reference"; package-url, "pypi"; Python, "Core metadata specifications".

It needs no network and no package but the standard library. It also names the shared libraries that wheels bring along,
such as libpq, OpenSSL and librdkafka, which no list of Python packages has. It has no time and no random number, so the
same installation gives the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
from hashlib import sha256
from importlib.metadata import Distribution, distributions
from typing import Any

_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def bill_of_materials(base: str, installed: list[Distribution]) -> dict[str, Any]:
    """The document for these distributions, one of which is cdcd. `base`: the image below, or empty."""
    by_name = {_normal(each.metadata["Name"]): each for each in installed}
    cdcd = by_name.pop("cdcd")
    properties = [{"name": "cdcd:base-image", "value": base}] if base else []
    libraries = [each for name in sorted(by_name) for each in _libraries(by_name[name])]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**_component(cdcd), "type": "application"}, "properties": properties},
        "components": [*(_component(by_name[name]) for name in sorted(by_name)), *libraries],
        "dependencies": [
            {"ref": _purl(each), "dependsOn": sorted(_purl(by_name[name]) for name in _needs(each) & by_name.keys())}
            for each in (cdcd, *(by_name[name] for name in sorted(by_name)))
        ],
    }


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
    elif (name := package.metadata.get("License", "").strip()) and "\n" not in name:
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


def _needs(package: Distribution) -> set[str]:
    matches = (_REQUIREMENT.match(requirement) for requirement in package.requires or ())
    return {_normal(match[0]) for match in matches if match}


def _purl(package: Distribution) -> str:
    return f"pkg:pypi/{_normal(package.metadata['Name'])}@{package.version}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    packages = [each for each in distributions() if _normal(each.metadata["Name"]) not in ("pip", "setuptools")]
    json.dump(bill_of_materials("".join(sys.argv[1:2]), packages), sys.stdout, indent=1, sort_keys=True)
