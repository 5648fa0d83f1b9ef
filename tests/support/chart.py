"""The Helm chart of `deploy/helm`, rendered by the `helm` on the PATH; the parts of it that other files give.

`python tests/support/chart.py` writes these parts anew: after a setting has come or gone, or an alert or panel changed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cdcd.config.settings import NAMES, TableSettings

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
CHART: Final = DEPLOY / "helm"
SCHEMA: Final = CHART / "values.schema.json"
KUBERNETES: Final = DEPLOY / "kubernetes"

COPIES: Final = {
    CHART / "files" / "alerts.yml": DEPLOY / "prometheus" / "alerts.yml",
    CHART / "files" / "dashboard.json": DEPLOY / "grafana" / "cdcd.json",
}
"""Helm reads files of the chart alone. (Copies, not links: a link does not survive every way that a checkout takes.)"""

needs_helm = pytest.mark.skipif(not shutil.which("helm"), reason="needs helm: tests/run chart builds it")
needs_kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl")

Manifest = dict[str, Any]


def documents(text: str) -> list[Manifest]:
    """The objects of a YAML stream."""
    return [document for document in yaml.safe_load_all(text) if document]


def helm(*arguments: str | Path) -> str:
    """Run helm; returns what it prints, and fails with what it says."""
    done = subprocess.run(["helm", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(values: str, *options: str, release: str = "cdcd") -> list[Manifest]:
    """What the chart makes of a file in `deploy/helm/ci`."""
    # A helm that `go install` has built takes Kubernetes for older than it is.
    arguments = ("--namespace", "cdcd", "--kube-version", "1.30.0", "--values", CHART / "ci" / values)
    return documents(helm("template", release, CHART, *arguments, *options))


def kustomized(which: str) -> list[Manifest]:
    """What kustomize makes of a folder in `deploy/kubernetes`."""
    done = subprocess.run(["kubectl", "kustomize", KUBERNETES / which], capture_output=True, text=True, check=True)
    assert done.stderr == "", "kubectl warns"
    return documents(done.stdout)


def config_schema() -> Manifest:
    """The schema of the value `config`: sections and names of all settings. cdcd checks their values."""
    sections = {section: _table({name: {} for name in model.model_fields}) for section, model in NAMES.sections.items()}
    return _table(
        sections | {"table": {"type": "array", "items": _table({name: {} for name in TableSettings.model_fields})}}
    )


def _table(properties: Manifest) -> Manifest:
    return {"type": "object", "additionalProperties": False, "properties": properties}


if __name__ == "__main__":
    schema = json.loads(SCHEMA.read_text())
    schema["$defs"]["config"] = config_schema()
    SCHEMA.write_text(json.dumps(schema, indent=2) + "\n")
    for copy, original in COPIES.items():
        shutil.copyfile(original, copy)
