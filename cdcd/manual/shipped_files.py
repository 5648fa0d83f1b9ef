"""The files that the manual calls `deploy/...`: alerts, a dashboard, a systemd unit, a Helm chart and others.

Before: people write them in the checkout's `deploy/`; pyproject.toml puts them into the wheel, below the package.
After: `cdcd files` lists them, prints them, and writes them where they are needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDERS: Final = {
    "prometheus": "Prometheus: alerts with their tests, and how to scrape the daemon",
    "grafana": "Grafana: a dashboard",
    "systemd": "systemd: a unit",
    "postgres": "PostgreSQL: the SQL of least privilege for the default names; cdcd init writes it for yours",
    "kafka": "Kafka: the ACLs and the topics for the default names; cdcd init writes them for yours",
    "helm": "Kubernetes: a Helm chart",
    "kubernetes": "Kubernetes: manifests for kustomize",
    "spark": "Spark: all settings of a mirror, a job for spark-submit and for the Spark operator, examples",
}
"""What each folder is for. `deploy/compose` is not among them: it needs the tests of a checkout."""


def home() -> Path:
    """Where they lie: in the installed package, or next to the package in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "deploy"
    return installed if installed.is_dir() else package.parent / "deploy"


def names() -> list[str]:
    """All files, by their path below `deploy/`, a folder after the other."""
    found = [path for folder in FOLDERS for path in sorted((home() / folder).rglob("*")) if path.is_file()]
    # pip compiles the examples, too.
    return [path.relative_to(home()).as_posix() for path in found if path.suffix != ".pyc"]


def named(name: str) -> list[str]:
    """The file of this name, or all files of the folder; none if there is neither. It may begin with `deploy/`."""
    wanted = name.removeprefix("deploy/").rstrip("/")
    return [each for each in names() if each == wanted or each.startswith(f"{wanted}/")]


def text(name: str) -> str:
    """What one of the `names` holds."""
    return (home() / name).read_text(encoding="utf-8")
