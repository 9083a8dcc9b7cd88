"""A topology as text in the layout of Kafka's ``TopologyDescription``, and as plain data.

Sub-topologies are parts whose operators share the keys of their records; between them records move to the
partition of another key. Nothing global is numbered, so the text changes only where the topology does.
Source: semantics 3.11 (``InternalTopologyBuilder.TopologyDescription``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from crossstream.graph.nodes import (
    Aggregate,
    ForeignKeyJoin,
    FrameSource,
    GlobalJoin,
    Graph,
    GroupTable,
    ManyJoin,
    Node,
    Repartition,
    Sink,
    Source,
    StreamGlobalJoin,
    StreamStreamJoin,
    StreamTableJoin,
    TableJoin,
    ToTable,
    changes_key,
)
from crossstream.graph.stores import keepers, store_name, store_names
from crossstream.serdes import Serde

FRAME = "<DataFrame>"


def to_text(topology: Graph) -> str:
    """Kafka's layout, blanks included; a table source is a source and the processor that keeps it."""
    parts = []
    for number, names in enumerate(sub_topologies(topology)):
        entries = [entry for name in names for entry in _entries(topology, topology[name])]
        body = "".join(f"    {entry}\n" for entry in entries)
        if topology[names[0]].shape == "global":
            parts.append(f"  Sub-topology: {number} for global store (will not generate tasks)\n{body}")
        else:
            parts.append(f"  Sub-topology: {number}\n{body}\n")
    return "Topologies:\n " + "".join(parts)


def to_dict(topology: Graph) -> dict[str, Any]:
    """The nodes as plain data for JSON, and the names in each sub-topology."""
    return {
        "nodes": [_node_dict(topology, node) for node in topology],
        "sub_topologies": sub_topologies(topology),
    }


def sub_topologies(topology: Graph) -> list[list[str]]:
    """Names of the nodes of each part, parts and names in the order they were built."""
    part = {node.name: node.name for node in topology}

    def root(name: str) -> str:
        while part[name] != name:
            name = part[name]
        return name

    for node in topology:
        for parent in node.parents:
            together = topology[parent].shape != "global" or isinstance(node, GlobalJoin)
            if together and not is_rekeying(topology, parent, node):
                part[root(node.name)] = root(parent)
    groups: dict[str, list[str]] = {}
    for node in topology:
        groups.setdefault(root(node.name), []).append(node.name)
    return list(groups.values())


def is_rekeying(topology: Graph, parent: str, node: Node) -> bool:
    """Whether records move to the partition of another key between ``parent`` and ``node``."""
    if topology[parent].shape == "global":
        return False
    if isinstance(node, Repartition):
        return True
    if isinstance(node, ForeignKeyJoin | ManyJoin):
        return parent != node.parents[0]
    if isinstance(node, StreamTableJoin):
        return parent == node.parents[0] and has_new_key(topology, parent)
    return isinstance(node, Aggregate | ToTable | StreamStreamJoin) and has_new_key(topology, parent)


_IN_PLACE = (
    Aggregate | Repartition | ToTable | TableJoin | ForeignKeyJoin | StreamTableJoin | StreamStreamJoin
)
"""Operators that yield rows in the partition of their key."""


def has_new_key(topology: Graph, name: str) -> bool:
    """Whether keys may have changed since records last were in the partition of their key (semantics 3.2)."""
    above, seen = [name], {name}
    while above:
        node = topology[above.pop()]
        if changes_key(node):
            return True
        if not isinstance(node, _IN_PLACE):
            above += [parent for parent in node.parents if parent not in seen]
            seen.update(node.parents)
    return False


