"""Each number of the table reaches Prometheus, OpenTelemetry, the page and `Progress` with the same value."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

import crossstream as cs
from crossstream.application.totals import Live, Totals
from crossstream.metrics.observation import Observation, Running
from crossstream.metrics.opentelemetry import Telemetry, _Instruments
from crossstream.metrics.prometheus import Endpoint
from crossstream.metrics.table import METRICS, Metric
from crossstream.storage.root import root_of
from crossstream.task.batch import Report
from crossstream.task.counts import Counts
from crossstream.ui.server import Page
from crossstream.ui.source import Source

Samples = dict[tuple[str, ...], float]

SINK = "orders.to(out)"
COUNTED = {name: {"orders": 10 + n, SINK: 20 + n} for n, name in enumerate(f.name for f in fields(Counts))}
"""Every number that has one form everywhere, with a value of its own: a new one is among them."""

REPORT = Report(
    **COUNTED,
    dropped={"orders: null-key": 2, f"{SINK}: failed": 3},
    seconds={"round 0": 1.5},
    newest={"orders": 7_000, SINK: 5_000},
    state={"shops/0": (30, 300), "shops/1": (10, 100)},
    waiting={"orders/0": 4, "orders/1": 5},
)
LAG = {"orders": {0: 6, 1: 8}}


def totals() -> Totals:
    builder = cs.StreamsBuilder()
    builder.stream("orders").to("out")
    made = Totals("shop", builder.build(), dead=["failed"])
    made.add(3, REPORT, {"plan": 0.25}, 2.0, lag=14)
    return made


TOTALS = totals()
OBSERVATION = TOTALS.observe(Live("running", 2, Running(4, time.time() - 1, 9), LAG))


class Seen(Source):
    """What the page shows: always `OBSERVATION`."""

    def observe(self) -> Observation:
        return OBSERVATION

    def graph(self) -> bytes:
        return b"null"

    def open(self, name: str, as_of: int | None) -> cs.StoreReader:
        raise NotImplementedError


def samples(metric: Metric) -> Samples:
    return dict(metric.samples(OBSERVATION))


LABELS = {metric.prometheus: metric.labels for metric in METRICS}


@pytest.fixture(scope="module")
def prometheus() -> dict[str, Samples]:
    """What a scrape gets: by name and labels."""
    endpoint = Endpoint("127.0.0.1", 0, lambda: OBSERVATION)
    try:
        address = f"http://127.0.0.1:{endpoint.port}/metrics"
        text = urllib.request.urlopen(address, timeout=10).read().decode()
    finally:
        endpoint.close()
    found: dict[str, Samples] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels.pop("application") == "shop"
            labels = LABELS.get(sample.name, tuple(sample.labels))
            assert set(sample.labels) == set(labels)
            found.setdefault(sample.name, {})[tuple(map(sample.labels.__getitem__, labels))] = sample.value
    return found


@pytest.fixture(scope="module")
def opentelemetry() -> dict[str, Samples]:
    """What a reader of OpenTelemetry gets: by name and labels."""
    reader = InMemoryMetricReader()
    instruments = _Instruments(MeterProvider([reader]))
    telemetry = Telemetry("shop", lambda: OBSERVATION)
    instruments.applications.add(telemetry)
    data = reader.get_metrics_data()
    assert data is not None
    found: dict[str, Samples] = {}
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            attributes = dict(point.attributes or {})
            assert attributes.pop("application") == "shop"
            found.setdefault(metric.name, {})[tuple(map(str, attributes.values()))] = point.value
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The JSON that the page reads."""
    folder: Path = tmp_path_factory.mktemp("page")
    served = Page("127.0.0.1", 0, lambda: Seen(root_of(folder)), is_open=True)
    try:
        with urllib.request.urlopen(f"{served.address}api/observation", timeout=10) as answer:
            yield json.loads(answer.read())
    finally:
        served.close()


def flat(found: Any, labels: int) -> Samples:
    """Numbers in mappings in mappings, by the names that lead to them."""
    if not labels:
        return {(): found}
    return {(name, *rest): n for name, inner in found.items() for rest, n in flat(inner, labels - 1).items()}


def in_seconds(times: dict[str, int]) -> Samples:
    return {(name,): ms / 1000 for name, ms in times.items()}


