"""Checks of a graph before anything runs: names, stores, topics, partition counts.

Each check raises `TopologyError` in the user's line. Source: semantics 5.1
(``InternalTopologyBuilder.addSource``, ``InternalStreamsBuilder.mergeDuplicateSourceNodes``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from crossstream.errors import CopartitionError, TopologyError, caller_location
from crossstream.graph.names import matches
from crossstream.graph.nodes import (
    ForeignKeyJoin,
    ManyJoin,
    Node,
    Repartition,
    Source,
    StreamGlobalJoin,
    changes_key,
)
from crossstream.graph.stores import queryable_names


def check_new_name(nodes: Mapping[str, Node], name: str) -> None:
    """Refuses (CS-120) two operators of one name."""
    if name in nodes:
        raise TopologyError(
            f"there is already an operator named {name!r}",
            code="CS-120",
            where={**caller_location(name), "first used at": str(nodes[name].location)},
            next="give one of them another name",
        )


def check_new_store(nodes: Mapping[str, Node], stores: Mapping[str, str], node: Node) -> None:
    """Refuses (CS-120) two stores of one name. ``stores``: the user's name of a store → the node that keeps it."""
    for store in queryable_names(node):
        if store not in stores:
            continue
        owner = stores[store]
        raise TopologyError(
            f"there is already a store named {store!r}, kept by {owner}",
            code="CS-120",
            where={**caller_location(node.name), "first used at": str(nodes[owner].location)},
            next='give this one another name: Materialized(store="…")',
        )


def check_new_source(nodes: Iterable[Node], source: Source) -> None:
    """Refuses (CS-122) topics of another source, and overlapping sets of topics or patterns."""
    for other in nodes:
        if not isinstance(other, Source):
            continue
        shared = sorted(set(source.topics) & set(other.topics))
        if shared and source.shape == other.shape == "stream":
            raise _clash(
                source,
                other,
                f"the topics of two streams overlap ({', '.join(shared)}) without being the same",
                "read each set of topics by a stream of its own, and merge() the streams",
            )
        if shared:
            noun = "global table" if other.shape == "global" else other.shape
            raise _clash(
                source,
                other,
                f"topic {shared[0]!r} is already read as a {noun}; a second source cannot read it",
                _share(source, other),
            )
        _check_patterns(source, other)


def check_matched_once(topic: str, readers: Sequence[Source]) -> None:
    """Refuses (CS-122) an existing topic that two patterns match."""
    if len(readers) < 2:
        return
    first, second = readers[:2]
    assert second.pattern is not None
    raise TopologyError(
        f"topic {topic!r} is matched by two sources: {first.name} and {second.name}",
        code="CS-122",
        where={"operator": second.name, "line": str(second.location), "first read at": str(first.location)},
        next=f"make one pattern exclude {topic!r}{_such_as(second.pattern, topic)}",
    )


def check_partitions(nodes: Mapping[str, Node], operator: str, parents: Iterable[str]) -> None:
    """Refuses (CS-128) inputs of a join that are repartitioned to different counts."""
    counts = {name: explicit_partitions(nodes, name) for name in parents}
    wanted = {name: count for name, count in counts.items() if count is not None}
    if len(set(wanted.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in wanted.items())
        raise CopartitionError(
            f"the inputs of {operator} are repartitioned to different numbers of partitions: {listed}",
            code="CS-128",
            where=caller_location(operator),
            next="give both the same Repartitioned(partitions=…), or leave it out of one",
        )


def explicit_partitions(nodes: Mapping[str, Node], name: str) -> int | None:
    """The count that the nearest `Repartitioned(partitions=…)` above ``name`` asked for, itself included.

    Where keys have changed since then the join repartitions once more, to the count of its other input.
    """
    above, seen = [name], {name}
    while above:
        node = nodes[above.pop()]
        if isinstance(node, Repartition) and node.partitions is not None:
            return node.partitions
        if not (isinstance(node, Repartition) or changes_key(node)):
            parents = [parent for parent in _placed_as(node) if parent not in seen]
            above += reversed(parents)
            seen.update(parents)
    return None


def _placed_as(node: Node) -> Sequence[str]:
    """The parents that have as many partitions as a node."""
    others_move = isinstance(node, ForeignKeyJoin | ManyJoin | StreamGlobalJoin)
    return node.parents[:1] if others_move else node.parents


def _check_patterns(source: Source, other: Source) -> None:
    for pattern, topics in ((source.pattern, other.topics), (other.pattern, source.topics)):
        for topic in topics:
            if pattern is not None and matches(pattern, topic):
                raise _clash(
                    source,
                    other,
                    f"pattern {pattern.pattern!r} matches topic {topic!r}, which another source reads",
                    f"make the pattern exclude {topic!r}{_such_as(pattern, topic)}",
                )


def _such_as(pattern: re.Pattern[str], topic: str) -> str:
    """An example of such a pattern, for a pattern without flags."""
    if pattern.flags != re.UNICODE or "'" in pattern.pattern:
        return ""
    return f", such as r'(?!{re.escape(topic)}$)(?:{pattern.pattern})'"


def _share(source: Source, other: Source) -> str:
    shapes = {source.shape, other.shape}
    if shapes == {"table"}:
        return "call table() once and use the KTable twice; a table may be joined with itself"
    if shapes == {"global"}:
        return "call global_table() once and use it in every join"
    if "global" in shapes:
        return "read it as one of the two; tables need no global table: they join by foreign_key"
    return "read the topic once as a table and use to_stream(), or as a stream and use to_table()"


def _clash(source: Source, other: Source, what: str, next: str) -> TopologyError:
    where = {**caller_location(source.name), "first read at": str(other.location)}
    return TopologyError(what, code="CS-122", where=where, next=next)
