"""How many bytes values of Avro types have."""

from __future__ import annotations

from functools import lru_cache

from crossstream.serdes.avro.schema import MOST_TYPES, Field, Node

EMPTY_ITEMS = 1000
"""Items without bytes that one payload may have: a few bytes could claim billions of them."""

_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def entry_of(value: Node) -> Node:
    """The record of an entry of a map."""
    return Node("record", "entry", fields=[Field("key", Node("string")), Field("value", value)])


@lru_cache(maxsize=MOST_TYPES)
def fixed_width(node: Node) -> int | None:
    """The bytes of every value of a type; None: they differ."""
    if node.kind == "record":
        found = [fixed_width(one.node) for one in node.fields]
        return None if None in found else sum(width or 0 for width in found)
    return node.size if node.kind == "fixed" else _WIDTHS.get(node.kind)


@lru_cache(maxsize=MOST_TYPES)
def least_bytes(node: Node) -> int:
    """The bytes that a value of the type has at least; 0: no value has any."""
    if node.kind == "record":
        return sum(least_bytes(one.node) for one in node.fields)
    width = fixed_width(node)
    return 1 if width is None else width
