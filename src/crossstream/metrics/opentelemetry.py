"""OpenTelemetry: metrics, and a span for each batch and phase, through the provider that the process has set up.

Without a provider the API does nothing, and nothing is exported. Instruments cannot be removed from a meter, so a
process has one set of them, which reports the applications that run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from crossstream.metrics.observation import Done, Observation
from crossstream.metrics.table import METRICS, Metric

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider
    from opentelemetry.metrics import Observation as Measured

PHASES = ("plan", "run", "publish", "commit")
"""Phases of the driver, which follow each other; those of tasks add up over tasks, and become attributes."""


def is_used() -> bool:
    """Whether the process uses OpenTelemetry: who sets up a provider has imported it."""
    return "opentelemetry.metrics" in sys.modules or "opentelemetry.trace" in sys.modules


class Telemetry:
    """One application's numbers and spans."""

    def __init__(self, application: str, observe: Callable[[], Observation]) -> None:
        from opentelemetry import metrics, trace

        self._application = application
        self.observe = observe
        self._tracer = trace.get_tracer("crossstream")
        self._instruments = _instruments(metrics.get_meter_provider())
        self._instruments.applications.add(self)

    def add(self, done: Done) -> None:
        """Records the time of a batch, and its spans, which end now."""
        from opentelemetry.trace import set_span_in_context

        self._instruments.batch.record(done.seconds, {"application": self._application})
        begun = int((done.time - done.seconds) * 1e9)
        attributes: dict[str, Any] = {
            "crossstream.application": self._application,
            "crossstream.batch": done.batch,
            "crossstream.records": done.rows,
        }
        batch = self._tracer.start_span("crossstream batch", attributes=attributes, start_time=begun)
        context, at = set_span_in_context(batch), begun
        tasks = {f"crossstream.task.{p}.ms": ms for p, ms in done.phases.items() if p not in PHASES}
        for phase in PHASES:
            until = at + int(done.phases.get(phase, 0.0) * 1e6)
            more = tasks if phase == "run" else None
            span = self._tracer.start_span(f"crossstream {phase}", context, attributes=more, start_time=at)
            span.end(until)
            at = until
        batch.end(max(at, int(done.time * 1e9)))

    def close(self) -> None:
        """Reports the application no longer."""
        self._instruments.applications.discard(self)


class _Instruments:
    """The instruments of a provider. ``applications``: those that are reported."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("crossstream")
        self.applications: WeakSet[Telemetry] = WeakSet()
        self.batch: Histogram = meter.create_histogram(
            "crossstream.batch", "s", "time of a batch, from plan to commit"
        )
        for metric in METRICS:
            make: Any = (
                meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
            )
            name = metric.opentelemetry + (f".{metric.unit}" if metric.name == "state" else "")
            make(name, [partial(self._measured, metric)], metric.ucum, metric.help)

    def _measured(self, metric: Metric, options: CallbackOptions) -> Iterator[Measured]:
        from opentelemetry.metrics import Observation as Measured

        for one in list(self.applications):
            seen = one.observe()
            for labels, number in metric.samples(seen):
                named = dict(zip(metric.labels, labels, strict=True))
                yield Measured(number, {"application": seen.application, **named})


@cache
def _instruments(provider: MeterProvider) -> _Instruments:
    return _Instruments(provider)
