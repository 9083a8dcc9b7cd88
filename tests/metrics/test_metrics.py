"""Metrics of a running application: what a scrape gets, what OpenTelemetry gets, and what they cost when off."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import urllib.request
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

import crossstream as cs
from crossstream.application.local import LocalRounds
from crossstream.application.totals import Live, Totals
from crossstream.metrics.observation import BOUNDS, skew_of
from crossstream.metrics.table import METRICS, prometheus_names
from crossstream.task.batch import Report
from tests.faults.one_process import streams
from tests.metrics.shop import config_of, shop, write

Numbers = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(port: int) -> Numbers:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Numbers, name: str, **labels: str) -> float:
    return found[f"crossstream_{name}", tuple(sorted({"application": "shop", **labels}.items()))]


def test_a_scrape_has_every_number(tmp_path: Path) -> None:
    write(tmp_path, "orders", [("o1", {"customer": "c1"}, 5_000), ("o2", {"customer": "none"}, 7_000)])
    write(tmp_path, "customers", [("c1", {"name": "Ann"}, 1_000), (None, {"name": "lost"}, 1_000)])
    with streams(shop(), config_of(tmp_path, metrics_port=0)) as app:
        app.process_available()
        found, progress = scraped(app._monitoring.metrics_port), app.progress
        write(tmp_path, "orders", [("o3", {"customer": "c1"}, 9_000)])
        write(tmp_path, "customers", [("c1", {"name": "Bea"}, 9_500)])
        app.process_available()
        later = scraped(app._monitoring.metrics_port)
    assert value(found, "read_records_total") == 4
    assert value(found, "written_records_total") == 1
    assert value(found, "dropped_records_total", operator="customers", reason="null-key") == 1
    (join,) = progress.matched
    assert value(found, "join_matched_rows_total", join=join) == progress.matched[join] > 0
    assert value(found, "join_unmatched_rows_total", join=join) == progress.unmatched[join] > 0
    assert value(found, "state_bytes", store="details") == progress.state_bytes["details"]
    assert value(found, "lag_records", topic="orders", partition="0") == 0
    assert value(found, "stream_time_seconds", source="orders") == 7
    assert [number for (name, _), number in found.items() if name.endswith("newest_result_seconds")] == [5]
    assert value(found, "state_rows", store="details") == 1
    assert value(found, "status", status="running") == 0
    assert value(found, "batch_seconds_count") == value(found, "batch_seconds_bucket", le="+Inf") == 1
    assert value(later, "read_records_total") == 6
    assert value(later, "last_batch") == 1
    assert {name for name, _ in later} == prometheus_names() - {
        "crossstream_waiting_rows"
    }  # there are no windows


def test_lag_and_the_running_batch_show_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that came after the batch began count, too, though the loop has not seen them yet."""
    run, seen = LocalRounds.run, []

    def watched(self: LocalRounds, batch: Any, rows: Any) -> Any:
        if not seen:
            write(tmp_path, "orders", [("b", {"customer": "c"}, 2), ("c", {"customer": "c"}, 3)])
            app._runner.loop.ends = (0.0, {})  # as after a batch of some seconds
            seen.append(scraped(app._monitoring.metrics_port))
        return run(self, batch, rows)

    monkeypatch.setattr(LocalRounds, "run", watched)
    write(tmp_path, "orders", [("a", {"customer": "c"}, 1)])
    write(tmp_path, "customers", [])
    with streams(shop(), config_of(tmp_path, metrics_port=0)) as app:
        app.process_available()
        after = scraped(app._monitoring.metrics_port)
    assert value(seen[0], "lag_records", topic="orders", partition="0") == 3
    assert value(seen[0], "batch_running_seconds") > 0
    assert value(after, "batch_running_seconds") == 0


def test_a_port_that_is_taken_is_refused_before_anything_starts(tmp_path: Path) -> None:
    write(tmp_path, "orders", [])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = config_of(tmp_path, metrics_port=port, metrics_host="127.0.0.1")
        with (
            streams(shop(), config) as app,
            pytest.raises(cs.ConfigError, match=f"127.0.0.1:{port}") as caught,
        ):
            app.start()
    assert caught.value.code == "CS-201"


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with (
        streams(shop(), config_of(tmp_path, metrics_port=0)) as app,
        pytest.raises(cs.ConfigError, match="prometheus_client") as caught,
    ):
        app.start()
    assert "crossstream[metrics]" in str(caught.value)


