"""A topology as text in the layout of Kafka's ``TopologyDescription``, and as plain data.

Sub-topologies are parts whose operators share the keys of their records; between them records move to the
partition of another key. Nothing global is numbered, so the text changes only where the topology does.
Source: semantics 3.11 (``InternalTopologyBuilder.TopologyDescription``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from crossstream.graph import nodes as graph
from crossstream.graph.names import keepers, store_name, store_names
from crossstream.graph.traversal import sub_topologies

FRAME = "<DataFrame>"


def to_text(topology: graph.Graph) -> str:
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


def to_dict(topology: graph.Graph) -> dict[str, Any]:
    """The nodes as plain data for JSON, and the names in each sub-topology."""
    return {
        "nodes": [_node_dict(topology, node) for node in topology],
        "sub_topologies": sub_topologies(topology),
    }


def _topics(node: graph.Node) -> str:
    """What a source reads, as Kafka prints it: ``[orders, returns]``, or the bare pattern."""
    if isinstance(node, graph.Source):
        return f"[{', '.join(node.topics)}]" if node.pattern is None else node.pattern.pattern
    return f"[{FRAME}]"


def _entries(topology: graph.Graph, node: graph.Node) -> Iterable[str]:
    below = _names(
        child.name for child in topology.children(node.name) if node.name in _forwarders(topology, child)
    )
    above = _names(_forwarders(topology, node))
    if isinstance(node, graph.Sink):
        target = f"topic: {node.topic}"
        if node.topic_of is not None:
            target = f"extractor class: {callable_name(node.topic_of)}"
        return [f"Sink: {node.name} ({target})\n      <-- {above}"]
    if not node.reads_input:
        return [
            f"Processor: {node.name} (stores: [{_stores(topology, node)}])\n      --> {below}\n      <-- {above}"
        ]
    if node.shape == "stream":
        return [f"Source: {node.name} (topics: {_topics(node)})\n      --> {below}"]
    source = f"{node.name}-source"
    return [
        f"Source: {source} (topics: {_topics(node)})\n      --> {node.name}",
        f"Processor: {node.name} (stores: [{_stores(topology, node)}])\n      --> {below}\n      <-- {source}",
    ]


def _names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"


def _forwarders(topology: graph.Graph, node: graph.Node) -> list[str]:
    if node.shape == "global":
        return list(node.parents)
    return [parent for parent in node.forwarders if topology[parent].shape != "global"]


def _stores(topology: graph.Graph, node: graph.Node) -> str:
    looked_up = keepers(topology.nodes, node.parents[1]) if node.as_of_record else []
    if node.is_view:
        looked_up = keepers(topology.nodes, node.name)
    return ", ".join(
        name for one in [*looked_up, node.name] for name in store_names(topology.nodes, topology[one])
    )


def callable_name(function: Callable[..., Any]) -> str:
    """The name of a function, without blanks."""
    return str(getattr(function, "__qualname__", type(function).__qualname__)).replace(" ", "")


def _node_dict(topology: graph.Graph, node: graph.Node) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": node.name,
        "operator": node.public_name,
        "parents": list(node.parents),
        "children": [child.name for child in topology.children(node.name)],
        "shape": node.shape,
        "key": None if node.key is None else node.key.name,
        "value": None if node.value is None else node.value.name,
        "store": store_name(node),
        "line": None if node.location is None else str(node.location),
    }
    if node.store is not None and node.ttl is not None:
        entry |= {"ttl": node.ttl, "clock": node.store.clock}
    if node.side_stores:
        entry["stores"] = store_names(topology.nodes, node)
    return entry | node.described
