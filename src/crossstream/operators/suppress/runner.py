"""Runs a suppression in a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as pc

from crossstream.columns.changes import Changes, concat_changes, headers_in, no_changes
from crossstream.columns.hashing import hash_keys
from crossstream.columns.order import OFFSET_BITS
from crossstream.columns.stream_time import Moments as Passing
from crossstream.columns.stream_time import Timeline
from crossstream.columns.values import Values, nulls
from crossstream.error_codes import refuse
from crossstream.graph import nodes as graph
from crossstream.operators.suppress.kernel import (
    HELD,
    Bounds,
    Moments,
    Stays,
    bounded_stays,
    in_order,
    lengths,
    stays,
)
from crossstream.planning.steps import SuppressStep
from crossstream.serdes.arrays import null_rows
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.windowed import NO_END, WindowedSerde
from crossstream.storage.columns import Column, Columns, concat_all, take, take_all
from crossstream.storage.sorted_run import begins_of, identities, newest, sort_rows
from crossstream.task.runner import Emitted, OpenStore, Runner

_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class Held:
    """Rows that wait: with their time in the buffer and, where that is asked for, the bytes they take."""

    rows: Changes
    time: np.ndarray
    size: np.ndarray


@dataclass(frozen=True, slots=True)
class Buffer:
    """The rows that wait when a batch begins. ``key``: the serde of their own keys."""

    store: OpenStore
    key: EngineSerde
    by_group: bool
    bits: int

    def places(self, keys: Column) -> tuple[np.ndarray, Column]:
        """The keys that decide where rows are, for their own ones, and the hashes of these."""
        if self.by_group:
            assert isinstance(self.key, WindowedSerde)
            keys = self.key.split(keys)[0]
        return hash_keys(keys, self.bits), keys

    def of_keys(self, keys: Column) -> list[dict[str, Column]]:
        """The rows that may be those of these keys."""
        if not len(keys):
            return []
        hashes, owners = self.places(keys)
        order = np.argsort(hashes, kind="stable")
        hashes, owners = hashes[order], take(owners, order)
        heads = np.flatnonzero(begins_of(identities([hashes, owners])))
        found = self.store.view.scan(hashes[heads], take(owners, heads), _ALL)
        return [take_all(part, np.flatnonzero(part["s"] >= self.store.horizon)) for _, part in found]

    def until(self, time: int) -> dict[str, Column]:
        """The rows whose time in the buffer is at most ``time``."""
        return self.store.view.live_between(self.store.horizon, time)

    def held(self, keys: Column, time: int) -> Held:
        """The rows of these keys, and all until ``time``; each once, in no order."""
        rows = sort_rows(concat_all([*self.of_keys(keys), self.until(time)]))
        return self.of(take_all(rows.columns, np.flatnonzero(newest(rows.columns))))

    def all(self) -> Held:
        """All rows that wait."""
        return self.of(self.until(_ALL))

    def of(self, columns: Columns) -> Held:
        """Rows of the store as changes, without a place in time."""
        nowhere = np.zeros(len(columns["h"]), np.int64)
        value = self.store.definition.value
        rows = Changes(
            Values(self.key, wire=columns["key2"]),
            Values(value, wire=columns["value"]),
            columns["ts"],
            nowhere,
            nowhere,
            columns["headers"],
            Values(value, wire=columns["old"]),
        )
        return Held(rows, columns["s"], columns["size"])

    def put(self, rows: Changes, time: np.ndarray, size: np.ndarray, *, gone: bool = False) -> None:
        """Keeps rows, in place of those with their keys and times in the buffer; ``gone``: they have left early."""
        if not rows.rows:
            return
        own = rows.key.wire()
        hashes, owners = self.places(own)
        self.store.view.put(
            {
                "h": hashes,
                "s": time,
                "key": owners,
                "key2": own,
                "value": rows.value.wire(self.store.definition.value),
                "old": null_rows(rows.rows)
                if rows.old is None
                else rows.old.wire(self.store.definition.value),
                "ts": rows.ts,
                "size": size,
                "headers": headers_in(rows),
                "gone": np.full(rows.rows, gone, np.uint8),
            }
        )


_CONTEXT = 28
"""Bytes that a record takes in Kafka's buffer beside key, values, headers and topic."""


