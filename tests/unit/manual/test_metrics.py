"""The page of the metrics says what the code says. If a test fails because of a cell, it prints the right page."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from cdcd import manual
from cdcd.monitoring.identity import Identity
from cdcd.monitoring.metrics import METRICS, RELATIONS_MAX, Metric, Metrics
from cdcd.monitoring.status import Status

[GROUP] = yaml.safe_load((Path(__file__).parents[3] / "deploy" / "prometheus" / "alerts.yml").read_text())["groups"]
EXPRESSIONS = {rule["alert"]: rule["expr"] for rule in GROUP["rules"]}
ROW = re.compile(r"^\| `(cdcd_\w+)` \|(.*)\|$", re.MULTILINE)


def test_each_metric_has_one_row_with_its_kind_its_help_text_and_its_alerts() -> None:
    assert corrected() == manual.page("metrics"), f"the right page:\n\n{corrected()}"
    assert sorted(name for name, _ in ROW.findall(manual.page("metrics"))) == sorted(metric.name for metric in METRICS)


def test_each_row_says_what_is_healthy() -> None:
    assert [name for name, cells in ROW.findall(manual.page("metrics")) if not cells.split("|")[2].strip()] == []


def test_a_metric_that_an_alert_watches_says_what_to_do() -> None:
    for name, cells in ROW.findall(manual.page("metrics")):
        _, _, _, action, alert = cells.split("|")
        assert action.strip() or not alert.strip(), name


def test_each_alert_watches_a_metric_of_the_page() -> None:
    watching = {alert for metric in METRICS for alert in watchers(metric)}
    assert watching == {*EXPRESSIONS}


def test_the_metrics_that_the_page_names_exist() -> None:
    served = Metrics("pure").exposition(Status(Identity("1.0", "slot", "pub"), 1000.0), 1003.0, 9_500_000).decode()
    page = manual.page("metrics")
    named = {*re.findall(r"`((?:process|cdcd)_\w+)`", page)}
    assert {name for name in named if f"# HELP {name} " not in served} == set()


def test_the_bound_of_the_label_relation_is_that_of_the_code() -> None:
    assert f"After {RELATIONS_MAX:,} tables" in manual.page("metrics")


def test_no_sentence_is_wider_than_the_page() -> None:
    wide = [line for line in manual.page("metrics").splitlines() if len(line) > 130 and not line.startswith("|")]
    assert wide == []


def corrected() -> str:
    """The page with what the code and the alerts say."""
    metrics = {metric.name: metric for metric in METRICS}

    def row(found: re.Match[str]) -> str:
        name = found[1]
        metric = metrics.get(name)
        if metric is None:
            return f"(no metric {name})"
        healthy, action = (cell.strip() for cell in found[2].split("|")[2:4])
        watchers_ = ", ".join(f"`{alert}`" for alert in watchers(metric))
        return " ".join(f"| `{name}` | {kind(metric)} | {metric.help} | {healthy} | {action} | {watchers_} |".split())

    page = ROW.sub(row, manual.page("metrics"))
    missing = [f"(a row is missing: {name})\n" for name in metrics if f"| `{name}` |" not in page]
    return page + "".join(missing)


def kind(metric: Metric) -> str:
    """Its kind, its unit and its labels, as the page has them."""
    [unit] = re.findall(r"_(seconds|bytes)(?:_total)?$", metric.name) or [""]
    labels = " ".join(f"`{label}`" for label in metric.labels)
    return f"{metric.kind}{f', {unit}' if unit else ''}{f', by {labels}' if labels else ''}"


def watchers(metric: Metric) -> list[str]:
    """The alerts whose expression has this metric."""
    return [alert for alert, expression in EXPRESSIONS.items() if re.search(rf"\b{metric.name}\b", expression)]
