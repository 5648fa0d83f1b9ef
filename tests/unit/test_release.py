"""A release has one version and one script; the workflow runs the script."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import tomllib
import zipfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from cdcd import __version__

ROOT = Path(__file__).parents[2]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
STEPS = ("sdist", "pure", "wheels", "test", "platforms", "papers", "image")


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / ".build")
    spec = importlib.util.spec_from_loader("release", SourceFileLoader("release", str(ROOT / ".build/release")))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def scan(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / ".build")
    return importlib.import_module("scan")


def test_the_version_is_in_one_place_and_what_must_repeat_it_agrees(release: ModuleType) -> None:
    assert release.version() == __version__
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert pyproject["project"]["dynamic"] == ["version"]
    assert pyproject["tool"]["hatch"]["version"] == {"path": "cdcd/__init__.py"}
    assert __version__ in (ROOT / "CHANGELOG.md").read_text()
    tags = [
        (path.name, tag)
        for path in (ROOT / "deploy").rglob("*.yaml")
        for tag in re.findall(
            r"^\s*(?:newTag: |appVersion: |image: cdcd:)[\"']?([^\"'\s]+)", path.read_text(), re.MULTILINE
        )
    ]
    assert tags
    assert {tag for _, tag in tags} == {__version__}, tags


@pytest.mark.parametrize(
    ("tag", "heading", "problem"),
    [
        ("v1.2.3", "## [1.2.3] - 2026-12-01", ""),
        ("1.2.3", "## [1.2.3] - 2026-12-01", "the tag is 1.2.3"),
        ("v1.2.4", "## [1.2.3] - 2026-12-01", "the tag is v1.2.4"),
        ("v1.2.3", "## [Unreleased]: 1.2.3", "has no section"),
        ("v1.2.3", "## [1x2.3] - 2026-12-01", "has no section"),
    ],
)
def test_only_a_tag_of_this_version_with_a_dated_section_is_released(
    release: ModuleType, tag: str, heading: str, problem: str
) -> None:
    changelog = f"# Changelog\n\n{heading}\n\n### Added\n"
    if not problem:
        release.check_tag(tag, "1.2.3", changelog)
        return
    with pytest.raises(release.Refused, match=problem):
        release.check_tag(tag, "1.2.3", changelog)


def test_a_wheel_must_have_the_files_that_lie_next_to_the_package(release: ModuleType, tmp_path: Path) -> None:
    packed = release.packed_files(ROOT)
    assert {"cdcd/deploy/prometheus/alerts.yml", "cdcd/deploy/helm/.helmignore", "cdcd/__init__.py"} <= packed
    assert not [name for name in packed if "compose" in name or name.startswith("deploy")]
    packer = release.Release.__new__(release.Release)
    packer.version = __version__
    packer._source = lambda: ROOT
    whole = {*packed, f"cdcd-{__version__}.dist-info/licenses/LICENSE"}
    for lacking, refused in ((set(), ""), ({"cdcd/deploy/grafana/cdcd.json"}, "lacks cdcd/deploy/grafana/cdcd.json")):
        wheel = tmp_path / "cdcd.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in sorted(whole - lacking):
                archive.writestr(name, "")
        if not refused:
            packer._check_wheel(wheel, is_compiled=False)
            continue
        with pytest.raises(release.Refused, match=refused):
            packer._check_wheel(wheel, is_compiled=False)


def steps_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = job["steps"]
    return steps


def calls() -> list[str]:
    """What the workflow hands to the script, a text a call."""
    ran = [step.get("run", "") for job in WORKFLOW["jobs"].values() for step in steps_of(job)]
    return [found for text in ran for found in re.findall(r"\.build/release (.*)", text)]


def test_the_workflow_runs_every_step_of_the_script_and_builds_nothing_by_itself() -> None:
    words = {word for call in calls() for word in call.split()}
    assert words >= {*STEPS}
    own = [step["run"] for job in WORKFLOW["jobs"].values() for step in steps_of(job) if "run" in step]
    assert not [text for text in own if re.search(r"pip wheel|python -m build|hatch|auditwheel|docker build", text)]


@pytest.mark.parametrize("job", WORKFLOW["jobs"])
def test_every_job_and_every_step_of_the_workflow_has_a_name_and_a_bound(job: str) -> None:
    description = WORKFLOW["jobs"][job]
    assert description["name"]
    assert description["timeout-minutes"] <= 60
    assert all(step.get("name") for step in steps_of(description))
    assert {
        *([description["needs"]] if isinstance(description.get("needs"), str) else description.get("needs", ()))
    } <= {*WORKFLOW["jobs"]}


def test_the_workflow_has_every_processor_and_every_python_of_a_release(release: ModuleType) -> None:
    wheels = WORKFLOW["jobs"]["wheels"]
    processors = [each["processor"] for each in wheels["strategy"]["matrix"]["include"]]
    assert tuple(processors) == release.PROCESSORS
    [call] = [call for call in calls() if call.startswith("wheels")]
    assert tuple(re.findall(r"--python (\S+)", call)) == release.PYTHONS
    assert tuple(WORKFLOW["jobs"]["install"]["strategy"]["matrix"]["python"]) == release.PYTHONS
    for each in wheels["strategy"]["matrix"]["include"]:
        assert re.fullmatch(rf"\S+_{each['processor']}:[\d.-]+@sha256:[0-9a-f]{{64}}", each["container"])


def test_a_started_workflow_publishes_nothing_and_a_tag_needs_all_checks() -> None:
    publish = WORKFLOW["jobs"]["publish"]
    assert publish["if"] == "github.event_name == 'push'"
    assert {*publish["needs"]} == {"files", "install", "image"}
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert [name for name, job in WORKFLOW["jobs"].items() if "permissions" in job] == ["publish"]


def image(root: Path) -> Path:
    """Write the root directory of an image in which nothing is wrong."""
    package = root / "opt/cdcd/lib/python3.13/site-packages/cdcd-0.1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.4\nName: cdcd\nVersion: 0.1.0\n")
    (root / "opt/cdcd/bin").mkdir()
    (root / "opt/cdcd/bin/cdcd").write_text("#!")
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/su").write_bytes(b"x" * 1000)
    (root / "tmp").mkdir()
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text("Package: libc6\nStatus: install ok installed\nVersion: 1\n")
    bill = {
        "metadata": {"component": {"purl": "pkg:pypi/cdcd@0.1.0"}},
        "components": [{"purl": "pkg:deb/debian/libc6@1?arch=amd64"}, {"purl": "pkg:generic/python@3.13.1"}],
    }
    (root / "opt/cdcd/sbom.cdx.json").write_text(json.dumps(bill))
    return root


def test_an_image_as_it_should_be_has_no_finding(scan: ModuleType, tmp_path: Path) -> None:
    root = image(tmp_path)
    found = [line for line in scan.findings(root) if "not root's" not in line]  # who runs the tests may not be root
    assert found == []
    sizes = scan.sizes(root)
    assert sizes["image"] > sizes["cdcd and its packages"] + 1000


@pytest.mark.parametrize(
    ("path", "mode", "finding"),
    [
        ("usr/bin/gcc", 0o755, "/usr/bin/gcc is a program that the daemon does not need"),
        ("usr/local/bin/pip3.13", 0o755, "/usr/local/bin/pip3.13 is a program that the daemon does not need"),
        ("usr/bin/su", 0o4755, "/usr/bin/su runs with another user's or group's rights"),
        ("usr/bin/wall", 0o2755, "/usr/bin/wall runs with another user's or group's rights"),
        ("etc/open", 0o666, "/etc/open may be written by everybody"),
        ("root/.cache/pip/http/x", 0o644, "/root/.cache is not empty"),
        ("var/lib/apt/lists/x", 0o644, "/var/lib/apt/lists is not empty"),
        ("src/x.py", 0o644, "/src is not empty"),
        ("opt/cdcd/.git/HEAD", 0o644, ".git of the repository"),
        ("opt/cdcd/lib/python3.13/site-packages/pip/x.py", 0o644, "site-packages/pip belongs to building or testing"),
    ],
)
def test_what_should_not_be_in_an_image_is_found(
    scan: ModuleType, tmp_path: Path, path: str, mode: int, finding: str
) -> None:
    root = image(tmp_path)
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("x")
    (root / path).chmod(mode)
    assert any(finding in line for line in scan.findings(root))


def test_a_bill_of_materials_that_names_other_packages_than_the_image_has_is_found(
    scan: ModuleType, tmp_path: Path
) -> None:
    root = image(tmp_path)
    other = root / "opt/cdcd/lib/python3.13/site-packages/librt-1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Name: librt\n")
    (root / "var/lib/dpkg/status").write_text("Package: perl\nStatus: install ok installed\nVersion: 1\n")
    found = scan.findings(root)
    assert "the Python package librt is not in the bill of materials" in found
    assert "the Debian package perl is not in the bill of materials" in found
    assert "the Debian package libc6 is in the bill of materials alone" in found
