"""What every operator has in a task: its step, what the task shares, the stores it may open.

A runner takes the changes of its input flows and emits changes of its output flow. Row-wise operators emit results for
each piece at once; operators with state wait until all inputs of the round have arrived (`finish`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crossstream.columns.changes import Changes, concat_changes
from crossstream.columns.match_counts import Asked
from crossstream.columns.order import by_arrival
from crossstream.columns.values import Values
from crossstream.operators.global_join.global_table import History
from crossstream.operators.sink.shared_topics import SharedTopics
from crossstream.operators.table.kernel import (
    BEHIND,
    Rows,
    Versions,
    as_stored,
    latest_versions,
    lookup,
    versions_by_arrival,
    versions_by_time,
)
from crossstream.operators.table_join.kernel import Joined, Lookup
from crossstream.planning.plan import Flow, Plan, StoreDef
from crossstream.planning.steps import Step
from crossstream.runtime.bad_records import Failures, Part
from crossstream.runtime.batch import Batch, Report, Silence
from crossstream.runtime.services import Output, Settings
from crossstream.runtime.stores import Wholes
from crossstream.serdes import Serde
from crossstream.storage.columns import EMPTY_BYTES, Column
from crossstream.storage.snapshot import View

Emitted = Iterator[tuple[str, Changes]]

SomeKey = Callable[[], Values | None]
"""Returns a key of a side; None for a side without rows."""

_LONGEST = 100
"""Characters of a key that is shown."""


@dataclass(slots=True)
class OpenStore:
    """A store partition in a task: its snapshot with the batch's writes, and its stream time.

    ``horizon``: the oldest timestamp of its rows; ``clock``: the wall-clock time from which stream time advances
    without input; ``began``: the stream time before the batch.
    """

    definition: StoreDef
    view: View
    stream_time: int
    horizon: int = 0
    clock: int = 0
    began: int = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.stream_time

    def before(self) -> View:
        """The store before this batch."""
        return View(self.view.layout, self.view.slots)

    def heard(self, silence: Silence | None) -> None:
        """Notes input, if stream time advances without input."""
        if silence is not None:
            self.clock = silence.clock

    def moment(self, silence: Silence | None) -> int | None:
        """The stream time (ms) to advance to without input, if rows wait and input was missing for long enough."""
        if silence is None or not self.view.rows:
            return None
        heard = self.clock if self.clock <= silence.clock else silence.since  # the clock was set back
        silent = silence.clock - max(heard, silence.since) - silence.after
        if silent <= 0 or not self.view.has_live_from(self.horizon):
            return None
        self.clock = silence.clock - silence.after
        return self.stream_time + silent

    def taken(self, puts: Changes, bits: int) -> Versions:
        """The versions that a versioned table takes from a batch in arrival order."""
        store = self.definition
        assert store.history is not None
        if not store.results:
            return versions_by_time(puts, store.history, self.began)
        return versions_by_arrival(
            self.before(),
            puts,
            bits=bits,
            serde=store.value,
            history=store.history,
            stream_time=self.began,
            repeats=store.repeats,
        )

    def lookup_in(self, view: View) -> Lookup:
        """Looks up rows: in a versioned table the latest versions that are not deletes."""

        def rows(hashes: np.ndarray, keys: Column) -> Rows:
            serde = self.definition.value
            if self.definition.history is None:
                return lookup(view, hashes, keys, serde)
            latest = latest_versions(view, hashes, keys, serde)
            return replace(latest, present=latest.present & ~latest.values.missing())

        return rows


@dataclass(frozen=True, slots=True)
class Task:
    """What all runners of a task share. ``number``: its state partition, or its share of the source partitions."""

    plan: Plan
    batch: Batch
    report: Report
    failures: Failures
    settings: Settings
    output: Output
    stores: Callable[[str], OpenStore]
    to_driver: Callable[[str, bytes], None]
    wholes: Wholes
    record: Callable[[str, History], None]
    number: int
    shared: SharedTopics = field(default_factory=SharedTopics)

    def node(self, name: str) -> Any:
        return self.plan.topology[name]

    def flow(self, name: str) -> Flow:
        return self.plan.flows[name]


class Runner:
    """Runs a step. Row-wise operators override `accept`, operators with state `finish`."""

    def __init__(self, task: Task, step: Step) -> None:
        self.task = task
        self.step = step
        self.held: dict[str, list[Changes]] = {}

    def by_key(self) -> bool:
        """Whether the step may process ranges of key hashes one after the other.

        It may if no result depends on rows of other keys, and only the hash decides the order among keys.
        """
        return False

    def takes_tags(self) -> bool:
        """Whether it keeps or reads the tags of rows that branched (`columns/branch_order.py`)."""
        return False

    def accept(self, flow: str, changes: Changes) -> Emitted:
        """Takes a piece of an input flow; returns the results that it emits at once."""
        self.held.setdefault(flow, []).append(changes)
        return iter(())

    def finish(self) -> Emitted:
        """The results after all inputs."""
        return iter(())

    def arrived(self, flow: str) -> Changes | None:
        """All pieces of a flow in arrival order; None if it has no rows."""
        changes = self.gathered(flow)
        return None if changes is None else by_arrival(changes)

    def gathered(self, flow: str) -> Changes | None:
        """All pieces of a flow in the order they came: for a table just kept, that of the key hash."""
        parts = self.held.pop(flow, [])
        return concat_changes(parts) if parts else None

    def out(self) -> str:
        assert self.step.output is not None
        return self.step.output

    def writable(self, changes: Changes, part: Part, serde: Serde) -> Changes:
        """See `Failures.writable`."""
        return self.task.failures.writable(self.task.node(self.step.node), changes, part, serde)

    def as_stored(self, changes: Changes, serde: Serde) -> Changes:
        """The changes with values as a store of this serde holds them, without those that it cannot write."""
        changes = self.writable(changes, "value", serde)
        return replace(changes, value=as_stored(changes.value, serde))


def latest_only(runner: Runner, changes: Changes | None) -> Changes | None:
    """Drops and counts versions behind the latest one, which a join ignores (semantics 2.2.6)."""
    if changes is None or BEHIND not in changes.extra:
        return changes
    mark = changes.extra[BEHIND]
    runner.task.report.count_dropped(runner.step.node, {"out-of-order-version": int((mark == 1).sum())})
    kept = without_marks(changes.where(mark == 0))
    return kept if kept.rows else None


def without_marks(changes: Changes) -> Changes:
    """The changes of a versioned table without the marks of late versions."""
    extra = {name: column for name, column in changes.extra.items() if name != BEHIND}
    return changes if BEHIND not in changes.extra else replace(changes, extra=extra)


def emit_joined(runner: Runner, joined: Joined) -> Emitted:
    """Emits the results of a join, without the rows that its joiner failed on."""
    node = runner.task.node(runner.step.node)
    changes = joined.changes
    if joined.failures:
        runner.task.failures.failed(node, changes, joined.failures, joined.given)
        changes = changes.without([failure.row for failure in joined.failures])
    if changes.rows:
        runner.task.report.count_out(node.name, changes.rows)
        yield runner.out(), changes


def no_changes(key: Any, value: Any) -> Changes:
    """A side of a join without changes."""
    none = np.empty(0, np.int64)
    return Changes(Values(key, wire=EMPTY_BYTES), Values(value, wire=EMPTY_BYTES), none, none, none)


def report_asked(
    runner: Runner, asked: Asked, left: SomeKey, right: SomeKey, name: str | None = None
) -> None:
    """Adds the counts of an operator; ``name``: of one of its joins, if it has several."""
    operator, report = name or runner.step.node, runner.task.report
    report.count_asked(operator, asked.matched, asked.unmatched)
    if runner.task.batch.wants_keys and not asked.matched:
        report.note_keys({operator: (_shown(left()), _shown(right()))})


def _shown(key: Values | None) -> tuple[str, str] | None:
    return None if key is None else shown(key)


def shown(key: Values) -> tuple[str, str]:
    """A key as people read it: (its repr, its type and serde).

    >>> from crossstream import serdes
    >>> shown(Values(serdes.int64(), objects=[7]))
    ('7', 'int, int64')
    """
    serde = "no serde" if key.serde is None else key.serde.name
    try:
        value = key.objects()[0]
        text, kind = repr(value), type(value).__name__
    except Exception:  # a custom serde or class
        text, kind = repr(key.wire()[0].as_py()), "bytes"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…", f"{kind}, {serde}"
