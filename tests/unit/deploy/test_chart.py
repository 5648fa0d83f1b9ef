"""The Helm chart says the same as the manifests for kustomize, and is what the API server takes.

The tests that render it need helm: `tests/run chart` builds one, and runs them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from support.chart import (
    CHART,
    COPIES,
    DEPLOY,
    SCHEMA,
    Manifest,
    config_schema,
    helm,
    kustomized,
    needs_helm,
    needs_kubectl,
    rendered,
)

import cdcd
from cdcd.config.loading import load

VERSIONS = ("1.30", "1.37")
OPERATOR = {"PodMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator, whose schemas are not the API server's."""

VALUES = sorted(path.name for path in (CHART / "ci").glob("*.yaml"))
each_values = pytest.mark.parametrize("values", VALUES)


def kind(found: list[Manifest], wanted: str) -> list[Manifest]:
    return [document for document in found if document["kind"] == wanted]


def settings_of(config_map: Manifest) -> dict[str, Any]:
    return tomllib.loads(config_map["data"]["cdcd.toml"])


# What each says differently, and why. A path begins with the kind; `*` stands for one name or number.
DIFFERENCES = {
    "*.metadata.namespace": "kustomize writes the namespace; helm gets it with the install",
    "*.metadata.labels.app.kubernetes.io/version": "only a chart has a version",
    "*.metadata.labels.app.kubernetes.io/managed-by": "Helm's own",
    "*.metadata.labels.helm.sh/chart": "Helm's own",
    "ConfigMap.metadata.name": "kustomize puts a hash of the content into the name, the chart into an annotation",
    "Deployment.spec.template.spec.volumes.config.configMap.name": "the same hash",
    "Deployment.spec.template.metadata.annotations": "the same hash",
    "Deployment.spec.template.spec.containers.cdcd.image": "the chart's tag is its appVersion, the base has none",
    "Deployment.spec.template.spec.containers.cdcd.imagePullPolicy": "the chart writes Kubernetes' default for a tag",
}


def differences(one: Any, other: Any, path: str) -> Iterator[str]:
    """The paths at which two objects differ. A list of named things is one of any order, as Kubernetes merges it."""
    one, other = by_name(one), by_name(other)
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            if name in one and name in other:
                yield from differences(one[name], other[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}"
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, f"{path}.{index}")
    elif one != other:
        yield path


def by_name(found: Any) -> Any:
    if isinstance(found, list) and found and all(isinstance(each, dict) and "name" in each for each in found):
        return {each["name"]: each for each in found}
    return found


def is_meant(path: str) -> bool:
    return any(re.fullmatch(re.escape(each).replace(r"\*", r"\w+"), path) for each in DIFFERENCES)


def daemons_of(values: str) -> list[Manifest]:
    """The objects of an instance, without what only the chart has: hooks, alerts, the dashboard."""
    found = [each for each in rendered(values) if "helm.sh/hook" not in each["metadata"].get("annotations", {})]
    return [each for each in found if each["metadata"]["name"] != "cdcd-dashboard" and each["kind"] != "PrometheusRule"]


def parsed(manifest: Manifest) -> Manifest:
    """The object, with its settings as values: their layout is no difference."""
    if manifest["kind"] != "ConfigMap":
        return manifest
    return manifest | {"data": settings_of(manifest)}


@needs_helm
@needs_kubectl
@pytest.mark.parametrize(("values", "overlay"), [("base.yaml", "base"), ("production.yaml", "overlays/production")])
def test_the_chart_makes_the_objects_that_kustomize_makes(values: str, overlay: str) -> None:
    ours = daemons_of(values)
    theirs = kustomized(overlay)
    assert sorted(each["kind"] for each in ours) == sorted(each["kind"] for each in theirs)
    for manifest in theirs:
        [other] = kind(ours, manifest["kind"])
        found = [*differences(parsed(manifest), parsed(other), manifest["kind"])]
        assert [path for path in found if not is_meant(path)] == []


