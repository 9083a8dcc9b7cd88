"""Where records move to other partitions, and the order in which one record visits operators: Kafka's, depth first.

Where a stream branches and the branches end in one merge or one topic, rows are sorted by this order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from crossstream.columns.order import Fork
from crossstream.graph import nodes as graph
from crossstream.graph.names import keepers

Visit = tuple[int, tuple[int, ...]]
"""When a record visits a node: after how many shuffles, and by which child of each node on the path."""


@dataclass(frozen=True, slots=True)
class MergePoint:
    """Where branches end: a merge of streams, or sinks that may write to one topic.

    ``inputs``: the name of each input, by the last edge to it (parent, child): the stream, or the sink.
    """

    inputs: Mapping[tuple[str, str], str]

    @classmethod
    def of(cls, merge: graph.Merge) -> MergePoint:
        return cls({(parent, merge.name): parent for parent in merge.parents})

    @classmethod
    def of_sinks(cls, sinks: Iterable[graph.Sink]) -> MergePoint:
        return cls({(sink.parents[0], sink.name): sink.name for sink in sinks})


@dataclass(frozen=True, slots=True)
class Order:
    """The order in which a record visits the inputs of a merge point.

    ``usual``: all inputs, in the order of most sources; ``contrary``: the order of each source that has another one.
    """

    usual: tuple[str, ...]
    contrary: Mapping[str, Sequence[str]]


class Visits:
    """When records of each source visit each node of a topology."""

    def __init__(self, topology: graph.Graph) -> None:
        self.topology = topology
        self.children: dict[str, list[graph.Node]] = {node.name: [] for node in topology}
        for node in topology:
            for parent in dict.fromkeys(node.parents):
                self.children[parent].append(node)
        self._steps = {
            (parent, node.name): (_moves(topology, parent, node), self.child_number(parent, node))
            for node in topology
            for parent in node.forwarders
        }
        sources = [node.name for node in topology if node.reads_input]
        self._first = {name: self._from(name, min) for name in sources}
        self._last = {name: self._from(name, max) for name in sources}

    def child_number(self, parent: str, node: graph.Node) -> int:
        return [child.name for child in self.children[parent]].index(node.name)

    def looking_first(self, join: graph.StreamTableJoin) -> frozenset[str]:
        """The sources whose records look up the table of a join before they change it."""
        kept = keepers(self.topology.nodes, join.parents[1])
        found = set()
        for source, first in self._first.items():
            changes = [last for name in kept if (last := self._last[source].get(name)) is not None]
            if changes and join.name in first and max(changes) >= first[join.name]:
                found.add(source)
        return frozenset(found)

    def right_first(self, join: graph.StreamStreamJoin) -> frozenset[str]:
        """The sources whose records visit the right side of a join before the left side."""
        left, right = join.parents
        return frozenset(
            source
            for source, first in self._first.items()
            if left != right
            and left in first
            and right in first
            and self._visit(first, right, join.name) < self._visit(first, left, join.name)
        )

    def order(self, point: MergePoint) -> Order | None:
        """The order of a merge point's inputs; None if no record comes to several of them."""
        orders = {
            source: order
            for source, first in self._first.items()
            if len(order := self._order(first, point)) > 1
        }
        if not orders:
            return None
        usual = _together(orders.values(), tuple(dict.fromkeys(point.inputs.values())))
        contrary = {
            source: order
            for source, order in orders.items()
            if order != [name for name in usual if name in order]
        }
        return Order(usual, contrary)

    def order_below(self, node: str, point: MergePoint) -> Sequence[str]:
        """The inputs in the order in which a row of ``node`` visits them."""
        return self._order(self._from(node, min), point)

    def sources_of(self, node: str) -> frozenset[str]:
        """The sources whose records reach a node."""
        return frozenset(source for source, first in self._first.items() if node in first)

    def _order(self, first: Mapping[str, Visit], point: MergePoint) -> list[str]:
        """The inputs that rows reach, by their first visit."""
        visits = {
            name: self._visit(first, parent, child)
            for (parent, child), name in point.inputs.items()
            if parent in first
        }
        return sorted(visits, key=visits.__getitem__)

    def _from(self, start: str, pick: Callable[[Iterable[Visit]], Visit]) -> dict[str, Visit]:
        """The first (``pick`` = min) or last (max) visit of a row of ``start`` to each node."""
        found: dict[str, Visit] = {start: (0, ())}
        for node in self.topology:
            visits = [self._visit(found, parent, node.name) for parent in node.forwarders if parent in found]
            if visits:
                found[node.name] = pick(visits)
        return found

    def _visit(self, found: Mapping[str, Visit], parent: str, child: str) -> Visit:
        (moves, path), (more, child_number) = found[parent], self._steps[parent, child]
        return moves + more, (*path, child_number)


