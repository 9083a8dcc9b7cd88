"""Prometheus: an HTTP server in the driver that answers with the numbers of this moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from crossstream.config import needs, not_opened
from crossstream.metrics.observation import BOUNDS, Observation
from crossstream.metrics.serving import SmallServer
from crossstream.metrics.table import HISTOGRAM, METRICS

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LABEL = "application"


def families(seen: Observation) -> Iterator[Metric]:
    """What a scrape gets."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    for metric in METRICS:
        kind: Any = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = kind(metric.prometheus, metric.help, labels=[LABEL, *metric.labels])
        for labels, number in metric.samples(seen):
            family.add_metric([seen.application, *labels], number)
        yield family
    histogram = HistogramMetricFamily(HISTOGRAM, "time of a batch, from plan to commit", labels=[LABEL])
    counts = accumulate(seen.buckets)
    bounds = [*map(str, BOUNDS), "+Inf"]
    histogram.add_metric([seen.application], list(zip(bounds, counts, strict=False)), seen.batch_seconds)
    yield histogram


class _Collector:
    def __init__(self, observe: Callable[[], Observation]) -> None:
        self._observe = observe

    def collect(self) -> Iterator[Metric]:
        return families(self._observe())

    def describe(self) -> list[Metric]:
        """Nothing is asked for when it is registered."""
        return []


class Endpoint:
    """Serves ``/metrics`` until `close`. Raises `ConfigError` CS-201 without prometheus-client, or a free port."""

    def __init__(self, host: str, port: int, observe: Callable[[], Observation]) -> None:
        with needs("metrics", "metrics_port"):
            from prometheus_client import CollectorRegistry, MetricsHandler
        registry = CollectorRegistry()
        registry.register(_Collector(observe))
        try:
            self._server = SmallServer(host, port, MetricsHandler.factory(registry))
        except OSError as error:
            raise not_opened("metrics_port", host, port, error) from error
        self.port = self._server.port
        self._server.begin("crossstream metrics")

    def close(self) -> None:
        """Stops serving."""
        self._server.end()