@needs_helm
@needs_kubectl
def test_each_difference_that_is_meant_is_one() -> None:
    pairs = [("base.yaml", "base"), ("production.yaml", "overlays/production")]
    found = {
        path
        for values, overlay in pairs
        for manifest in kustomized(overlay)
        for other in kind(daemons_of(values), manifest["kind"])
        for path in differences(parsed(manifest), parsed(other), manifest["kind"])
    }
    for pattern in DIFFERENCES:
        matching = re.escape(pattern).replace(r"\*", r"\w+")
        assert any(re.fullmatch(matching, path) for path in found), pattern


@needs_helm
@each_values
def test_what_the_chart_makes_is_what_the_api_takes(values: str) -> None:
    for document in rendered(values):
        if document["kind"] not in OPERATOR:
            for version in VERSIONS:
                kubernetes_validate.validate(document, version, strict=True)


@needs_helm
@each_values
def test_the_chart_lints_without_a_warning(values: str) -> None:
    said = helm("lint", "--strict", CHART, "--values", CHART / "ci" / values)
    assert "[WARNING]" not in said
    assert "1 chart(s) linted, 0 chart(s) failed" in said


@needs_helm
@each_values
def test_the_settings_of_each_instance_are_settings(values: str, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "source__dsn").write_text("host=db dbname=shop user=cdcd")
    manifests = rendered(values)
    maps = {each["metadata"]["name"]: each for each in kind(manifests, "ConfigMap") if "cdcd.toml" in each["data"]}
    for deployment in kind(manifests, "Deployment"):
        text = maps[deployment["metadata"]["name"]]["data"]["cdcd.toml"]
        path = tmp_path / "cdcd.toml"
        path.write_text(text.replace("/run/secrets/cdcd", str(secrets)))
        settings = load(str(path)).settings
        [size] = [
            each["emptyDir"]["sizeLimit"]
            for each in deployment["spec"]["template"]["spec"]["volumes"]
            if each["name"] == "spool"
        ]
        assert settings.spool.bytes_max < int(size.removesuffix("Gi")) * 2**30, "the kubelet would evict the pod"
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["requests"]["ephemeral-storage"] == size


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda: rendered("two.yaml"), marks=needs_helm, id="helm"),
        pytest.param(lambda: kustomized("overlays/two"), marks=needs_kubectl, id="kustomize"),
    ],
)
def test_two_instances_in_one_namespace_do_not_see_each_others_pods(made: Callable[[], list[Manifest]]) -> None:
    manifests = made()
    deployments = kind(manifests, "Deployment")
    names = {each["metadata"]["labels"]["app.kubernetes.io/instance"] for each in deployments}
    assert names == {"cdcd-orders", "cdcd-stock"}
    pods = {
        labels["app.kubernetes.io/instance"]: labels
        for labels in (each["spec"]["template"]["metadata"]["labels"] for each in deployments)
    }
    assert pods.keys() == names
    selecting = 0
    for manifest in manifests:
        for selector in selectors(manifest):
            selecting += 1
            seen = {name for name, labels in pods.items() if selector.items() <= labels.items()}
            assert seen == {manifest["metadata"]["labels"]["app.kubernetes.io/instance"]}, manifest["kind"]
    assert selecting >= 9, "deployments, their spread, budgets, policies, monitors"
    for one, other in combinations(deployments, 2):
        maps = [each["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] for each in (one, other)]
        assert maps[0] != maps[1]
    for monitor in kind(manifests, "PodMonitor"):
        assert monitor["spec"]["jobLabel"] == "app.kubernetes.io/instance", "the alerts group by job"


def selectors(manifest: Manifest) -> Iterator[dict[str, str]]:
    """The labels by which an object finds pods."""
    spec = manifest.get("spec", {})
    if manifest["kind"] in ("Deployment", "PodDisruptionBudget", "PodMonitor"):
        yield spec["selector"]["matchLabels"]
    if manifest["kind"] == "Deployment":
        for spread in spec["template"]["spec"]["topologySpreadConstraints"]:
            yield spread["labelSelector"]["matchLabels"]
    if manifest["kind"] == "NetworkPolicy":
        yield spec["podSelector"]["matchLabels"]


@needs_helm
def test_a_job_is_none_of_the_daemons_pods_but_the_policy_lets_it_out() -> None:
    manifests = rendered("production.yaml")
    jobs = {each["metadata"]["name"]: each for each in kind(manifests, "Job")}
    commands = {name: " ".join(job["spec"]["template"]["spec"]["containers"][0]["args"]) for name, job in jobs.items()}
    assert commands == {
        "cdcd-check": "check --config /etc/cdcd/cdcd.toml",
        "cdcd-slot-create": "slot create --config /etc/cdcd/cdcd.toml",
        "cdcd-test": "check --config /etc/cdcd/cdcd.toml",
    }
    maps = {each["metadata"]["name"]: each for each in kind(manifests, "ConfigMap")}
    for job in jobs.values():
        labels = job["spec"]["template"]["metadata"]["labels"]
        for manifest in manifests:
            for selector in selectors(manifest):
                assert (selector.items() <= labels.items()) == (manifest["kind"] == "NetworkPolicy")
        [config] = [each for each in job["spec"]["template"]["spec"]["volumes"] if each["name"] == "config"]
        used = maps[config["configMap"]["name"]]
        assert settings_of(used) == settings_of(maps["cdcd"])
        hooks = [each["metadata"].get("annotations", {}).get("helm.sh/hook", "") for each in (job, used)]
        assert hooks[0] == hooks[1] or "pre-" not in hooks[0], "its settings are not there when it runs"


@needs_helm
def test_the_rules_are_the_alerts_and_each_names_its_runbook() -> None:
    [rule] = kind(rendered("production.yaml"), "PrometheusRule")
    wanted = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    for group in rule["spec"]["groups"]:
        for each in group["rules"]:
            url = each["annotations"].pop("runbook_url")
            assert url == f"https://runbooks.example.com/cdcd#{each['alert'].lower()}"
    assert rule["spec"] == wanted


@needs_helm
def test_the_dashboard_is_that_of_grafana() -> None:
    [found] = [
        each for each in kind(rendered("production.yaml"), "ConfigMap") if each["metadata"]["name"] == "cdcd-dashboard"
    ]
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(found["data"]["cdcd.json"]) == json.loads((DEPLOY / "grafana" / "cdcd.json").read_text())


@needs_helm
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "config.sink.boostrap_servers=k"], "additional properties 'boostrap_servers' not allowed"),
        (["--set", "config.sourc.slot=a"], "additional properties 'sourc' not allowed"),
        (["--set", "replica=3"], "additional properties 'replica' not allowed"),
        (["--set", "spool.size=500Mi"], "does not match pattern"),
        (["--set", "instances[0].replicas=1"], "missing property 'name'"),
        (["--set", "config.sink.bootstrap_servers=null"], "Set config.sink.bootstrap_servers"),
        (["--set", "jobs.check.enabled=true,serviceAccount.create=true"], "make it yourself, and name it"),
        (["--set", f"instances[0].name={'a' * 50}"], "is longer than 51 characters"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(options: list[str], said: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(said)):
        rendered("base.yaml", *options)


@needs_helm
def test_a_number_a_list_and_a_table_are_written_as_toml_has_them() -> None:
    values = (
        '{"spool": {"bytes_max": 19000000000}, "source": {"tables": ["a.*", "b.\\"c\\" \\u00e9"], "two_phase": true}}'
    )
    more = ["--set-json", f"config={values}", "--set", "config.sink.bootstrap_servers=k:1", "--set-string"]
    manifests = rendered("base.yaml", *more, "config.sink.topic_config.retention\\.ms=1000")
    [found] = kind(manifests, "ConfigMap")
    settings = settings_of(found)
    assert settings["spool"]["bytes_max"] == 19_000_000_000
    assert isinstance(settings["spool"]["bytes_max"], int)
    assert settings["source"] == {"tables": ["a.*", 'b."c" é'], "two_phase": True}
    assert settings["sink"]["topic_config"] == {"retention.ms": "1000"}


@needs_helm
def test_pods_restart_with_their_settings_only_if_they_shall() -> None:
    def annotations(*options: str) -> dict[str, str]:
        [deployment] = kind(rendered("base.yaml", *options), "Deployment")
        return deployment["spec"]["template"]["metadata"].get("annotations", {})

    other = ["--set", "config.snapshot.workers=3"]
    assert annotations() != annotations(*other)
    assert annotations("--set", "rollOnConfigChange=false") == annotations("--set", "rollOnConfigChange=false", *other)


def test_the_schema_knows_each_value_and_each_setting() -> None:
    schema = json.loads(SCHEMA.read_text())
    assert schema["$defs"]["config"] == config_schema(), "run: python tests/support/chart.py"
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values.keys() == schema["properties"].keys() - {"global"}
    shared = {"nameOverride", "fullnameOverride", "instances", "prometheusRule", "dashboard", "global"}
    assert schema["$defs"]["instance"]["properties"].keys() == schema["properties"].keys() - shared | {"name"}


def test_the_table_of_the_chart_has_each_value_with_its_default() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.*?) \|", (CHART / "README.md").read_text(), re.MULTILINE))
    assert rows.keys() == {*leaves(values)}
    for name, value in leaves(values).items():
        shown = rows[name].strip("`")
        if shown != "see values.yaml":
            assert yaml.safe_load(shown) == value, name


