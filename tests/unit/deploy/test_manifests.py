"""The files in `deploy/` are valid input for Kubernetes, Prometheus, Grafana and systemd.

The Kubernetes API's own schemas (from kubernetes-validate) validate the manifests. kubectl and promtool check them if
they are installed.
"""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cdcd import manual
from cdcd.config.loading import load
from cdcd.config.settings import Settings
from cdcd.monitoring.metrics import METRICS
from cdcd.sink.kafka.client_config import KafkaConnection, idempotent_producer_config

DEPLOY = Path(__file__).parents[3] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
VERSIONS = ("1.30", "1.37")
OURS = {"PodMonitor", "Kustomization", "Component"}
"""Kinds that are not the API server's own."""

kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl")
promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool (apt install prometheus)")
overlays = pytest.mark.parametrize("which", ["base", "overlays/small", "overlays/production"])


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def built(which: str) -> dict[str, dict[str, Any]]:
    """What `kubectl kustomize` makes of an overlay, by kind."""
    done = subprocess.run(["kubectl", "kustomize", KUBERNETES / which], capture_output=True, text=True, check=True)
    assert done.stderr == "", "kubectl warns"
    return {document["kind"]: document for document in documents(done.stdout)}


def run(*command: str | Path) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("path", sorted(KUBERNETES.rglob("*.yaml")), ids=lambda path: str(path.relative_to(KUBERNETES)))
@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_what_the_api_takes(path: Path, version: str) -> None:
    for document in documents(path.read_text()):
        if document["kind"] not in OURS:
            kubernetes_validate.validate(document, version, strict=True)


@kubectl
@overlays
def test_what_kustomize_makes_is_what_the_api_takes(which: str) -> None:
    made = built(which)
    for kind, document in made.items():
        if kind not in OURS:
            for version in VERSIONS:
                kubernetes_validate.validate(document, version, strict=True)
    deployment = made["Deployment"]["spec"]
    labels = deployment["template"]["metadata"]["labels"].items()
    [container] = deployment["template"]["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}
    assert deployment["selector"]["matchLabels"].items() <= labels
    assert made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"].items() <= labels
    assert {rule["port"] for entry in made["NetworkPolicy"]["spec"]["ingress"] for rule in entry["ports"]} == ports
    if "PodDisruptionBudget" in made:
        budget = made["PodDisruptionBudget"]["spec"]
        assert budget["selector"]["matchLabels"].items() <= labels
        assert budget["minAvailable"] < deployment["replicas"], "no node could ever be drained"
    if "PodMonitor" in made:
        monitor = made["PodMonitor"]["spec"]
        assert monitor["selector"]["matchLabels"].items() <= labels
        assert {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]} == ports