def _together(orders: Iterable[Sequence[str]], names: Sequence[str]) -> tuple[str, ...]:
    """All ``names`` in an order that agrees with as many of ``orders`` as possible, the first ones first."""
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


def _moves(topology: graph.Graph, parent: str, node: graph.Node) -> int:
    if node.answers_by_key:  # a row on the left goes to the right one, and comes back
        return 2 if parent == node.parents[0] else 1
    return int(is_rekeying(topology, parent, node))


def sharing(visits: Visits) -> list[Sequence[graph.Sink]]:
    """Groups of sinks that write together: they may write to one topic, and one record may reach several of them."""
    groups: list[list[graph.Sink]] = []
    for sink in visits.topology.each(graph.Sink):
        met = [group for group in groups if any(_share(visits, one, sink) for one in group)]
        groups = [group for group in groups if group not in met]
        groups.append([*(one for group in met for one in group), sink])
    position = {node.name: number for number, node in enumerate(visits.topology)}
    return [sorted(group, key=lambda sink: position[sink.name]) for group in groups if len(group) > 1]


def by_topic(sinks: Sequence[graph.Sink]) -> Mapping[str | None, MergePoint]:
    """The sinks of a group that may write to each topic; None: to a topic that no sink names."""
    return {
        topic: MergePoint.of_sinks(sink for sink in sinks if sink.topic in (topic, None))
        for topic in dict.fromkeys(sink.topic for sink in sinks)
    }


def _share(visits: Visits, one: graph.Sink, other: graph.Sink) -> bool:
    if one.topic != other.topic and None not in (one.topic, other.topic):
        return False
    return not visits.sources_of(one.name).isdisjoint(visits.sources_of(other.name))


@dataclass(frozen=True, slots=True)
class _Branches:
    """The branches from a node to a merge point. ``ends``: the inputs that each branch leads to, in visit order.

    ``shared``: the nodes that all branches pass. ``by_row``: the branches pass row-wise operators only.
    """

    ends: Sequence[frozenset[str]]
    shared: frozenset[str]
    by_row: bool

    @property
    def all(self) -> frozenset[str]:
        return frozenset[str]().union(*self.ends)

    @property
    def is_fork(self) -> bool:
        """Whether several branches begin here, and do not all pass one node before the merge point."""
        return len(self.ends) > 1 and not self.shared

    @property
    def are_apart(self) -> bool:
        """Whether each input is at the end of one branch only."""
        return len(self.all) == sum(map(len, self.ends))


