"""What the image is made of is pinned, and named in a bill of materials."""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from importlib.metadata import distribution, distributions
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml
from packaging.requirements import Requirement

from cdcd import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LOCKS = {name: (ROOT / ".build" / name).read_text() for name in ("image.lock", "wheel.lock", "release.lock")}
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
    extras = PROJECT["optional-dependencies"]
    for text in (*PROJECT["dependencies"], *extras["registry"], *extras["aws"]):
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
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${BUILD}", "${PYTHON}", "base"}
    installs = re.findall(r"pip install ([^&\n]+)", DOCKERFILE)
    assert installs
    for arguments in installs:
        assert "--require-hashes" in arguments or "/dist/" in arguments, arguments
        assert "--no-deps" in arguments, arguments


def test_the_image_runs_as_the_user_and_group_of_the_manifest() -> None:
    deployment = yaml.safe_load((ROOT / "deploy/kubernetes/base/deployment.yaml").read_text())
    context = deployment["spec"]["template"]["spec"]["securityContext"]
    user, group = context["runAsUser"], context["runAsGroup"]
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE) == [f"{user}:{group}"]
    assert f"--gid {group} cdcd" in DOCKERFILE
    assert f"--uid {user} --gid {group}" in DOCKERFILE


def test_the_image_names_no_health_check_because_oci_images_drop_it() -> None:
    assert "\nHEALTHCHECK" not in DOCKERFILE


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit(workflow: Path) -> None:
    uses = re.findall(r"uses: (.+)", workflow.read_text())
    assert uses
    for action in uses:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", action), action


@pytest.fixture
def sbom(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / ".build")
    return importlib.import_module("sbom")


@pytest.fixture
def licenses(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / ".build")
    return importlib.import_module("licenses")


class CdcdItself:
    """The distribution of cdcd, which the tests run from its sources."""

    metadata = {"Name": "cdcd", "License-Expression": "Apache-2.0"}  # noqa: RUF012 - a constant
    version = __version__
    files = ()
    requires = PROJECT["dependencies"]


def test_the_bill_of_materials_names_every_package_and_every_bundled_library(sbom: ModuleType) -> None:
    others = [each for each in distributions() if each.metadata["Name"].lower() != "cdcd"]
    bill = json.loads(json.dumps(sbom.bill_of_materials([CdcdItself(), *others], "python:3@sha256:0")))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/cdcd@{__version__}"
    assert bill["metadata"]["properties"] == [{"name": "cdcd:base-image", "value": "python:3@sha256:0"}]
    names = {each["name"].lower() for each in bill["components"]}
    assert {"psycopg", "confluent-kafka", "fastavro"} <= names
    assert any(name.startswith("libpq") for name in names)
    assert any(name.startswith("librdkafka") for name in names)
    [own] = [each for each in bill["dependencies"] if each["ref"] == f"pkg:pypi/cdcd@{__version__}"]
    assert any(ref.startswith("pkg:pypi/confluent-kafka@") for ref in own["dependsOn"])
    references = [each["bom-ref"] for each in bill["components"]]
    assert len(references) == len(set(references))


def test_the_bill_of_materials_names_what_the_bill_inside_a_wheel_names(sbom: ModuleType) -> None:
    bill = sbom.bill_of_materials([CdcdItself(), distribution("cryptography")])
    purls = [each.get("purl", "") for each in bill["components"]]
    assert any(purl.startswith("pkg:generic/openssl@") for purl in purls)


def test_the_bill_of_an_image_names_its_debian_packages_and_its_python(sbom: ModuleType, tmp_path: Path) -> None:
    debian(tmp_path, "libc6", "libstdc++6")
    python, libc, cxx = sbom.system_packages(tmp_path)
    assert (python["type"], python["name"]) == ("platform", "python")
    assert libc["purl"] == "pkg:deb/debian/libc6@1%2B2?arch=amd64&distro=debian-13"
    assert cxx["purl"].startswith("pkg:deb/debian/libstdc%2B%2B6@")


def debian(root: Path, *packages: str) -> None:
    """Write what a Debian image says of itself; `gone` is a package that was removed."""
    (root / "usr/lib").mkdir(parents=True)
    (root / "usr/lib/os-release").write_text('NAME="Debian"\nID=debian\nVERSION_ID="13"\n')
    (root / "var/lib/dpkg").mkdir(parents=True)
    entry = "Package: {}\nStatus: {} {}\nArchitecture: amd64\nVersion: 1+2\n"
    installed = [entry.format(name, "install ok", "installed") for name in packages]
    gone = entry.format("gone", "deinstall ok", "config-files")
    (root / "var/lib/dpkg/status").write_text("\n".join([*installed, gone]))


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        ("Apache-2.0", False), ("LGPL-3.0-only", False), ("GNU Lesser General Public License v3 (LGPLv3)", False),
        ("MIT OR GPL-2.0-only", False), ("GPL-3.0-or-later", True), ("AGPL-3.0-only", True), ("", True),
        ("GNU General Public License v2 (GPLv2)", True),
    ],
)  # fmt: skip
def test_a_license_that_would_reach_cdcd_is_refused(licenses: ModuleType, name: str, is_refused: bool) -> None:
    package = SimpleNamespace(metadata={"Name": "x", "License-Expression": name}, version="1", files=())
    package.metadata = Metadata(package.metadata)
    assert licenses.is_refused(package) == is_refused
    if is_refused:
        with pytest.raises(SystemExit, match="x: "):
            licenses.page([package])


class Metadata(dict[str, str]):
    """A package's metadata that has no classifiers."""

    def get_all(self, _name: str) -> None:
        return None


def test_every_dependency_of_cdcd_may_be_shipped_with_it_and_has_its_text(licenses: ModuleType) -> None:
    needed = [distribution(name) for name in pinned("image.lock") if is_here(name)]
    page = licenses.page(needed)
    assert f"psycopg {distribution('psycopg').version}: LGPL-3.0-only\n" in page
    assert "GNU LESSER GENERAL PUBLIC LICENSE" in page


def is_here(name: str) -> bool:
    return any(re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower() == name for each in distributions())
