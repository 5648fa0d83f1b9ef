"""What the image is made of is pinned, and named in a bill of materials."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LOCKS = {name: (ROOT / ".build" / name).read_text() for name in ("image.lock", "wheel.lock")}
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def pinned(lock: str) -> dict[str, str]:
    """The version of each package in a lock file, by its normal name."""
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ;\\]+)", LOCKS[lock], re.MULTILINE))


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_of_a_lock_has_one_version_and_its_hashes(lock: str) -> None:
    entries = re.split(r"\n(?=[^\s#])", LOCKS[lock].partition("\n\n")[2] or LOCKS[lock])
    packages = [entry for entry in entries if not entry.startswith("#")]
    assert packages
    for package in packages:
        assert re.match(r"[a-z0-9-]+==[^ ;\\]+", package), package
        assert "--hash=sha256:" in package, package


def test_the_image_lock_holds_a_fitting_version_of_every_dependency() -> None:
    versions = pinned("image.lock")
    for text in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["registry"]):
        requirement = Requirement(text)
        version = versions[re.sub(r"[-_.]+", "-", requirement.name).lower()]
        assert requirement.specifier.contains(version), f"{version} does not fit {text}: run .build/lock"


def test_the_wheel_lock_holds_the_compiler_that_the_build_wants() -> None:
    hook = (ROOT / ".build" / "compile_hook.py").read_text()
    assert f'"mypy[mypyc]=={pinned("wheel.lock")["mypy"]}"' in hook
    assert "hatchling" in pinned("wheel.lock")


def test_the_image_takes_its_base_by_digest_and_its_packages_by_hash() -> None:
    [base] = re.findall(r"^ARG PYTHON=(.+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"[a-z0-9./-]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}", base)
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${BUILD}", "${PYTHON}"}
    installs = re.findall(r"pip install ([^&\n]+)", DOCKERFILE)
    assert installs
    for arguments in installs:
        assert "--require-hashes" in arguments or "/dist/" in arguments, arguments
        assert "--no-deps" in arguments, arguments


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit(workflow: Path) -> None:
    uses = re.findall(r"uses: (.+)", workflow.read_text())
    assert uses
    for action in uses:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", action), action


@pytest.fixture
def sbom() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sbom", ROOT / ".build" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class CdcdItself:
    """The distribution of cdcd, which the tests run from its sources."""

    metadata = {"Name": "cdcd", "License-Expression": "Apache-2.0"}  # noqa: RUF012 - a constant
    version = "0.1.0"
    files = ()
    requires = PROJECT["dependencies"]


def test_the_bill_of_materials_names_every_package_and_every_bundled_library(sbom: ModuleType) -> None:
    others = [each for each in distributions() if each.metadata["Name"].lower() != "cdcd"]
    bill = json.loads(json.dumps(sbom.bill_of_materials("python:3@sha256:0", [CdcdItself(), *others])))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/cdcd@0.1.0"
    assert bill["metadata"]["properties"] == [{"name": "cdcd:base-image", "value": "python:3@sha256:0"}]
    names = {each["name"].lower() for each in bill["components"]}
    assert {"psycopg", "confluent-kafka", "fastavro"} <= names
    assert any(name.startswith("libpq") for name in names)
    assert any(name.startswith("librdkafka") for name in names)
    [own] = [each for each in bill["dependencies"] if each["ref"] == "pkg:pypi/cdcd@0.1.0"]
    assert any(ref.startswith("pkg:pypi/confluent-kafka@") for ref in own["dependsOn"])
    references = [each["bom-ref"] for each in bill["components"]]
    assert len(references) == len(set(references))