class Forks:
    """The nodes of a topology from which several branches lead to one merge point."""

    def __init__(self, visits: Visits) -> None:
        self._visits = visits
        self._several = _several(visits)
        points = [MergePoint.of(node) for node in visits.topology.each(graph.Merge)]
        points += [point for sinks in sharing(visits) for point in by_topic(sinks).values()]
        forks = [fork for point in points for fork in self.of(point)]
        self.tagged = frozenset(fork.flow for fork in forks if fork.ranks is None)
        """The nodes whose rows are tagged, because a merge sorts by the tags."""

    def of(self, point: MergePoint) -> tuple[Fork, ...]:
        """The forks above a merge point, parents before children.

        Empty where it is enough to take one input after the other: no record has several rows at a fork, and branches
        do not cross. Empty too where a branch of such a fork passes more than row-wise operators.
        """
        order = self._visits.order(point)
        if order is None:
            return ()
        contrary = [
            Fork(source, {name: rank for rank, name in enumerate(ends)}, frozenset({source}))
            for source, ends in order.contrary.items()
        ]
        return (*self._forks(point), *contrary)

    def _forks(self, point: MergePoint) -> tuple[Fork, ...]:
        branches = _branches_to(self._visits, point)
        forks = [name for name, mine in branches.items() if mine.is_fork]
        needed = [name for name in forks if name in self._several or not branches[name].are_apart]
        if not needed or not all(branches[name].by_row for name in needed):
            return ()
        ranks = {
            name: None
            if branches[name].by_row
            else _ranks(branches[name], self._visits.order_below(name, point))
            for name in forks
        }
        if any(rank is None and not branches[name].by_row for name, rank in ranks.items()):
            return ()
        return tuple(Fork(name, ranks[name], self._visits.sources_of(name)) for name in forks)


def _branches_to(visits: Visits, point: MergePoint) -> Mapping[str, _Branches]:
    """The branches from each node, parents before children."""
    found: dict[str, _Branches] = {}
    for node in reversed(list(visits.topology)):
        ends, shared, by_row = [], [], True
        for child in visits.children[node.name]:
            if (node.name, child.name) in point.inputs:
                ends.append(frozenset({point.inputs[node.name, child.name]}))
                shared.append(frozenset[str]())
            elif node.name in child.forwarders and found[child.name].ends:
                below = found[child.name]
                ends.append(below.all)
                shared.append(below.shared | {child.name})
                by_row &= child.row_wise and below.by_row
        found[node.name] = _Branches(ends, shared[0].intersection(*shared) if shared else frozenset(), by_row)
    return dict(reversed(found.items()))


def _ranks(branches: _Branches, order: Sequence[str]) -> Mapping[str, int] | None:
    """For each input the rank of its branch; None if the branches alternate."""
    ends = sorted(branches.ends, key=lambda names: min(map(order.index, names)))
    if list(order) != [name for names in ends for name in order if name in names]:
        return None
    return {name: rank for rank, names in enumerate(ends) for name in names}


def _several(visits: Visits) -> frozenset[str]:
    """The streams in which one record can have several rows."""
    found: set[str] = set()
    for node in visits.topology:
        makes = node.multiplies or (
            isinstance(node, graph.Merge) and visits.order(MergePoint.of(node)) is not None
        )
        if node.shape == "stream" and (makes or not found.isdisjoint(node.forwarders)):
            found.add(node.name)
    return frozenset(found)


def sub_topologies(topology: graph.Graph) -> list[list[str]]:
    """Names of the nodes of each part, parts and names in the order they were built."""
    part = {node.name: node.name for node in topology}

    def root(name: str) -> str:
        while part[name] != name:
            name = part[name]
        return name

    for node in topology:
        for parent in node.parents:
            together = topology[parent].shape != "global" or node.shape == "global"
            if together and not is_rekeying(topology, parent, node):
                part[root(node.name)] = root(parent)
    groups: dict[str, list[str]] = {}
    for node in topology:
        groups.setdefault(root(node.name), []).append(node.name)
    return list(groups.values())


def is_rekeying(topology: graph.Graph, parent: str, node: graph.Node) -> bool:
    """Whether records move to the partition of another key between ``parent`` and ``node``."""
    if topology[parent].shape == "global":
        return False
    if node.by_foreign_key:
        return parent != node.parents[0]
    moves = node.by_key and parent in node.forwarders
    return moves and (node.always_moves or has_new_key(topology, parent))


def has_new_key(topology: graph.Graph, name: str) -> bool:
    """Whether keys may have changed since records last were in the partition of their key (semantics 3.2)."""
    above, seen = [name], {name}
    while above:
        node = topology[above.pop()]
        if node.changes_key or node.by_other_key:
            return True
        if not node.by_key:
            above += [parent for parent in node.parents if parent not in seen]
            seen.update(node.parents)
    return False