class SuppressRunner(Runner):
    """Passes every change of a table through a buffer, in order of arrival."""

    step: SuppressStep

    def finish(self) -> Emitted:
        node: graph.Suppress = self.task.node(self.step.node)
        store = self.task.stores(self.step.store)
        changes, buffer = self._changes(node), self._buffer()
        timeline = store.passes(changes)
        if timeline.moved:
            store.heard(self.task.batch.silence)
        else:
            timeline = timeline.by_clock(store.moment(self.task.batch.silence))
        if changes is not None or len(timeline.time):
            changes = self._no_changes(buffer) if changes is None else changes
            yield from self._passed(node, buffer, changes, timeline)
        store.stream_time = timeline.last
        store.horizon = max(store.horizon, timeline.last - node.duration + 1)
        held_up = timeline.newest > timeline.last
        self.waits(len(buffer.until(timeline.newest - node.duration)["h"]) if held_up else 0)

    def _changes(self, node: graph.Suppress) -> Changes | None:
        """The changes of a batch in order of arrival, in the form of the store; None if there are none."""
        changes = self.arrived(self.step.inputs[0])
        if changes is None or not changes.rows:
            return None
        self.task.report.count_in(node.name, changes.rows)
        serde = self.task.stores(self.step.store).definition.value
        kept = self.as_stored(replace(changes, old=None, extra={}), serde)
        if not kept.rows:
            return None
        key = Values(self.step.key if self.step.by_group else changes.key.serde, wire=kept.key.wire())
        old = None
        if self.step.old:
            assert changes.old is not None, "the table was planned to give old rows"
            old = changes.old if kept.rows == changes.rows else nulls(kept.rows, serde)
            old = Values(serde, wire=old.wire(serde))
        return replace(kept, key=key, old=old)

    def _buffer(self) -> Buffer:
        store = self.task.stores(self.step.store)
        key = self.step.key if self.step.by_group else store.definition.key
        return Buffer(store, key, self.step.by_group, self.task.batch.bits)

    def _no_changes(self, buffer: Buffer) -> Changes:
        nothing = no_changes(buffer.key, buffer.store.definition.value)
        return replace(nothing, old=nothing.value) if self.step.old else nothing

    def _passed(self, node: graph.Suppress, buffer: Buffer, changes: Changes, timeline: Timeline) -> Emitted:
        bounded = node.max_records is not None or node.max_bytes is not None
        until = timeline.last - node.duration
        held = buffer.all() if bounded else buffer.held(changes.key.wire(), until)
        waiting = held.rows if changes.old is not None else replace(held.rows, old=None)
        rows = concat_changes([waiting, changes]) if waiting.rows else changes
        if not rows.rows:
            return
        time = np.append(held.time, self._times(node, changes))
        passing = timeline.with_rows(changes, time + node.duration)
        moments = Moments(np.append(np.full(waiting.rows, HELD), passing.rows), time, passing.time)
        if bounded and self._may_be_full(node, held, rows):
            found = bounded_stays(
                rows.key.wire().to_pylist(),
                moments,
                node.duration,
                self._bounds(node, rows),
                self._sizes(rows, held),
            )
        else:
            found = stays(rows, moments, node.duration, self.task.batch.bits)
        yield from self._emitted(node, _leaving(rows, moments, found, passing))
        self._keep(node, buffer, rows, held, moments, found, until)

    def _times(self, node: graph.Suppress, changes: Changes) -> np.ndarray:
        """The time of each change in the buffer: its own, or the end of its window."""
        if node.until == "time-limit":
            return changes.ts
        serde = changes.key.serde
        assert isinstance(serde, WindowedSerde)
        ends = serde.split(changes.key.wire())[2]
        return np.asarray(np.minimum(ends, NO_END - node.duration))

    def _may_be_full(self, node: graph.Suppress, held: Held, rows: Changes) -> bool:
        if node.max_records is not None and rows.rows > node.max_records:
            return True
        return node.max_bytes is not None and int(held.size.sum() + 2 * self._most(rows)) > node.max_bytes

    def _most(self, rows: Changes) -> int:
        """More bytes than the changes of a batch take."""
        old = 0 if rows.old is None else 2 * rows.old.wire().nbytes
        names = 64 * rows.rows + sum(len(span.topic) for span in self.task.batch.ranges) * rows.rows
        headers = 0 if rows.headers is None else rows.headers.nbytes
        return int(rows.key.wire().nbytes + rows.value.wire().nbytes + old + names + headers)

    def _bounds(self, node: graph.Suppress, rows: Changes) -> Bounds:
        def full(records: int, size: int, row: int) -> None:
            bound = (
                f"max_records={node.max_records}"
                if node.max_records is not None and records > node.max_records
                else f"max_bytes={node.max_bytes}"
            )
            what = f"the buffer of {node.name} is full: it would hold {records} records, and has {bound}"
            raise refuse("CS-509", what, **self.task.failures.place(node, rows, row), store=self.step.store)

        return Bounds(node.max_records, node.max_bytes, full if node.stops else None)

    def _sizes(self, rows: Changes, held: Held) -> Callable[[int, int], int]:
        """The bytes of a stay, as Kafka counts them: by its first row, and its last one."""
        waiting = held.rows.rows
        own: list[int] = self._own_sizes(rows).tolist()
        old = [None] * rows.rows if rows.old is None else rows.old.wire().to_pylist()
        given: list[int] = held.size.tolist()

        def size(first: int, last: int) -> int:
            if last < waiting:
                return given[last]
            prior, before = old[first], old[last]
            return own[last] + len(prior or b"") + (0 if before == prior else len(before or b""))

        return size

    def _own_sizes(self, rows: Changes) -> np.ndarray:
        """The bytes of each change without its old values."""
        size: np.ndarray = lengths(rows.key.wire()) + lengths(rows.value.wire()) + _CONTEXT
        if rows.headers is not None:
            size = size + lengths(rows.headers)
        rank = rows.minor >> OFFSET_BITS
        for span in self.task.batch.ranges:
            size = size + np.where(rank == span.rank, len(span.topic.encode()), 0)
        return size

    def _keep(
        self,
        node: graph.Suppress,
        buffer: Buffer,
        rows: Changes,
        held: Held,
        moments: Moments,
        found: Stays,
        until: int,
    ) -> None:
        """Puts what waits on into the store; takes out what left before its time, for lack of room."""
        count, waiting = len(moments.clock), held.rows.rows
        early = (found.leaves < count) & (found.first < waiting) & (moments.time[found.first] > until)
        left = found.first[early]
        buffer.put(rows.take(left), moments.time[left], np.zeros(len(left), np.int64), gone=True)
        on = (found.leaves == count) & (found.last >= waiting)
        first, last = found.first[on], found.last[on]
        kept = rows.take(last)
        size = np.zeros(len(last), np.int64)
        if rows.old is not None:
            prior = rows.old.take(first)
            if node.max_bytes is not None:
                size = self._own_sizes(rows)[last] + lengths(prior.wire())
                same = np.asarray(pc.fill_null(pc.equal(prior.wire(), rows.old.take(last).wire()), False))
                size = size + np.where(same, 0, lengths(rows.old.take(last).wire()))
            kept = replace(kept, old=prior)
        buffer.put(kept, moments.time[first], size)

    def _emitted(self, node: graph.Suppress, changes: Changes) -> Emitted:
        if node.until == "window-closes":  # a deleted row has no final result
            changes = changes.where(~changes.value.missing())
        if self.step.old and changes.old is None:
            changes = replace(changes, old=nulls(changes.rows, changes.value.serde))
        if changes.rows:
            self.task.report.count_out(node.name, changes.rows)
            yield self.out(), changes


def _leaving(rows: Changes, moments: Moments, found: Stays, passing: Passing) -> Changes:
    """The rows that come out in a batch, each placed at the change that made it leave."""
    out = np.flatnonzero(found.leaves < len(moments.clock))
    first, last, leaves = found.first[out], found.last[out], found.leaves[out]
    order = in_order(moments.time[first], leaves, rows.key.take(first).wire())
    first, last, leaves = first[order], last[order], leaves[order]
    made = replace(rows.take(last), major=passing.major[leaves], minor=passing.minor[leaves])
    return made if rows.old is None else replace(made, old=rows.old.take(first))
