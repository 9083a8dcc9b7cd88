"""Which row-wise kernel a node stands for."""

from __future__ import annotations

from crossstream.algebra import stateless
from crossstream.algebra.change import Changes
from crossstream.algebra.evaluate import Failure
from crossstream.topology import graph


def apply(node: graph.Node, changes: Changes) -> tuple[Changes, list[Failure]]:
    """The node's function on a piece of its input, and the rows it failed on."""
    table = node.shape == "table"
    match node:
        case graph.Filter():
            kernel = stateless.filter_table if table else stateless.filter_stream
            return kernel(changes, node.predicate, node.negate)
        case graph.MapValues():
            kernel_ = stateless.map_values_table if table else stateless.map_values_stream
            return kernel_(changes, node.mapper)
        case graph.Map():
            return stateless.map_records(changes, node.mapper)
        case graph.SelectKey():
            return stateless.select_key(changes, node.mapper)
        case graph.FlatMap():
            return stateless.flat_map(changes, node.mapper)
        case graph.FlatMapValues():
            return stateless.flat_map_values(changes, node.mapper)
        case graph.Peek():
            return stateless.peek(changes, node.action)
        case graph.Split():
            return stateless.split(changes, node.predicates)
        case graph.Branch():
            return stateless.branch_of(changes, node.index), []
        case graph.ToStream():
            stream = stateless.records_of(changes)
            return (stream, []) if node.mapper is None else stateless.select_key(stream, node.mapper)
        case _:
            return changes, []
