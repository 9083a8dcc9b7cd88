"""The order in which one record reaches the operators of a topology: Kafka's, depth first.

A node hands a record to its children in the order in which they were built, each with all that is below it before
the next. What moves to the partition of another key comes after all that does not. Source: semantics 1.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

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


def table_comes_first(topology: Topology, join: StreamTableJoin) -> bool:
    """Whether the table of a join takes over what a record changes in it before the record itself looks there.

    Without a source that feeds both it does not matter.
    """
    kept = keepers(topology.nodes, join.parents[1])
    for source in topology:
        if isinstance(source, Source | FrameSource):
            first, last = _visits(topology, source, min), _visits(topology, source, max)
            changes = [last[name] for name in kept if name in last]
            if changes and join.name in first:
                return max(changes) < first[join.name]
    return True


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


def by_visit(topology: Topology, meeting: Meeting) -> tuple[str, ...] | None:
    """The ends in the order in which a record that comes on several ways gets there; None if none does."""
    names = list(dict.fromkeys(meeting.ends.values()))
    for source in topology:
        if isinstance(source, Source | FrameSource):
            first = _visits(topology, source, min)
            visits = {
                name: _way(topology, first, parent, topology[child])
                for (parent, child), name in meeting.ends.items()
                if parent in first
            }
            if len(visits) > 1:
                return (*sorted(visits, key=visits.__getitem__), *(n for n in names if n not in visits))
    return None


def right_comes_first(topology: Topology, join: StreamStreamJoin) -> bool:
    """Whether a record that feeds both sides of a join reaches the right one before the left one."""
    left, right = join.parents
    for source in topology:
        if left != right and isinstance(source, Source | FrameSource):
            first = _visits(topology, source, min)
            if left in first and right in first:
                return _way(topology, first, right, join) < _way(topology, first, left, join)
    return False


def _visits(topology: Topology, source: Node, pick: Callable[[Iterable[Visit]], Visit]) -> dict[str, Visit]:
    """When a record of ``source`` reaches each node, first (``pick`` = min) or last (max) of all ways to it."""
    found: dict[str, Visit] = {source.name: (0, ())}
    for node in topology:
        ways = [_way(topology, found, parent, node) for parent in handing(node) if parent in found]
        if ways:
            found[node.name] = pick(ways)
    return found


def _way(topology: Topology, found: dict[str, Visit], parent: str, node: Node) -> Visit:
    moves, places = found[parent]
    return moves + _moves(topology, parent, node), (*places, place_among(topology, parent, node))


def handing(node: Node) -> Iterable[str]:
    """The parents that hand records to a node; a table that is only looked up hands none."""
    return node.parents[:1] if isinstance(node, StreamTableJoin | StreamGlobalJoin) else node.parents


def _moves(topology: Topology, parent: str, node: Node) -> int:
    if isinstance(node, ForeignKeyJoin):
        return 2 if parent == node.parents[0] else 1
    return int(is_rekeying(topology, parent, node))


def place_among(topology: Topology, parent: str, node: Node) -> int:
    """The place of a node among the children of its parent."""
    return [child.name for child in topology.children(parent)].index(node.name)
