"""The checks of the joins with a global table, and the nodes they become."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossstream.dsl.checks import REQUIRED, function_of
from crossstream.dsl.handle import OPERATORS, child, given_name
from crossstream.dsl.options import Named
from crossstream.errors import TopologyError
from crossstream.topology.graph import JoinKind, Node, StreamGlobalJoin
from crossstream.topology.location import here
from crossstream.typing import KeySelector, ValueJoiner

if TYPE_CHECKING:
    from crossstream.dsl.global_table import GlobalKTable
    from crossstream.dsl.kstream import KStream


def stream_global_join(
    kind: JoinKind,
    left: KStream,
    other: GlobalKTable,
    joiner: ValueJoiner = REQUIRED,
    *,
    key_selector: KeySelector = REQUIRED,
    named: Named | None = None,
) -> Node:
    """A new `StreamGlobalJoin` below the stream and the table. Raises CS-137 for an outer join."""
    operator = OPERATORS[kind]
    if kind == "outer":
        raise TopologyError(
            "there is no outer join with a global table: its rows are looked up and trigger nothing",
            code="CS-137",
            where=here(operator),
            next="use left_join(…), which keeps the records without a partner",
        )
    return child(
        left._draft,
        StreamGlobalJoin,
        f"{operator}({other._node.name})",
        left._node,
        given_name(operator, named),
        parents=(left._node.name, other._node.name),
        value=None,
        kind=kind,
        key_selector=function_of(operator, "key_selector", key_selector),
        joiner=function_of(operator, "joiner", joiner, ("left", "right")),
    )
