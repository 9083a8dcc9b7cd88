"""Which functions read the values of an operator, and what of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crossstream.algebra.functions import Function
from crossstream.algebra.uses import WHOLE, Fields, columns_of, fields_of
from crossstream.serdes.serde import ANYBODY, Readers
from crossstream.topology.graph import (
    Branch,
    Filter,
    Merge,
    Node,
    Peek,
    Repartition,
    SelectKey,
    Sink,
    Split,
    Topology,
    ToStream,
    ToTable,
    readings,
)

_HANDING_ON = (Branch, Filter, Merge, Peek, Repartition, SelectKey, Sink, Split, ToStream, ToTable)
"""Operators that hand on values as they are; others read them, or nothing is known of them."""


def readers_of(topology: Topology, node: Node) -> Readers:
    """Who reads the values of a source, directly and after they were handed on."""
    extractor = getattr(node, "timestamp_extractor", None)
    found: list[tuple[Function | None, Fields]] = []
    if extractor is not None:
        function = Function.of(extractor, arguments=3)
        found.append((function, _fields(function)))
    for parent, child in readings(topology, node.name, lambda _, child: isinstance(child, _HANDING_ON)):
        reads = list(_reads(child, parent))
        if isinstance(child, _HANDING_ON):
            if child.value not in (None, node.value):  # read by one serde, and written by another
                return ANYBODY
        elif not reads:
            return ANYBODY
        found += reads
    callables = any(function is None or function.expression is None for function, _ in found)
    fields = [read for function, read in found if function is not None and function.expression is not None]
    known = [read for read in fields if read is not None]
    return Readers(frozenset().union(*known) if len(known) == len(fields) else None, callables)


def _reads(node: Node, parent: str) -> Iterator[tuple[Function | None, Fields]]:
    """The functions of an operator that get values of this parent, and the fields that they read; None: a plain one."""
    later = [getattr(node, "action", None), *getattr(node, "predicates", ())]
    for function in filter(None, [*over_values(node, parent), *later]):
        yield function, _fields(function)
    joiner = getattr(node, "joiner", None)
    if joiner is not None:
        yield from ((joiner, fields_of(joiner, side)) for above, side in named_sides(node) if above == parent)
    if isinstance(node, Sink) and (node.topic_of or node.partitioner):
        yield None, None


def _fields(function: Function) -> Fields:
    read = named([function])
    return None if WHOLE in read else frozenset(read)


def named(functions: Sequence[Function]) -> set[str]:
    """The fields that expressions over single values name."""
    return {name for function in functions for name in columns_of(function)} - {"key"}


def named_sides(join: Node) -> list[tuple[str, str]]:
    """The parents of a join, and what its joiner knows them by."""
    return list(zip(join.parents, ("left", *getattr(join, "names", ("right",))), strict=True))


def over_values(node: Node, parent: str) -> list[Function | None]:
    """The functions of an operator that get single values of this parent, the first to run first."""
    found: list[Function | None] = []
    if node.parents[0] == parent:
        found = [
            getattr(node, "foreign_key", None),
            *getattr(node, "foreign_keys", ()),
            getattr(node, "key_selector", None),
        ]
    return [*found, getattr(node, "predicate", None), getattr(node, "mapper", None)]
