"""The order in which one record reaches the operators of a topology: Kafka's, depth first.

A node hands a record to its children in the order in which they were built, each with all that is below it before
the next. What moves to the partition of another key comes after all that does not. Source: semantics 1.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from crossstream.topology.describe import is_rekeying
from crossstream.topology.graph import (
    ForeignKeyJoin,
    FrameSource,
    Merge,
    Node,
    Sink,
    Source,
    StreamGlobalJoin,
    StreamStreamJoin,
    StreamTableJoin,
    Topology,
)
from crossstream.topology.validate import keepers

Visit = tuple[int, tuple[int, ...]]
"""When a record reaches a node: after how many moves to other partitions, and by which child of each node."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where ways of a record meet again: a merge of streams, or sinks that may write to the same topic.

    ``ends``: by parent and child the last step of each way, and what it is called: the stream, or the sink.
    """

    ends: Mapping[tuple[str, str], str]

    @classmethod
    def of(cls, merge: Merge) -> Meeting:
        return cls({(parent, merge.name): parent for parent in merge.parents})

    @classmethod
    def of_sinks(cls, sinks: Iterable[Sink]) -> Meeting:
        return cls({(sink.parents[0], sink.name): sink.name for sink in sinks})


@dataclass(frozen=True, slots=True)
class Order:
    """In which order a record that comes on several ways gets to the ends of a meeting.

    ``usual``: all ends, as most sources want them; ``contrary``: of sources that want them otherwise, by name.
    """

    usual: tuple[str, ...]
    contrary: Mapping[str, Sequence[str]]


class Visits:
    """When the records of each source reach each node of a topology."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.children: dict[str, list[Node]] = {node.name: [] for node in topology}
        for node in topology:
            for parent in dict.fromkeys(node.parents):
                self.children[parent].append(node)
        self._steps = {
            (parent, node.name): (_moves(topology, parent, node), self.place_among(parent, node))
            for node in topology
            for parent in handing(node)
        }
        sources = [node.name for node in topology if isinstance(node, Source | FrameSource)]
        self._first = {name: self._from(name, min) for name in sources}
        self._last = {name: self._from(name, max) for name in sources}

    def place_among(self, parent: str, node: Node) -> int:
        """The place of a node among the children of its parent."""
        return [child.name for child in self.children[parent]].index(node.name)

    def looking_first(self, join: StreamTableJoin) -> frozenset[str]:
        """The sources whose records look into the table of a join before it takes over what they change there."""
        kept = keepers(self.topology.nodes, join.parents[1])
        found = set()
        for source, first in self._first.items():
            changes = [last for name in kept if (last := self._last[source].get(name)) is not None]
            if changes and join.name in first and max(changes) >= first[join.name]:
                found.add(source)
        return frozenset(found)

    def right_first(self, join: StreamStreamJoin) -> frozenset[str]:
        """The sources whose records reach the right side of a join before the left one."""
        left, right = join.parents
        return frozenset(
            source
            for source, first in self._first.items()
            if left != right
            and left in first
            and right in first
            and self._way(first, right, join.name) < self._way(first, left, join.name)
        )

    def order(self, meeting: Meeting) -> Order | None:
        """Of the ends; None if no record comes on several ways."""
        orders = {
            source: order
            for source, first in self._first.items()
            if len(order := self._order(first, meeting)) > 1
        }
        if not orders:
            return None
        usual = _together(orders.values(), tuple(dict.fromkeys(meeting.ends.values())))
        contrary = {
            source: order
            for source, order in orders.items()
            if order != [name for name in usual if name in order]
        }
        return Order(usual, contrary)

    def order_below(self, node: str, meeting: Meeting) -> Sequence[str]:
        """The ends in the order in which a row of a node gets there."""
        return self._order(self._from(node, min), meeting)

    def sources_of(self, node: str) -> frozenset[str]:
        """Those whose records reach a node."""
        return frozenset(source for source, first in self._first.items() if node in first)

    def _order(self, first: Mapping[str, Visit], meeting: Meeting) -> list[str]:
        """The ends that rows get to, which reach nodes at these times first."""
        visits = {
            name: self._way(first, parent, child)
            for (parent, child), name in meeting.ends.items()
            if parent in first
        }
        return sorted(visits, key=visits.__getitem__)

    def _from(self, start: str, pick: Callable[[Iterable[Visit]], Visit]) -> dict[str, Visit]:
        """When a row of ``start`` reaches each node, first (``pick`` = min) or last (max) of all ways to it."""
        found: dict[str, Visit] = {start: (0, ())}
        for node in self.topology:
            ways = [self._way(found, parent, node.name) for parent in handing(node) if parent in found]
            if ways:
                found[node.name] = pick(ways)
        return found

    def _way(self, found: Mapping[str, Visit], parent: str, child: str) -> Visit:
        (moves, places), (more, place) = found[parent], self._steps[parent, child]
        return moves + more, (*places, place)


def _together(orders: Iterable[Sequence[str]], names: Sequence[str]) -> tuple[str, ...]:
    """All ``names`` in one order that agrees with these, as far as they agree with each other."""
    before: dict[str, set[str]] = {name: set() for name in names}
    found = tuple(names)
    for order in orders:
        wanted = {name: set(rest) for name, rest in before.items()}
        for one, next_ in pairwise(order):
            wanted[next_].add(one)
        try:
            found = tuple(TopologicalSorter(wanted).static_order())
        except CycleError:
            continue
        before = wanted
    return found


def handing(node: Node) -> Iterable[str]:
    """The parents that hand records to a node; a table that is only looked up hands none."""
    return node.parents[:1] if isinstance(node, StreamTableJoin | StreamGlobalJoin) else node.parents


def _moves(topology: Topology, parent: str, node: Node) -> int:
    if isinstance(node, ForeignKeyJoin):
        return 2 if parent == node.parents[0] else 1
    return int(is_rekeying(topology, parent, node))