def leaves(values: Manifest, prefix: str = "") -> Manifest:
    """The values as the table has them: two levels deep at most."""
    found: Manifest = {}
    for name, value in values.items():
        if isinstance(value, dict) and value and not prefix and name not in WHOLE:
            found |= leaves(value, f"{name}.")
        else:
            found[prefix + name] = value
    return found


WHOLE = {"strategy", "resources", "livenessProbe", "readinessProbe", "podSecurityContext", "securityContext"}
"""These are Kubernetes' own, and have one row."""


def test_the_chart_has_the_version_of_cdcd() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == cdcd.__version__
    assert chart["version"] == cdcd.__version__


@pytest.mark.parametrize(("copy", "original"), COPIES.items(), ids=lambda path: path.name)
def test_alerts_and_dashboard_have_one_source(copy: Path, original: Path) -> None:
    assert copy.read_text() == original.read_text(), "run: python tests/support/chart.py"


TOKEN_PORT = {"ports": [{"port": 443}]}


@needs_helm
@pytest.mark.parametrize(
    "given",
    [
        "config.source.password_function=aws-rds-iam",
        "config.source.password_command[0]=gcloud",
        "config.sink.token_function=aws-msk-iam",
        r"config.sink.librdkafka.sasl\.oauthbearer\.method=oidc",
    ],
)
def test_a_log_in_that_asks_a_server_of_tokens_may_reach_it_and_no_other_may(given: str) -> None:
    [policy] = kind(rendered("production.yaml", "--set", given), "NetworkPolicy")
    assert TOKEN_PORT in policy["spec"]["egress"]
    [policy] = kind(rendered("production.yaml"), "NetworkPolicy")
    assert TOKEN_PORT not in policy["spec"]["egress"]
    [policy] = kind(
        rendered("production.yaml", "--set", given, "--set", "networkPolicy.tokenPorts=null"), "NetworkPolicy"
    )
    assert TOKEN_PORT not in policy["spec"]["egress"]


@needs_kubectl
def test_the_component_for_servers_of_tokens_opens_their_port(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY / "kubernetes", tmp_path / "kubernetes")
    overlay = tmp_path / "kubernetes" / "overlays" / "tokens"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(
        "resources: [../../base]\ncomponents: [../../components/token-servers]\n"
    )
    done = subprocess.run(["kubectl", "kustomize", overlay], capture_output=True, text=True, check=True)
    [policy] = kind(list(yaml.safe_load_all(done.stdout)), "NetworkPolicy")
    assert TOKEN_PORT in policy["spec"]["egress"]
