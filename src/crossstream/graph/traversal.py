"""The order in which one record reaches the operators of a topology: Kafka's, depth first.

Where a stream branches and its branches meet again, in a merge or in one topic, rows are put in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from crossstream.columns.branch_order import Parting
from crossstream.graph.describe import is_rekeying
from crossstream.graph.nodes import (
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    ForeignKeyJoin,
    FrameSource,
    Graph,
    Map,
    MapValues,
    Merge,
    Node,
    Peek,
    SelectKey,
    Sink,
    Source,
    Split,
    StreamGlobalJoin,
    StreamStreamJoin,
    StreamTableJoin,
)
from crossstream.graph.validate import keepers

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

    def __init__(self, topology: Graph) -> None:
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


def _moves(topology: Graph, parent: str, node: Node) -> int:
    if isinstance(node, ForeignKeyJoin):
        return 2 if parent == node.parents[0] else 1
    return int(is_rekeying(topology, parent, node))


def meetings(visits: Visits) -> Iterator[Meeting]:
    """All those at which a record may arrive on several ways."""
    yield from (Meeting.of(node) for node in visits.topology if isinstance(node, Merge))
    for sinks in sharing(visits):
        yield from by_topic(sinks).values()


def sharing(visits: Visits) -> list[Sequence[Sink]]:
    """The sinks that wait for each other, in groups, those of a group as they were built.

    Two do if they may write to one topic, and a record may come to both.
    """
    groups: list[list[Sink]] = []
    for sink in visits.topology:
        if isinstance(sink, Sink):
            met = [group for group in groups if any(_share(visits, one, sink) for one in group)]
            groups = [group for group in groups if group not in met]
            groups.append([*(one for group in met for one in group), sink])
    places = {node.name: place for place, node in enumerate(visits.topology)}
    return [sorted(group, key=lambda sink: places[sink.name]) for group in groups if len(group) > 1]


def by_topic(sinks: Sequence[Sink]) -> Mapping[str | None, Meeting]:
    """The sinks of a group that may write to each topic. None: to one that none of them names."""
    return {
        topic: Meeting.of_sinks(sink for sink in sinks if sink.topic in (topic, None))
        for topic in dict.fromkeys(sink.topic for sink in sinks)
    }


def _share(visits: Visits, one: Sink, other: Sink) -> bool:
    if one.topic != other.topic and None not in (one.topic, other.topic):
        return False
    return not visits.sources_of(one.name).isdisjoint(visits.sources_of(other.name))


_ROW_WISE = Branch | Filter | FlatMap | FlatMapValues | Map | MapValues | Merge | Peek | SelectKey | Split


@dataclass(frozen=True, slots=True)
class _Ways:
    """From a node to a meeting. ``ends``: those that each way leads to, in the order of visits.

    ``shared``: the nodes on all of them. ``by_row``: there are none but row-wise operators on them.
    """

    ends: Sequence[frozenset[str]]
    shared: frozenset[str]
    by_row: bool

    @property
    def all(self) -> frozenset[str]:
        return frozenset[str]().union(*self.ends)

    @property
    def part(self) -> bool:
        """Whether there are several, that do not meet before."""
        return len(self.ends) > 1 and not self.shared

    @property
    def are_apart(self) -> bool:
        """Whether no end is reached on two of them."""
        return len(self.all) == sum(map(len, self.ends))


class Partings:
    """Of a topology: which of its nodes lead to a meeting on several ways."""

    def __init__(self, visits: Visits) -> None:
        self._visits = visits
        self._several = _several(visits)
        found = [parting for meeting in meetings(visits) for parting in self.of(meeting)]
        self.with_turns = frozenset(parting.flow for parting in found if parting.ranks is None)
        """The nodes whose rows get turns, for where they meet again they go by them."""

    def of(self, meeting: Meeting) -> tuple[Parting, ...]:
        """The nodes, by name, from which several ways lead to a meeting, parents before children.

        None where it is enough to take one end after the other: no record has several rows where its ways part, nor do
        they meet in between. And none where such ways pass anything but row-wise operators.
        """
        order = self._visits.order(meeting)
        return () if order is None else (*self._forks(meeting), *_contrary(order))

    def _forks(self, meeting: Meeting) -> tuple[Parting, ...]:
        ways = _ways_to(self._visits, meeting)
        forks = [name for name, mine in ways.items() if mine.part]
        needed = [name for name in forks if name in self._several or not ways[name].are_apart]
        if not needed or not all(ways[name].by_row for name in needed):
            return ()
        ranks = {
            name: None if ways[name].by_row else _ranks(ways[name], self._visits.order_below(name, meeting))
            for name in forks
        }
        if any(rank is None and not ways[name].by_row for name, rank in ranks.items()):
            return ()
        return tuple(Parting(name, ranks[name], self._visits.sources_of(name)) for name in forks)


def _contrary(order: Order) -> Iterator[Parting]:
    """For rows of the sources that do not want the usual order: theirs."""
    for source, ends in order.contrary.items():
        yield Parting(source, {name: rank for rank, name in enumerate(ends)}, frozenset({source}))


def _ways_to(visits: Visits, meeting: Meeting) -> Mapping[str, _Ways]:
    """From each node, parents before children."""
    found: dict[str, _Ways] = {}
    for node in reversed(list(visits.topology)):
        ends, shared, by_row = [], [], True
        for child in visits.children[node.name]:
            if (node.name, child.name) in meeting.ends:
                ends.append(frozenset({meeting.ends[node.name, child.name]}))
                shared.append(frozenset[str]())
            elif node.name in handing(child) and found[child.name].ends:
                below = found[child.name]
                ends.append(below.all)
                shared.append(below.shared | {child.name})
                by_row &= isinstance(child, _ROW_WISE) and below.by_row
        found[node.name] = _Ways(ends, shared[0].intersection(*shared) if shared else frozenset(), by_row)
    return dict(reversed(found.items()))


def _ranks(ways: _Ways, order: Sequence[str]) -> Mapping[str, int] | None:
    """For each end the place of its way among the others; None if they take turns."""
    ends = sorted(ways.ends, key=lambda names: min(map(order.index, names)))
    if list(order) != [name for names in ends for name in order if name in names]:
        return None
    return {name: rank for rank, names in enumerate(ends) for name in names}


def _several(visits: Visits) -> frozenset[str]:
    """The streams that one record can have several rows in."""
    found: set[str] = set()
    for node in visits.topology:
        makes = isinstance(node, FlatMap | FlatMapValues | StreamStreamJoin) or (
            isinstance(node, Merge) and visits.order(Meeting.of(node)) is not None
        )
        if node.shape == "stream" and (makes or not found.isdisjoint(handing(node))):
            found.add(node.name)
    return frozenset(found)
