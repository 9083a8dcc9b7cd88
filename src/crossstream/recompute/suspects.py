"""Which functions of the user may have given other results than they did."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields

from crossstream.columns.functions import Function
from crossstream.graph.nodes import Graph, Node, Sink
from crossstream.planning.plan import Plan
from crossstream.recompute.partings import Name
from crossstream.recompute.reason import located


def functions_of(node: Node) -> Iterator[tuple[str, Function]]:
    """The functions of an operator, by the fields that they are in."""
    for field in fields(node):
        value = getattr(node, field.name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Function):
                yield field.name, one


def calls_user(node: Node) -> bool:
    """Whether Python code of the user runs in an operator: an expression is what it says."""
    if node.runs_processor or any(one.call is not None for _, one in functions_of(node)):
        return True
    own = (getattr(node, field.name) for field in fields(node) if field.name not in ("key", "value"))
    return any(callable(one) and not hasattr(one, "serialize") for one in own)


def suspects(plan: Plan, different: Collection[Name], same: Collection[Name]) -> list[str]:
    """The operators whose functions may be why stores or topics differ: upwards to rows that are the same."""
    topology = plan.topology
    makers = {node for one in different if (node := _maker(topology, one)) is not None}
    known = {
        node.name
        for node in topology
        for one in same
        if one.kind == "store" and one.name in node.queryable_names
    }
    waiting, found = list(makers), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in found and (name in makers or name not in known):
            found.add(name)
            waiting += topology[name].parents
    return [located(node) for node in topology if node.name in found and calls_user(node)]


def _maker(topology: Graph, one: Name) -> str | None:
    """The operator that writes a topic, or keeps a store: the names of its own begin with that of the operator."""
    for node in topology:
        if one.kind == "topic" and getattr(node, "topic", None) == one.name:
            return node.name
        if one.kind == "store" and one.name in node.queryable_names:
            return node.name
    if one.kind == "table":
        return one.name
    if one.kind == "topic":
        return next((node.name for node in topology.each(Sink) if node.topic is None), None)
    owners = [
        node.name
        for node in topology
        if one.name == node.name or one.name.startswith((f"{node.name}.", f"{node.name}@"))
    ]
    return max(owners, key=len, default=None)
