"""Where the rows of one record part that meet again, so that they can be put in turn there. Source: semantics 1.2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from crossstream.algebra.turns import Parting
from crossstream.topology.graph import (
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    Map,
    MapValues,
    Merge,
    Peek,
    SelectKey,
    Split,
    StreamStreamJoin,
)
from crossstream.topology.meetings import meetings
from crossstream.topology.visits import Meeting, Order, Visits, handing

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
