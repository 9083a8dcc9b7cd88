"""The order in which one record reaches the operators of a topology: Kafka's, depth first.

A node hands a record to its children in the order in which they were built, each with all that is below it before
the next. What moves to the partition of another key comes after all that does not. Source: semantics 1.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


def meetings(topology: Topology) -> Iterator[Meeting]:
    """All those at which a record may arrive on several ways."""
    sinks: dict[str | None, list[Sink]] = {}
    for node in topology:
        if isinstance(node, Merge):
            yield Meeting.of(node)
        elif isinstance(node, Sink):
            sinks.setdefault(node.topic, []).append(node)
    yield from map(Meeting.of_sinks, sinks.values())


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
        sources = [node for node in topology if isinstance(node, Source | FrameSource)]
        self._first = [self._from(source, min) for source in sources]
        self._last = [self._from(source, max) for source in sources]

    def place_among(self, parent: str, node: Node) -> int:
        """The place of a node among the children of its parent."""
        return [child.name for child in self.children[parent]].index(node.name)

    def table_comes_first(self, join: StreamTableJoin) -> bool:
        """Whether the table of a join takes over what a record changes in it before the record itself looks there.

        Without a source that feeds both it does not matter; the first of several decides.
        """
        kept = keepers(self.topology.nodes, join.parents[1])
        for first, last in zip(self._first, self._last, strict=True):
            changes = [last[name] for name in kept if name in last]
            if changes and join.name in first:
                return max(changes) < first[join.name]
        return True

    def right_comes_first(self, join: StreamStreamJoin) -> bool:
        """Whether a record that feeds both sides of a join reaches the right one first; as `table_comes_first`."""
        left, right = join.parents
        for first in self._first:
            if left != right and left in first and right in first:
                return self._way(first, right, join.name) < self._way(first, left, join.name)
        return False

    def order(self, meeting: Meeting) -> tuple[str, ...] | None:
        """The ends in the order in which a record that comes on several ways gets there; None if none does.

        Where sources want several orders, that of the first one.
        """
        orders = [order for first in self._first if len(order := self._order(first, meeting)) > 1]
        return _together(orders, tuple(dict.fromkeys(meeting.ends.values()))) if orders else None

    def _order(self, first: Mapping[str, Visit], meeting: Meeting) -> list[str]:
        """The ends that the records of a source get to."""
        visits = {
            name: self._way(first, parent, child)
            for (parent, child), name in meeting.ends.items()
            if parent in first
        }
        return sorted(visits, key=visits.__getitem__)

    def _from(self, source: Node, pick: Callable[[Iterable[Visit]], Visit]) -> dict[str, Visit]:
        """When a record of ``source`` reaches each node, first (``pick`` = min) or last (max) of all ways to it."""
        found: dict[str, Visit] = {source.name: (0, ())}
        for node in self.topology:
            ways = [self._way(found, parent, node.name) for parent in handing(node) if parent in found]
            if ways:
                found[node.name] = pick(ways)
        return found

    def _way(self, found: Mapping[str, Visit], parent: str, child: str) -> Visit:
        (moves, places), (more, place) = found[parent], self._steps[parent, child]
        return moves + more, (*places, place)


def _together(orders: Sequence[Sequence[str]], names: Sequence[str]) -> tuple[str, ...]:
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