@kubectl
@overlays
def test_the_pods_fit_the_restricted_profile_and_have_no_secret_in_them(which: str) -> None:
    made = built(which)
    pod = made["Deployment"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    [container] = pod["containers"]
    context = container["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert {"livenessProbe", "readinessProbe"} <= container.keys()
    assert {"cpu", "memory", "ephemeral-storage"} <= container["resources"]["requests"].keys()
    assert "Secret" not in made
    kinds = {next(kind for kind in volume if kind != "name") for volume in pod["volumes"]}
    assert kinds == {"configMap", "secret", "emptyDir"}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


@kubectl
@overlays
def test_the_settings_of_an_overlay_are_settings(which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = built(which)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "source__dsn").write_text("host=db dbname=shop user=cdcd")
    text = made["ConfigMap"]["data"]["cdcd.toml"]
    assert "/run/secrets/cdcd" in text
    (tmp_path / "cdcd.toml").write_text(text.replace("/run/secrets/cdcd", str(tmp_path / "secrets")))
    settings = load(str(tmp_path / "cdcd.toml")).settings
    pod = made["Deployment"]["spec"]["template"]["spec"]
    [spool] = [volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume]
    assert spool["sizeLimit"] == "20Gi"
    assert settings.spool.bytes_max < 20 * 2**30
    mounts = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
    assert any(str(settings.spool.directory).startswith(mount) for mount in mounts)


MEBIBYTE = 1 << 20
QUANTITIES = {"Mi": MEBIBYTE, "G": 1 << 30}
LARGEST_CHANGE_BYTES = 128 * MEBIBYTE
"""What fits into the producer's queue."""


def memory_bytes(settings: Settings) -> dict[str, int]:
    """The bounds of the table in the manual, by their first words."""
    librdkafka = idempotent_producer_config(KafkaConnection("k", "c", settings.sink.librdkafka))
    kbytes, records = librdkafka["queue.buffering.max.kbytes"], librdkafka["queue.buffering.max.messages"]
    assert isinstance(kbytes, int)
    assert isinstance(records, int)
    return {
        "the program": 70 * MEBIBYTE,
        "transactions in progress": settings.spool.memory_bytes,
        "events that wait": settings.sink.queue_bytes_max,
        "records in librdkafka": kbytes * 1024 + records * 150,
        "what the daemon reads": 16 * MEBIBYTE,
        "the encoders": 1_000 * (12_000 + 20_000),
    }


def test_the_memory_that_is_granted_is_the_sum_of_the_bounds() -> None:
    [deployment] = documents((KUBERNETES / "base" / "deployment.yaml").read_text())
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    unit = (DEPLOY / "systemd" / "cdcd.service").read_text()
    granted = [container["resources"]["limits"]["memory"], re.findall(r"(?m)^MemoryMax=(.*)$", unit)[0]]
    page = manual.page("memory")
    for toml in [None, *KUBERNETES.rglob("cdcd.toml")]:
        given = tomllib.loads(toml.read_text()) if toml else {}
        given = {name: value for name, value in given.items() if isinstance(value, dict)}
        given["source"] = {"dsn": "d", **given.get("source", {})}
        given["sink"] = {"bootstrap_servers": "k", **given.get("sink", {})}
        bounds = memory_bytes(Settings.model_validate(given))
        total = sum(bounds.values())
        for quantity in granted:
            number, unit_of_it = re.fullmatch(r"(\d+)(\w+)", quantity).groups()  # type: ignore[union-attr]
            assert total + 3 * LARGEST_CHANGE_BYTES <= int(number) * QUANTITIES[unit_of_it], (toml, quantity)
            assert quantity in page
        if toml is None:
            for words, size in bounds.items():
                [line] = [line for line in page.splitlines() if line.startswith(f"| {words}")]
                assert f"| {round(size / MEBIBYTE)} MB" in line
            assert f"{sum(round(size / MEBIBYTE) for size in bounds.values())} MB with the defaults" in page


@promtool
def test_the_alerts_are_rules_and_fire_when_they_should() -> None:
    assert "SUCCESS" in run("promtool", "check", "rules", DEPLOY / "prometheus" / "alerts.yml")
    assert "SUCCESS" in run("promtool", "test", "rules", DEPLOY / "prometheus" / "alerts_test.yml")
    assert "SUCCESS" in run("promtool", "check", "config", DEPLOY / "prometheus" / "prometheus.yml")


def test_every_alert_has_a_cure_and_a_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
    tests = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yml").read_text())["tests"]
    asked = [entry for test in tests for entry in test.get("promql_expr_test", [])]
    for rule in rules:
        assert {"summary", "hint"} <= rule["annotations"].keys()
        wanted = {
            sample["value"]
            for entry in asked
            if f'alertname="{rule["alert"]}"' in entry["expr"]
            for sample in entry["exp_samples"]
        }
        assert wanted == {0, 1}, rule["alert"]


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:cdcd|process)_\w+", expression))


def exposed() -> set[str]:
    names = {metric.name for metric in METRICS} | {"process_resident_memory_bytes", "process_cpu_seconds_total"}
    return names | {f"{metric.name}_bucket" for metric in METRICS if metric.kind == "histogram"}


def test_alerts_and_dashboard_use_metrics_that_there_are() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
    for rule in rules:
        assert metrics_in(rule["expr"])
        assert metrics_in(rule["expr"]) <= exposed()
    panels = json.loads((DEPLOY / "grafana" / "cdcd.json").read_text())["panels"]
    shown: set[str] = set()
    for panel in panels:
        for target in panel.get("targets", []):
            assert metrics_in(target["expr"]) <= exposed(), panel["title"]
            shown |= {name.removesuffix("_bucket") for name in metrics_in(target["expr"])}
    assert {metric.name for metric in METRICS} - shown == {"cdcd_start_time_seconds"}, "who looks at these?"
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)


def test_the_systemd_unit_starts_what_the_settings_know(tmp_path: Path) -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "systemd" / "cdcd.service")
    service = unit["Service"]
    assert service["ExecStart"].split()[1:] == ["run", "--config", "/etc/cdcd/cdcd.toml"]
    assert service["LoadCredential"].startswith("source__dsn:")
    assert service["DynamicUser"] == service["NoNewPrivileges"] == "yes"
    if shutil.which("systemd-analyze"):
        copy = tmp_path / "cdcd.service"  # with a command that is there
        copy.write_text((DEPLOY / "systemd" / "cdcd.service").read_text().replace("/opt/cdcd/bin/cdcd", "/bin/true"))
        assert run("systemd-analyze", "verify", "--man=no", copy) == ""
