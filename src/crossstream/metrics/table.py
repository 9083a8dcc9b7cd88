"""The numbers that are exported, with their names, units and labels. docs/metrics.md is the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from crossstream.metrics.observation import Observation

Sample = tuple[tuple[str, ...], float]
"""The values of the labels, and the number."""

STATUSES = ("created", "running", "paused", "stopping", "stopped", "failed")

_UCUM = {"seconds": "s", "bytes": "By", "ratio": "1", "": "1"}


@dataclass(frozen=True, slots=True)
class Metric:
    """``name``: words with ``_``; ``labels``: beside ``application``, which all have."""

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    help: str
    labels: tuple[str, ...]
    samples: Callable[[Observation], Iterable[Sample]]

    @property
    def prometheus(self) -> str:
        """The name in Prometheus; counters end in ``_total``."""
        parts = ["crossstream", self.name, self.unit, "total" if self.kind == "counter" else ""]
        return "_".join(part for part in parts if part)

    @property
    def opentelemetry(self) -> str:
        """The name in OpenTelemetry."""
        return f"crossstream.{self.name.replace('_', '.')}"

    @property
    def ucum(self) -> str:
        """The unit in OpenTelemetry's form."""
        return _UCUM.get(self.unit, f"{{{self.unit.rstrip('s')}}}")


def _one(read: Callable[[Observation], float | None]) -> Callable[[Observation], Iterator[Sample]]:
    def samples(seen: Observation) -> Iterator[Sample]:
        number = read(seen)
        if number is not None:
            yield (), number

    return samples


def _by(
    read: Callable[[Observation], Mapping[str, Any]], scale: float = 1
) -> Callable[..., Iterator[Sample]]:
    def samples(seen: Observation) -> Iterator[Sample]:
        for name, number in read(seen).items():
            yield (name,), number / scale if scale != 1 else number

    return samples


def _by_two(
    read: Callable[[Observation], Mapping[str, Mapping[Any, int]]],
) -> Callable[..., Iterator[Sample]]:
    def samples(seen: Observation) -> Iterator[Sample]:
        for first, numbers in read(seen).items():
            for second, number in numbers.items():
                yield (first, str(second)), number

    return samples


def _status(seen: Observation) -> Iterator[Sample]:
    for status in STATUSES:
        yield (status,), float(seen.status == status)


def _running_seconds(seen: Observation) -> float:
    return 0.0 if seen.running is None else max(0.0, seen.time - seen.running.since)


METRICS: tuple[Metric, ...] = (
    Metric(
        "lag",
        "gauge",
        "records",
        "records that wait in a partition",
        ("topic", "partition"),
        _by_two(lambda o: o.lag),
    ),
    Metric("read", "counter", "records", "records read by the sources", (), _one(lambda o: o.read)),
    Metric("written", "counter", "records", "records written by the sinks", (), _one(lambda o: o.written)),
    Metric(
        "operator_in",
        "counter",
        "records",
        "records that came to an operator",
        ("operator",),
        _by(lambda o: o.rows_in),
    ),
    Metric(
        "operator_out",
        "counter",
        "records",
        "records that an operator emitted",
        ("operator",),
        _by(lambda o: o.rows_out),
    ),
    Metric(
        "dropped",
        "counter",
        "records",
        "records dropped by an operator",
        ("operator", "reason"),
        _by_two(lambda o: o.dropped),
    ),
    Metric(
        "dead_letter",
        "counter",
        "records",
        "records sent to a dead letter topic",
        (),
        _one(lambda o: o.dead_letters),
    ),
    Metric(
        "join_matched",
        "counter",
        "rows",
        "rows of a join that found a partner",
        ("join",),
        _by(lambda o: o.matched),
    ),
    Metric(
        "join_unmatched",
        "counter",
        "rows",
        "rows of a join that found no partner",
        ("join",),
        _by(lambda o: o.unmatched),
    ),
    Metric(
        "batch_phase",
        "counter",
        "seconds",
        "time of batches by phase; tasks add up",
        ("phase",),
        _by(lambda o: o.phases),
    ),
    Metric(
        "stream_time",
        "gauge",
        "seconds",
        "the latest timestamp that a source read",
        ("source",),
        _by(lambda o: o.newest_read, 1000),
    ),
    Metric(
        "newest_result",
        "gauge",
        "seconds",
        "the latest timestamp that a sink wrote",
        ("sink",),
        _by(lambda o: o.newest_written, 1000),
    ),
    Metric(
        "state",
        "gauge",
        "rows",
        "rows of a store on disk, replaced ones among them",
        ("store",),
        _by(lambda o: o.state_rows),
    ),
    Metric("state", "gauge", "bytes", "bytes of a store on disk", ("store",), _by(lambda o: o.state_bytes)),
    Metric(
        "state_skew",
        "gauge",
        "ratio",
        "rows of the largest state partition over the mean",
        ("store",),
        _by(lambda o: o.skew),
    ),
    Metric(
        "batch_running",
        "gauge",
        "seconds",
        "how long the present batch has run; 0: none runs",
        (),
        _one(_running_seconds),
    ),
    Metric(
        "last_batch",
        "gauge",
        "",
        "number of the last committed batch",
        (),
        _one(lambda o: None if o.last is None else o.last.batch),
    ),
    Metric(
        "last_commit",
        "gauge",
        "seconds",
        "when it was committed",
        (),
        _one(lambda o: None if o.last is None else o.last.time),
    ),
    Metric("status", "gauge", "", "1 for the status that the application has", ("status",), _status),
)
"""All but the histogram `HISTOGRAM`. Times of day are seconds since the epoch."""

HISTOGRAM = "crossstream_batch_seconds"
"""How long batches took, from plan to commit; in OpenTelemetry ``crossstream.batch``."""


def prometheus_names() -> set[str]:
    """Every name that a scrape may contain."""
    return {metric.prometheus for metric in METRICS} | {
        f"{HISTOGRAM}_{suffix}" for suffix in ("bucket", "count", "sum")
    }