def test_nothing_is_left_after_a_stop(tmp_path: Path) -> None:
    write(tmp_path, "orders", [])
    write(tmp_path, "customers", [])
    before = set(threading.enumerate())
    with streams(shop(), config_of(tmp_path, metrics_port=0)) as app:
        app.process_available()
        port = app._monitoring.metrics_port
    assert set(threading.enumerate()) <= before
    with pytest.raises(OSError, match="refused"):
        scraped(port)


def test_a_start_after_a_stop_counts_from_zero(tmp_path: Path) -> None:
    write(tmp_path, "orders", [("o1", {"customer": "c1"}, 5_000), ("o2", {"customer": "c1"}, 6_000)])
    write(tmp_path, "customers", [])
    with streams(shop(), config_of(tmp_path, metrics_port=0)) as app:
        app.process_available()
        before = app.progress.total_rows, value(scraped(app._monitoring.metrics_port), "read_records_total")
        app.stop()
        write(tmp_path, "orders", [("o3", {"customer": "c1"}, 9_000)])
        app.process_available()
        after = app.progress.total_rows, value(scraped(app._monitoring.metrics_port), "read_records_total")
    assert (before, after) == ((2, 2), (1, 1))


@pytest.mark.parametrize("settings", [{"metrics_port": 70_000}, {"ui_port": "80"}, {"metrics_host": ""}])
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    with pytest.raises(cs.ConfigError, match=next(iter(settings))):
        cs.StreamsConfig(application_id="a", **settings)


def test_one_port_is_not_given_twice() -> None:
    with pytest.raises(cs.ConfigError, match="metrics_port and ui_port are the same"):
        cs.StreamsConfig(application_id="a", metrics_port=9000, ui_port=9000)


def test_without_settings_nothing_is_imported() -> None:
    code = (
        "import sys, crossstream.spark.streams as s; "
        "print(*{'prometheus_client', 'opentelemetry', 'starlette', 'uvicorn'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


SINK = "a.to(b)"
COUNTED = st.dictionaries(st.sampled_from(["a", SINK]), st.integers(0, 9))
reports = st.builds(
    Report,
    rows_in=COUNTED,
    rows_out=COUNTED,
    dropped=st.dictionaries(
        st.sampled_from(["a: failed", "a: null-key", "lost by retention"]), st.integers(1, 9)
    ),
    newest=COUNTED,
    fan_out=COUNTED,
)


def copied() -> cs.Topology:
    builder = cs.StreamsBuilder()
    builder.stream("a").to("b")
    return builder.build()


@given(st.lists(st.tuples(reports, st.floats(0, 400)), max_size=8))
def test_sums_are_those_of_the_batches(batches: list[tuple[Report, float]]) -> None:
    totals, done = Totals("app", copied(), ["failed"]), [report for report, _ in batches]
    shown = [totals.add(n, report, {}, seconds, 0) for n, (report, seconds) in enumerate(batches)]
    seen = totals.observe(Live())
    assert seen.read == sum(one.rows for one in shown) == sum(one.rows_in.get("a", 0) for one in done)
    assert [one.total_rows for one in shown] == list(accumulate(one.rows for one in shown))
    assert seen.written == sum(one.rows_out.get(SINK, 0) for one in done)
    assert seen.dead_letters == sum(one.dropped.get("a: failed", 0) for one in done)
    assert sum(n for reasons in seen.dropped.values() for n in reasons.values()) == sum(
        n for one in done for n in one.dropped.values()
    )
    assert sum(seen.buckets) == len(done)
    assert len(seen.buckets) == len(BOUNDS) + 1
    assert sum(seen.buckets[: BOUNDS.index(1.0) + 1]) == sum(seconds <= 1 for _, seconds in batches)
    assert seen.newest_read.get("a") == max(
        (one.newest["a"] for one in done if "a" in one.newest), default=None
    )
    assert seen.fan_out == {
        name: max(one.fan_out[name] for one in done if name in one.fan_out)
        for name in {name for one in done for name in one.fan_out}
    }


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6))
def test_skew_is_one_where_rows_are_even(rows: list[int]) -> None:
    found = skew_of({f"s/{n}": (count, 0) for n, count in enumerate(rows)}, len(rows))
    assert (found == {}) == (sum(rows) == 0)
    if found:
        assert 1 - 1e-3 <= found["s"] <= len(rows)
        assert (found["s"] == 1) == (len(set(rows)) == 1) or found["s"] < 1.001


def test_names_are_those_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    for metric in METRICS:
        assert f"`{metric.prometheus}`" in page, metric.prometheus
        assert f"`{metric.opentelemetry}" in page, metric.opentelemetry
        for label in metric.labels:
            assert f"`{label}`" in page
