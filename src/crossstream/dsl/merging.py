"""The checks of a merge of streams, and the node it becomes."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from crossstream.dsl.handle import check_same_builder, child, given_name, misplaced_name
from crossstream.dsl.options import Named
from crossstream.dsl.serde_rules import same
from crossstream.errors import TopologyError
from crossstream.topology.graph import Merge, Node
from crossstream.topology.location import here

if TYPE_CHECKING:
    from crossstream.dsl.kstream import KStream


def merged(stream: KStream, others: tuple[KStream, ...], named: Named | None) -> Node:
    """A new `Merge` below all of the streams. Raises `TopologyError`: CS-107 for anything but streams, CS-130."""
    from crossstream.dsl.kstream import KStream

    if not others:
        raise _not_a_stream(None)
    for other in others:
        if not isinstance(other, KStream):
            raise _not_a_stream(other)
        check_same_builder("merge", stream._draft, other._draft)
    nodes = [stream._node, *(other._node for other in others)]
    serdes = {
        "key": reduce(same, [node.key for node in nodes]),
        "value": reduce(same, [node.value for node in nodes]),
        "key_type": reduce(same, [node.key or node.key_type for node in nodes]),
        "value_type": reduce(same, [node.value or node.value_type for node in nodes]),
    }
    path = f"merge({','.join(node.name for node in nodes[1:])})"
    parents = tuple(node.name for node in nodes)
    name = given_name("merge", named)
    return child(stream._draft, Merge, path, stream._node, name, parents=parents, **serdes)


def _not_a_stream(given: object) -> TopologyError:
    if isinstance(given, Named):
        return misplaced_name("merge", "one of the streams")
    return TopologyError(
        f"merge takes streams, not {'nothing' if given is None else type(given).__name__}",
        code="CS-107",
        where=here("merge"),
        next="pass one KStream or several; a table becomes one by to_stream()",
    )
