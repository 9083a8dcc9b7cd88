"""What every operator at work in a task has: its step, what the task shares, the stores it may open.

A step takes the changes of its input flows and gives changes of its output flow. A row-wise step emits its answer to
each piece at once, so that a stack trace shows the steps that a record came through. A step with state collects its
pieces until all inputs of the round are there, and yields its results piece by piece (`finish`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crossstream.columns.changes import (
    Changes,
    Headers,
    JoinKind,
    LookupCounts,
    concat_changes,
    no_changes,
    some_key,
)
from crossstream.columns.field_of import FieldOf, names_in
from crossstream.columns.functions import Function
from crossstream.columns.order import by_arrival
from crossstream.columns.stream_time import SourceTimes, Timeline, counting
from crossstream.columns.values import Values
from crossstream.planning.plan import Flow, Plan, StoreDef
from crossstream.planning.steps import Step
from crossstream.planning.timelines import of_versions
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import Column
from crossstream.storage.files import Written
from crossstream.storage.log_entries import Silence
from crossstream.storage.snapshot import Marks, Snapshot
from crossstream.tables.global_tables import History
from crossstream.tables.join_spec import Emit, JoinSpec, Serdes, TableSide
from crossstream.tables.joined import Joined, Lookup
from crossstream.tables.rows import (
    BEHIND,
    TableRows,
    Versions,
    as_stored,
    latest_versions,
    lookup,
    versions_by_arrival,
    versions_by_time,
)
from crossstream.task.batch import Batch, Output, Report, Settings
from crossstream.task.failures import Failures, Part
from crossstream.task.missing_fields import LookUp
from crossstream.task.shuffle_codec import Hashes
from crossstream.task.stores import GlobalTables

Emitted = Iterator[tuple[str, Changes]]

SomeKey = Callable[[], Values | None]
"""Returns a key of a side; None for a side without rows."""

_LONGEST = 100
"""Characters of a key, or of a name, that is shown."""
_MANY = 20
"""Names of fields that are shown."""
_KNOWN_BY_SIDES = Serdes()
"""Of a join whose sides know their serdes themselves."""


@dataclass(slots=True)
class OpenStore:
    """A store partition in a task: what the batch sees and puts, and the stream time it moves.

    ``horizon``: the oldest timestamp it has rows of; ``clock``: from when on stream time moves without input.
    ``began``: the stream time before the batch. ``timeline``: stream time in the batch, of all state partitions; None:
    that of this one alone. ``marks``: see `Version`;
    ``marked``: those before the batch.
    """

    definition: StoreDef
    view: Snapshot
    stream_time: int
    horizon: int = 0
    clock: int = 0
    timeline: Timeline | None = None
    marks: Marks = field(default_factory=dict)
    began: int = field(init=False)
    marked: Marks = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.stream_time
        self.marked = self.marks

    def before(self) -> Snapshot:
        """The store as it was before this batch."""
        return Snapshot(self.view.layout, self.view.levels)

    def heard(self, silence: Silence | None) -> None:
        """Notes that there was input, where stream time moves without any."""
        if silence is not None:
            self.clock = silence.clock

    def passes(self, rows: Changes | None) -> Timeline:
        """Stream time in the batch; ``rows``: those that move it here, in order of arrival."""
        if self.timeline is not None:
            return self.timeline
        return Timeline(self.began) if rows is None else Timeline.of_rows(rows, self.began)

    def moment(self, silence: Silence | None, oldest: int | None = None) -> int | None:
        """To where stream time moves without input, if there was none for so long and rows wait here; in ms.

        ``oldest``: rows with older timestamps do not wait; None: those before the horizon. Of a table all rows do.
        """
        if silence is None or not self.view.rows:
            return None
        heard = self.clock if self.clock <= silence.clock else silence.since  # the clock was set back
        silent = silence.clock - max(heard, silence.since) - silence.after
        if silent <= 0 or not self.view.has_live_from(self.horizon if oldest is None else oldest):
            return None
        self.clock = silence.clock - silence.after
        newest = self.stream_time if self.timeline is None else self.timeline.newest
        return max(self.stream_time, newest) + silent

    @property
    def sources(self) -> SourceTimes:
        """The times of the source partitions after the batch."""
        return {} if self.timeline is None else self.timeline.sources

    def versions_pass(self, puts: Changes | None) -> Timeline:
        """As `passes`, of a versioned table; ``puts``: its changes here, in arrival order."""
        return self.passes(None if puts is None else counting(puts, of_versions(self.definition)))

    def taken(self, puts: Changes, bits: int) -> Versions:
        """Of a batch for a versioned table, in arrival order, what counts, and from when on."""
        store = self.definition
        assert store.history is not None
        times = self.versions_pass(puts).around(puts)[1]
        if not store.results:
            return versions_by_time(puts, store.history, times)
        return versions_by_arrival(
            self.before(),
            puts,
            bits=bits,
            serde=store.value,
            history=store.history,
            times=times,
            repeats=store.repeats,
        )

    def some_key(self) -> Values | None:
        """The key of a row that it has or had a short time ago; None for an empty store."""
        return some_key(self.view, self.definition.key)

    def lookup_before(self) -> Lookup:
        """Looks rows up as they were before this batch: of a versioned table the latest ones, deletes left out."""
        view = self.before()

        def rows(hashes: np.ndarray, keys: Column) -> TableRows:
            serde = self.definition.value
            if self.definition.history is None:
                return lookup(view, hashes, keys, serde)
            latest = latest_versions(view, hashes, keys, serde)
            return replace(latest, present=latest.present & ~latest.values.missing())

        return rows

    def side(self, changes: Changes | None) -> TableSide:
        """The table as a side of a join, with its changes in this batch, if it has any."""
        store = self.definition
        return TableSide(
            no_changes(store.key, store.value) if changes is None else changes,
            self.lookup_before(),
            store.value,
        )


@dataclass(frozen=True, slots=True)
class Task:
    """What all steps of a task share. ``number``: its state partition, or its share of the source partitions.

    ``to_driver``, ``to_file``: of the named sink, records for the driver, and a file for the DataFrame of the batch.
    ``emit``: gives changes of a flow to the steps that read it, and returns when they have taken them. ``shared``:
    by (first of the sinks that write together, topic), the records of each sink that wait for the others.
    ``announced``: what the readers of a source say in all state partitions. ``hashes``: of the keys in the slice that
    is taken; None: of all.
    """

    plan: Plan
    batch: Batch
    report: Report
    failures: Failures
    settings: Settings
    output: Output
    stores: Callable[[str], OpenStore]
    to_driver: Callable[[str, bytes], None]
    to_file: Callable[[str, Written], None]
    global_tables: GlobalTables
    record: Callable[[str, History], None]
    emit: Callable[[str, Changes], None]
    number: int
    announced: Callable[[str], np.ndarray]
    hashes: Callable[[], Hashes]
    shared: dict[tuple[str, str], list[tuple[str, Changes]]] = field(default_factory=dict)

    def node(self, name: str) -> Any:
        return self.plan.topology[name]

    def flow(self, name: str) -> Flow:
        return self.plan.flows[name]


class Runner:
    """A step at work. Row-wise steps override `accept`, steps with state `finish`."""

    def __init__(self, task: Task, step: Step) -> None:
        self.task = task
        self.step = step
        self.held: dict[str, list[Changes]] = {}

    @property
    def node(self) -> Any:
        """What the user asked for (`graph/nodes.py`)."""
        return self.task.node(self.step.node)

    def by_key(self) -> bool:
        """Whether ranges of keys may be taken one after the other, in order of their hashes.

        That is so if no row depends on rows of other keys, nor the order among them on anything but the hash.
        """
        return False

    def takes_tags(self) -> bool:
        """Whether it keeps or reads the tags of rows that branched (`columns/order.py`)."""
        return False

    def accept(self, flow: str, changes: Changes) -> None:
        """Takes a piece of an input flow, and emits the answer if it needs no other piece."""
        self.held.setdefault(flow, []).append(changes)

    def finish(self) -> Emitted:
        """The results that need all inputs; called when all have been taken."""
        return iter(())

    def arrived(self, flow: str) -> Changes | None:
        """All pieces of a flow in arrival order; None if there are none."""
        changes = self.gathered(flow)
        return None if changes is None else by_arrival(changes)

    def gathered(self, flow: str) -> Changes | None:
        """All pieces of a flow as they came: of a table just kept, in order of the key hash."""
        parts = self.held.pop(flow, [])
        return concat_changes(parts) if parts else None

    def emit(self, changes: Changes) -> None:
        """Gives changes of the output flow to the steps that read it."""
        self.task.emit(self.out(), changes)

    def out(self) -> str:
        assert self.step.output is not None
        return self.step.output

    def writable(self, changes: Changes, part: Part, serde: EngineSerde) -> Changes:
        """As `Failures.writable`, of this operator."""
        return self.task.failures.writable(self.node, changes, part, serde)

    def as_stored(self, changes: Changes, serde: EngineSerde) -> Changes:
        """With values in the form of a store that keeps them in this serde; without those that it refuses."""
        changes = self.writable(changes, "value", serde)
        return replace(changes, value=as_stored(changes.value, serde))

    def latest_only(self, changes: Changes | None) -> Changes | None:
        """A join ignores, and counts, versions behind the latest one (semantics 2.2.6)."""
        if changes is None or BEHIND not in changes.extra:
            return changes
        mark = changes.extra[BEHIND]
        self.task.report.count_dropped(self.step.node, {"out-of-order-version": int((mark == 1).sum())})
        kept = without_marks(changes.where(mark == 0))
        return kept if kept.rows else None

    def waits(self, rows: int) -> None:
        """Notes how many rows would have come out if no source partition held stream time up."""
        self.task.report.waiting[f"{self.step.node}/{self.task.number}"] = rows

    def join_spec(
        self,
        kind: JoinKind,
        serdes: Serdes = _KNOWN_BY_SIDES,
        *,
        headers: Headers | None = None,
        changelog: bool = False,
    ) -> JoinSpec:
        """How the join of this step joins. ``changelog``: its readers take every change within a batch."""
        emit: Emit = "changelog" if changelog else "net"
        bits, chunk = self.task.batch.bits, self.task.settings.chunk_rows
        return JoinSpec(kind, self.node.joiner, serdes, headers, emit, bits, chunk)

    def joined(self, joined: Joined, *, stays: bool = True) -> Emitted:
        """Emits the results of a join. Where its joiner failed, the row ``stays``, or is gone (semantics 3.9)."""
        node, changes = self.node, joined.changes
        if joined.failures:
            self.task.failures.failed(node, changes, joined.failures, joined.given)
            if stays:
                changes = changes.without([failure.row for failure in joined.failures])
        if changes.rows:
            self.task.report.count_out(node.name, changes.rows)
            yield self.out(), changes

    def note_field(self, function: Function | None, changes: Changes) -> None:
        """Reports whether the field is there that a text names as ``function``."""
        call = None if function is None else function.call
        if function is None or not isinstance(call, FieldOf):
            return
        there = np.flatnonzero(~changes.value.missing())
        if not len(there):
            return
        first = changes.value.take(there[:1]).objects()[0]
        look_up = LookUp(call.name, found=1)
        if not (call.is_in(first) or any(map(call.is_in, changes.value.take(there).objects()))):
            look_up = LookUp(call.name, missing=len(there), there=_fields(first))
        self.task.report.note_field(f"{self.step.node}: {function.role}", look_up)

    def report_asked(
        self, asked: LookupCounts, left: SomeKey, right: SomeKey, name: str | None = None
    ) -> None:
        """Adds the counts of an operator; ``name``: of one of its joins, if it has several."""
        operator, report = name or self.step.node, self.task.report
        report.count_asked(operator, asked.matched, asked.unmatched)
        report.note_fan_out(operator, asked.most)
        if self.task.batch.wants_keys and not asked.matched:
            left_key, right_key = (None if key is None else shown(key) for key in (left(), right()))
            report.note_keys({operator: (left_key, right_key)})


def _fields(value: Any) -> tuple[str, ...]:
    """The names of fields, as they are shown."""
    return tuple(name[:_LONGEST] for name in names_in(value)[:_MANY])


def without_marks(changes: Changes) -> Changes:
    """The changes of a versioned table as those of one that goes by arrival."""
    extra = {name: column for name, column in changes.extra.items() if name != BEHIND}
    return changes if BEHIND not in changes.extra else replace(changes, extra=extra)


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