def kind_of(node: Node) -> str:
    """The operator's public name: ``filter_not``, ``left_join``, ``table``, …"""
    if isinstance(node, Source | FrameSource):
        return node.shape
    if isinstance(node, TableJoin | ForeignKeyJoin | StreamTableJoin | StreamStreamJoin):
        return "join" if node.kind == "inner" else f"{node.kind}_join"
    if isinstance(node, ManyJoin):
        return "join_many" if node.kind == "inner" else f"{node.kind}_join_many"
    if isinstance(node, Sink):
        return "to"
    if isinstance(node, StreamGlobalJoin | GlobalJoin):
        return "left_join" if node.kind == "left" else "join"
    if isinstance(node, Aggregate):
        return node.operator
    name = (
        "group_by"
        if isinstance(node, GroupTable)
        else re.sub(r"(?<!^)([A-Z])", r"_\1", type(node).__name__).lower()
    )
    if getattr(node, "negate", False):
        return "filter_not"
    return "foreach" if getattr(node, "terminal", False) else name


def topics_of(node: Node) -> str:
    """What a source reads, as Kafka prints it: ``[orders, returns]``, or the bare pattern."""
    if isinstance(node, Source):
        return f"[{', '.join(node.topics)}]" if node.pattern is None else node.pattern.pattern
    return f"[{FRAME}]"


def _entries(topology: Graph, node: Node) -> Iterable[str]:
    below = _names(
        child.name for child in topology.children(node.name) if node.name in _forwarders(topology, child)
    )
    above = _names(_forwarders(topology, node))
    if isinstance(node, Sink):
        return [f"Sink: {node.name} ({_target(node)})\n      <-- {above}"]
    if not isinstance(node, Source | FrameSource):
        return [
            f"Processor: {node.name} (stores: [{_stores(topology, node)}])\n      --> {below}\n      <-- {above}"
        ]
    if node.shape == "stream":
        return [f"Source: {node.name} (topics: {topics_of(node)})\n      --> {below}"]
    source = f"{node.name}-source"
    return [
        f"Source: {source} (topics: {topics_of(node)})\n      --> {node.name}",
        f"Processor: {node.name} (stores: [{_stores(topology, node)}])\n      --> {below}\n      <-- {source}",
    ]


def _names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"


def _forwarders(topology: Graph, node: Node) -> list[str]:
    """The parents that forward records to a node: not a table that a stream looks up."""
    parents = node.parents[:1] if isinstance(node, StreamTableJoin) else node.parents
    if isinstance(node, GlobalJoin):
        return list(parents)
    return [parent for parent in parents if topology[parent].shape != "global"]


def _stores(topology: Graph, node: Node) -> str:
    looked_up = keepers(topology.nodes, node.parents[1]) if isinstance(node, StreamTableJoin) else []
    if isinstance(node, GlobalJoin):
        looked_up = keepers(topology.nodes, node.name)
    return ", ".join(
        name for one in [*looked_up, node.name] for name in store_names(topology.nodes, topology[one])
    )


def _target(node: Sink) -> str:
    return (
        f"topic: {node.topic}"
        if node.topic_of is None
        else f"extractor class: {callable_name(node.topic_of)}"
    )


def callable_name(function: Callable[..., Any]) -> str:
    """The name of a function, without blanks."""
    return str(getattr(function, "__qualname__", type(function).__qualname__)).replace(" ", "")


def _node_dict(topology: Graph, node: Node) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": node.name,
        "operator": kind_of(node),
        "parents": list(node.parents),
        "children": [child.name for child in topology.children(node.name)],
        "shape": node.shape,
        "key": _serde_name(node.key),
        "value": _serde_name(node.value),
        "store": store_name(node),
        "line": None if node.location is None else str(node.location),
    }
    if isinstance(node, Source):
        entry["topics"] = list(node.topics)
        entry["pattern"] = None if node.pattern is None else node.pattern.pattern
    if isinstance(node, Sink):
        entry["topic"] = node.topic
    if isinstance(node, TableJoin | ForeignKeyJoin):
        entry["foreign_key"] = isinstance(node, ForeignKeyJoin)
    if isinstance(node, StreamStreamJoin):
        entry["stores"] = store_names(topology.nodes, node)
        entry["window"] = {name: getattr(node, name) for name in ("before", "after", "grace", "eager")}
    if isinstance(node, ManyJoin):
        entry["foreign_keys"] = list(node.names)
    return entry


def _serde_name(serde: Serde | None) -> str | None:
    return None if serde is None else serde.name
