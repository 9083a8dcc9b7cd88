"""The numbers that are exported, with their names, units and labels. docs/metrics.md is the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from crossstream.metrics.observation import Observation

Sample = tuple[tuple[str, ...], float]
"""The values of the labels, and the number."""

STATUSES = ("created", "running", "paused", "stopping", "stopped", "failed")

_UCUM = {"seconds": "s", "bytes": "By", "ratio": "1", "": "1"}


@dataclass(frozen=True, slots=True)
class Metric:
    """``name``: words with ``_``; ``labels``: beside ``application``, which all have.

    ``read``: a field of `Observation`, or a function of it: the number, None if there is none; with labels a mapping
    from the values of the first one, and so on.
    """

    kind: Literal["counter", "gauge"]
    name: str
    unit: str
    help: str
    read: str | Callable[[Observation], Any]
    labels: tuple[str, ...] = ()

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

    def samples(self, seen: Observation) -> Iterator[Sample]:
        """The numbers of this moment."""
        found = getattr(seen, self.read) if isinstance(self.read, str) else self.read(seen)
        return _flat(found, len(self.labels))


def _flat(found: Any, labels: int) -> Iterator[Sample]:
    if labels:
        for name, inner in found.items():
            for names, number in _flat(inner, labels - 1):
                yield (str(name), *names), number
    elif found is not None:
        yield (), found


def _seconds(times: Mapping[str, int]) -> dict[str, float]:
    return {name: milliseconds / 1000 for name, milliseconds in times.items()}


def _running_seconds(seen: Observation) -> float:
    return 0.0 if seen.running is None else max(0.0, seen.time - seen.running.since)


_counter, _gauge = partial(Metric, "counter"), partial(Metric, "gauge")

METRICS: tuple[Metric, ...] = (
    _gauge("lag", "records", "records that wait in a partition", "lag", ("topic", "partition")),
    _counter("read", "records", "records read by the sources", "read"),
    _counter("written", "records", "records written by the sinks", "written"),
    _counter("operator_in", "records", "records that came to an operator", "rows_in", ("operator",)),
    _counter("operator_out", "records", "records that an operator emitted", "rows_out", ("operator",)),
    _counter("dropped", "records", "records dropped by an operator", "dropped", ("operator", "reason")),
    _counter("dead_letter", "records", "records sent to a dead letter topic", "dead_letters"),
    _counter("join_matched", "rows", "rows of a join that found a partner", "matched", ("join",)),
    _counter("join_unmatched", "rows", "rows of a join that found no partner", "unmatched", ("join",)),
    _gauge(
        "join_fan_out",
        "rows",
        "the most left rows of a foreign-key join that one change of a right row met in a batch",
        "fan_out",
        ("join",),
    ),
    _counter("batch_phase", "seconds", "time of batches by phase; tasks add up", "phases", ("phase",)),
    _gauge(
        "stream_time",
        "seconds",
        "the latest timestamp that a source read",
        lambda o: _seconds(o.newest_read),
        ("source",),
    ),
    _gauge(
        "newest_result",
        "seconds",
        "the latest timestamp that a sink wrote",
        lambda o: _seconds(o.newest_written),
        ("sink",),
    ),
    _gauge(
        "waiting",
        "rows",
        "windows and other rows that wait only for a source partition that is behind",
        "waiting",
        ("operator",),
    ),
    _gauge(
        "state",
        "rows",
        "rows of a store on disk, replaced ones among them",
        "state_rows",
        ("store",),
    ),
    _gauge("state", "bytes", "bytes of a store on disk", "state_bytes", ("store",)),
    _gauge(
        "state_skew",
        "ratio",
        "rows of the largest state partition over the mean",
        "skew",
        ("store",),
    ),
    _gauge("batch_running", "seconds", "how long the present batch has run; 0: none runs", _running_seconds),
    _gauge(
        "last_batch",
        "",
        "number of the last committed batch",
        lambda o: None if o.last is None else o.last.batch,
    ),
    _gauge(
        "last_commit", "seconds", "when it was committed", lambda o: None if o.last is None else o.last.time
    ),
    _gauge(
        "status",
        "",
        "1 for the status that the application has",
        lambda o: {status: float(o.status == status) for status in STATUSES},
        ("status",),
    ),
)
"""All but the histogram `HISTOGRAM`. Times of day are seconds since the epoch."""

HISTOGRAM = "crossstream_batch_seconds"
"""How long batches took, from plan to commit; in OpenTelemetry ``crossstream.batch``."""


def prometheus_names() -> set[str]:
    """Every name that a scrape may contain."""
    return {metric.prometheus for metric in METRICS} | {
        f"{HISTOGRAM}_{suffix}" for suffix in ("bucket", "count", "sum")
    }