STATUSES = ("created", "running", "paused", "stopping", "stopped", "failed")

ON_THE_PAGE: dict[str, Callable[[Any], Samples]] = {
    "stream_time": lambda p: in_seconds(p["newest_read"]),
    "newest_result": lambda p: in_seconds(p["newest_written"]),
    "batch_running": lambda p: {(): p["time"] - p["running"]["since"]},
    "last_batch": lambda p: {(): p["last"]["batch"]},
    "last_commit": lambda p: {(): p["last"]["time"]},
    "status": lambda p: {(one,): float(one == p["status"]) for one in STATUSES},
}
"""Numbers that the page has in a form of its own; all others are a field of the JSON."""

IN_PROGRESS: dict[str, Callable[[Any], Samples]] = {
    "lag": lambda p: {("orders", "0"): p["lag"] - 8, ("orders", "1"): p["lag"] - 6},
    "read": lambda p: {(): p["rows"]},
    "written": lambda p: {(): p["rows_out"][SINK]},
    "dropped": lambda p: {tuple(name.split(": ")): rows for name, rows in p["dropped"].items()},
    "dead_letter": lambda p: {(): p["dropped"][f"{SINK}: failed"]},
    "batch_phase": lambda p: {(name,): ms / 1000 for name, ms in p["phases"].items()},
    "stream_time": lambda p: in_seconds({"orders": p["newest"]["orders"]}),
    "newest_result": lambda p: in_seconds({SINK: p["newest"][SINK]}),
    "last_batch": lambda p: {(): p["batch"]},
}
"""Numbers that `Progress` has in a form of its own, after one batch; all others are a field of it."""

NOT_IN_PROGRESS = {"state_skew", "batch_running", "last_commit", "status"}
"""They are of the moment when metrics are read, or of the state partitions."""


def name_of(metric: Metric) -> str:
    return metric.prometheus


def test_every_number_that_batches_count_is_in_the_table() -> None:
    assert {one.name for one in fields(Counts)} <= {one.read for one in METRICS if isinstance(one.read, str)}


@pytest.mark.parametrize("metric", METRICS, ids=name_of)
def test_it_has_a_value_here(metric: Metric) -> None:
    """Else the other tests would compare nothing."""
    found = samples(metric)
    assert any(found.values())


@pytest.mark.parametrize("metric", METRICS, ids=name_of)
def test_prometheus_has_it(metric: Metric, prometheus: dict[str, Samples]) -> None:
    assert prometheus[metric.prometheus] == samples(metric)


@pytest.mark.parametrize("metric", METRICS, ids=name_of)
def test_opentelemetry_has_it(metric: Metric, opentelemetry: dict[str, Samples]) -> None:
    name = metric.opentelemetry + (f".{metric.unit}" if metric.name == "state" else "")
    assert opentelemetry[name] == samples(metric)


@pytest.mark.parametrize("metric", METRICS, ids=name_of)
def test_the_page_has_it(metric: Metric, page: dict[str, Any]) -> None:
    own = ON_THE_PAGE.get(metric.name)
    found = flat(page[str(metric.read)], len(metric.labels)) if own is None else own(page)
    assert found == samples(metric)


@pytest.mark.parametrize("metric", [one for one in METRICS if one.name not in NOT_IN_PROGRESS], ids=name_of)
def test_progress_has_it(metric: Metric) -> None:
    """After one batch the sums since the start are those of the batch."""
    progress = totals().add(3, REPORT, {"plan": 0.25}, 2.0, lag=14).to_dict()
    own = IN_PROGRESS.get(metric.name)
    found = flat(progress[str(metric.read)], len(metric.labels)) if own is None else own(progress)
    assert found == samples(metric)


def test_two_batches_count_twice_and_progress_has_the_last() -> None:
    made = totals()
    last, seen = made.add(4, REPORT, {}, 2.0, lag=0), made.observe(Live())
    assert {name: last.to_dict()[name] for name in COUNTED} == COUNTED
    for name in COUNTED.keys() - {"fan_out"}:
        assert getattr(seen, name) == {operator: 2 * n for operator, n in COUNTED[name].items()}
    assert seen.fan_out == COUNTED["fan_out"]
    assert (last.total_rows, seen.read) == (20, 20)
    assert last.total_dropped == {"orders: null-key": 4, f"{SINK}: failed": 6}
