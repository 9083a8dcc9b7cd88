"""The alert rules and the dashboard: they parse, and ask for metrics and labels that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from crossstream.metrics.table import METRICS, prometheus_names

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"
NAME = re.compile(r"\bcrossstream_\w+")
SELECTOR = re.compile(r"(crossstream_\w+)\{([^}]*)\}")
BY = re.compile(r"\bby \(([^)]*)\)")

LABELS = {metric.prometheus: {"application", *metric.labels} for metric in METRICS}
BUCKETS = {name: {"application", "le"} for name in prometheus_names() - LABELS.keys()}


def rules() -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    groups = yaml.safe_load((FOLDER / "crossstream-alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "crossstream-dashboard.json").read_text())
    return found


def check(expression: str) -> None:
    """Names exist, selectors and groupings use their labels, brackets match."""
    names = set(NAME.findall(expression))
    assert names, expression
    assert names <= prometheus_names(), expression
    labels = LABELS | BUCKETS
    for name, selector in SELECTOR.findall(expression):
        used = {part.partition("=")[0].rstrip("!~ ") for part in selector.split(",")}
        assert used <= labels[name], (expression, used)
    for grouped in BY.findall(expression):
        wanted = {one.strip() for one in grouped.split(",")}
        assert all(wanted <= labels[name] for name in names), expression
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing), expression


def test_four_alert_rules() -> None:
    assert len(rules()) == 4
    page = (FOLDER.parent / "metrics.md").read_text(encoding="utf-8")
    for rule in rules():
        check(rule["expr"])
        assert rule["alert"] in page
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}
        for label in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
            assert all(label in grouped for grouped in BY.findall(rule["expr"])), rule


def test_the_dashboard_asks_for_what_exists() -> None:
    panels = dashboard()["panels"]
    for panel in panels:
        for target in panel["targets"]:
            check(target["expr"])
    variable = dashboard()["templating"]["list"][1]["query"]["query"]
    check(variable)
    asked = {name for panel in panels for target in panel["targets"] for name in NAME.findall(target["expr"])}
    assert {"crossstream_lag_records", "crossstream_batch_seconds_bucket", "crossstream_state_bytes"} <= asked


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells


@pytest.mark.parametrize(
    "expression",
    ["crossstream_lags > 1", 'crossstream_lag_records{store="a"}', "sum by (sink) (crossstream_lag_records)"],
)
def test_a_wrong_expression_is_found(expression: str) -> None:
    with pytest.raises(AssertionError):
        check(expression)
