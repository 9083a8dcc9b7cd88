"""filter, map, …, merge and re-keying in a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import Failure
from crossstream.columns.order import BranchTags, in_branch_order
from crossstream.graph import nodes as graph
from crossstream.operators.stateless import kernel as stateless
from crossstream.planning.steps import EncodeStep, StatelessStep
from crossstream.task.runner import Emitted, Runner, Task


class StatelessRunner(Runner):
    """Applies filter, map, … to each piece; a merge waits for all of its inputs."""

    step: StatelessStep

    def __init__(self, task: Task, step: StatelessStep) -> None:
        super().__init__(task, step)
        self._tags = BranchTags(step.branches)

    def takes_tags(self) -> bool:
        return True

    def by_key(self) -> bool:
        """Not for a repartition or a merge: their records are in order of arrival."""
        return not isinstance(self.node, graph.Repartition | graph.Merge)

    def accept(self, flow: str, changes: Changes) -> None:
        node = self.node
        if isinstance(node, graph.Repartition):
            super().accept(flow, self._with_key(changes))
            return
        self.task.report.count_in(node.name, changes.rows)
        changes = self._tags.added(flow, changes)
        if self.step.ordered:
            super().accept(flow, changes)
            return
        if not self.step.old:
            changes = replace(changes, old=None)
        result, failures = apply(node, changes, self.step.stored)
        if node.gives_key_alone:
            self.note_field(node.mapper, changes)
        if failures:
            self.task.failures.failed(node, changes, failures)
        if not (isinstance(node, graph.Peek) and node.terminal):
            self.emit(result)

    def _with_key(self, changes: Changes) -> Changes:
        """Drops null keys, which have no partition, unless a left join below needs them (semantics 1.4, 8.19)."""
        if self.step.null_keys:
            return changes
        there = ~changes.key.missing()
        self.task.report.count_dropped(self.step.node, {"null-key-repartition": int((~there).sum())})
        return changes.where(there)

    def finish(self) -> Emitted:
        flows = dict.fromkeys(self.step.inputs)
        parts = [(flow, part) for flow in flows for part in self.held.pop(flow, []) if part.rows]
        if parts:
            yield self.out(), in_branch_order(parts, self.step.forks, self.task.batch.came_from)


class EncodeRunner(Runner):
    """Writes the values of each piece in the serde that their reader declares; rows that it refuses are reported."""

    step: EncodeStep

    def by_key(self) -> bool:
        return True

    def accept(self, flow: str, changes: Changes) -> None:
        self.emit(self.as_stored(changes, self.task.flow(self.out()).value))


Applied = tuple[Changes, list[Failure]]


def _filter(changes: Changes, node: graph.Filter, stored: bool) -> Applied:
    if node.shape == "table":
        return stateless.filter_table(changes, node.predicate, node.negate, stored)
    return stateless.filter_stream(changes, node.predicate, node.negate)


def _map_values(changes: Changes, node: graph.MapValues, stored: bool) -> Applied:
    if node.shape == "table":
        return stateless.map_values_table(changes, node.mapper, stored)
    return stateless.map_values_stream(changes, node.mapper)


def _to_stream(changes: Changes, node: graph.ToStream, _: bool) -> Applied:
    stream = stateless.records_of(changes)
    return (stream, []) if node.mapper is None else stateless.select_key(stream, node.mapper)


KERNELS: Mapping[type[graph.Node], Callable[[Changes, Any, bool], Applied]] = MappingProxyType(
    {
        graph.Filter: _filter,
        graph.MapValues: _map_values,
        graph.Map: lambda changes, node, _: stateless.map_records(changes, node.mapper),
        graph.SelectKey: lambda changes, node, _: stateless.select_key(changes, node.mapper),
        graph.FlatMap: lambda changes, node, _: stateless.flat_map(changes, node.mapper),
        graph.FlatMapValues: lambda changes, node, _: stateless.flat_map_values(changes, node.mapper),
        graph.Peek: lambda changes, node, _: stateless.peek(changes, node.action),
        graph.Split: lambda changes, node, _: stateless.split(changes, node.predicates),
        graph.Branch: lambda changes, node, _: (stateless.branch_of(changes, node.index), []),
        graph.ToStream: _to_stream,
    }
)
"""What each operator does to a piece, and whether its table has a store of its own; all others forward it."""


def apply(node: graph.Node, changes: Changes, stored: bool) -> Applied:
    """The result of an operator for a piece of its input, and the rows that its function failed on.

    ``stored``: of a table with a store of its own.
    """
    kernel = KERNELS.get(type(node))
    return (changes, []) if kernel is None else kernel(changes, node, stored)
