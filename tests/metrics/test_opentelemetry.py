"""OpenTelemetry: numbers and spans reach the provider of the process. In one of its own: a provider is set once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from pathlib import Path
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

reader, spans = InMemoryMetricReader(), InMemorySpanExporter()
metrics.set_meter_provider(MeterProvider([reader]))
traces = TracerProvider()
traces.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(traces)

from tests.faults.one_process import streams
from tests.metrics.shop import config_of, shop, write
from crossstream.metrics.table import METRICS

folder = Path(sys.argv[1])
write(folder, "orders", [("o1", {"customer": "c1"}, 5_000)])
write(folder, "customers", [("c1", {"name": "Ann"}, 1_000)])

def read():
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {m.name: m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics if m.data.data_points}

for expected in (2, 0):
    with streams(shop(), config_of(folder)) as app:
        app.process_available()
        found = read()
        (point,) = found["crossstream.read"].data.data_points
        assert point.value == expected, point
        assert dict(point.attributes) == {"application": "shop"}
    assert "crossstream.read" not in read(), "a stopped application is reported"

def name_of(metric):
    return metric.opentelemetry + (f".{metric.unit}" if metric.name == "state" else "")

assert found["crossstream.lag"].unit == "{record}"
assert found["crossstream.batch"].unit == "s"
first = spans.get_finished_spans()
batch = [s for s in first if s.name == "crossstream batch"]
assert len(batch) == 1 and batch[0].attributes["crossstream.records"] == 2
inside = [s for s in first if s.parent is not None and s.parent.span_id == batch[0].context.span_id]
assert [s.name for s in inside] == [f"crossstream {p}" for p in ("plan", "run", "publish", "commit")]
assert all(batch[0].start_time <= s.start_time <= s.end_time <= batch[0].end_time for s in inside)
assert all(a.end_time == b.start_time for a, b in zip(inside, inside[1:]))
assert any(name.startswith("crossstream.task.") for name in inside[1].attributes)
print("ok")
"""


def test_numbers_and_spans_reach_the_provider(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, cwd=root, check=False
    )
    assert run.stdout.strip().endswith("ok"), run.stderr[-3000:]
