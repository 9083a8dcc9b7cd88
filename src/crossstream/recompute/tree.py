"""Makes the tree of steps that `why` shows: what each operator gives, and where the way of a missing row has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crossstream.graph import nodes as graph
from crossstream.graph.nodes import Graph, Node
from crossstream.recompute.inputs import object_of
from crossstream.recompute.pool import Wanted
from crossstream.recompute.reason import InputRecord, Step, located, text_of
from crossstream.recompute.taps import Taps, part_of
from crossstream.recompute.trace import Tracer, leading

SHOWN = 20
"""Rows of a step that are shown."""


@dataclass(slots=True)
class Tree:
    """Makes the steps. ``records``: with their sources; ``tracer``: what was followed, and what joins asked for."""

    topology: Graph
    taps: Taps
    records: Sequence[tuple[str, InputRecord]]
    tracer: Tracer

    def step(self, name: str) -> Step:
        made: dict[str, Step] = {}
        for node in part_of(self.topology, [name]):  # parents come first
            made[node.name] = self._step(node, made)
        return made[name]

    def _step(self, node: Node, made: dict[str, Step]) -> Step:
        stops = node.stops_tracing is not None
        return Step(
            node.name,
            type(node).__name__,
            node.where["line"],
            tuple(self._shown(node)[:SHOWN]),
            tuple(record for source, record in self.records if source == node.name),
            () if stops else tuple(made[parent] for parent in dict.fromkeys(node.parents)),
            node.stops_tracing or self._dropped(node),
        )

    def _dropped(self, node: Node) -> str | None:
        reasons = [
            f"{rows} dropped: {key.removeprefix(node.name + ': ')}"
            for key, rows in self.taps.replay.report.dropped.items()
            if key.startswith(node.name + ": ")
        ]
        return ", ".join(reasons) or None

    def _shown(self, node: Node) -> list[tuple[Any, Any]]:
        """The rows of an operator, where keys change below it those that have one of the keys that are followed."""
        found, followed = self.rows(node.name), self.tracer.followed
        if node.name not in followed:
            for child in self.topology.children(node.name):
                traced = child.changes_key and child.stops_tracing is None
                wanted = followed.get(child.name) if traced else None
                if wanted is not None:
                    return leading(self.topology, child, found, wanted)
        return found

    def rows(self, name: str) -> list[tuple[Any, Any]]:
        """What an operator gives: its records, or the rows that its changes leave."""
        found = self.taps.rows.get(name, [])
        node = self.topology[name]
        if node.reads_input and node.shape == "global":
            found = [(record.key, record.value) for source, record in self.records if source == name]
        followed = self.tracer.followed.get(name)
        if followed is not None:
            found = [(key, value) for key, value in found if followed.has(key)]
        if node.shape == "stream":
            return found
        last = {text_of(key): (key, value) for key, value in found}
        return [(key, value) for key, value in last.values() if value is not None]

    def ended(self, name: str) -> str | None:
        """Where the way of a row has ended; None: this operator gives one."""
        node = self.topology[name]
        if self.rows(name):
            return None
        if isinstance(node, graph.Source):
            return self._not_arrived(node)
        needed = node.needed_parents
        if node.needs_any_parent:
            reasons = [self.ended(parent) for parent in node.parents]
            if None not in reasons:
                return reasons[0]
            needed = ()
        for number, parent in enumerate(needed):
            reason = self.ended(parent)
            if reason is not None:
                return self._partner(node, number, reason) if number else reason
        return self._here(node)

    def _partner(self, node: Node, number: int, reason: str) -> str:
        asked = self.tracer.asked.get((node.name, number))
        if asked is None:
            return f"{located(node)}: no partner: {reason}"
        if asked and asked[-1] is None:
            return f"{located(node)}: the key of the partner is null"
        return f"{located(node)}: no partner for key {text_of(asked[-1]) if asked else '?'}: {reason}"

    def _not_arrived(self, node: graph.Source) -> str:
        mine = [record for source, record in self.records if source == node.name]
        topics = sorted({span[1] for span in self.tracer.spans if span[0] == node.name}) or list(node.topics)
        if mine:
            last = mine[-1]
            return (
                f"{node.name}: deleted by the record at offset {last.offset}, "
                f"partition {last.partition} of {last.topic}"
            )
        keys = self.tracer.wanted.get(node.name, Wanted()).keys
        named = ", ".join(text_of(object_of(node.key, key)) for key in sorted(filter(None, keys))[:3])
        return f"{', '.join(topics)}: no record with the key {named or '?'} has arrived"

    def _here(self, node: Node) -> str:
        dropped = self._dropped(node)
        if node.row_wise and node.may_drop and node.keeps_place:
            return f"filtered by {located(node)}"
        return f"{located(node)} gives no row for it" + (f": {dropped}" if dropped else "")
