"""The checks of the joins with a global table, and the nodes they become."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossstream.dsl.checks import REQUIRED, function_of
from crossstream.dsl.global_table import GlobalKTable
from crossstream.dsl.handle import OPERATORS, check_same_builder, child, given_name, table_result
from crossstream.dsl.options import Materialized, Named
from crossstream.errors import TopologyError
from crossstream.topology.graph import ForeignKeyJoin, JoinKind, Node, StreamGlobalJoin
from crossstream.topology.location import here
from crossstream.typing import ForeignKeyExtractor, KeySelector, ValueJoiner

if TYPE_CHECKING:
    from crossstream.dsl.kstream import KStream
    from crossstream.dsl.ktable import KTable


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
    function = function_of(operator, "joiner", joiner, {"left": left._node, "right": other._node})
    return child(
        left._draft,
        StreamGlobalJoin,
        f"{operator}({other._node.name})",
        left._node,
        given_name(operator, named),
        parents=(left._node.name, other._node.name),
        value=None,
        value_type=function.returns,
        kind=kind,
        key_selector=function_of(operator, "key_selector", key_selector, {"value": left._node}, by_name=True),
        joiner=function,
    )


def table_global_join(
    kind: JoinKind,
    left: KTable,
    other: GlobalKTable,
    joiner: ValueJoiner,
    foreign_key: ForeignKeyExtractor | None,
    key_selector: KeySelector | None,
    table_joined: object,
    named: Named | None,
    materialized: Materialized | None,
) -> Node:
    """A new `ForeignKeyJoin` below the tables: its right parent is a global table. Raises CS-145."""
    operator = OPERATORS[kind]
    check_same_builder(operator, left._draft, other._draft)
    fault = _misused(foreign_key, key_selector, table_joined)
    if fault is not None:
        what, step = fault
        raise TopologyError(what, code="CS-145", where=here(operator), next=step)
    function = function_of(operator, "joiner", joiner, {"left": left._node, "right": other._node})
    role, extractor = ("key_selector", key_selector) if foreign_key is None else ("foreign_key", foreign_key)
    return child(
        left._draft,
        ForeignKeyJoin,
        f"{operator}({other._node.name})",
        left._node,
        given_name(operator, named),
        parents=(left._node.name, other._node.name),
        kind=kind,
        foreign_key=function_of(operator, role, extractor, {"value": left._node}, by_name=True),
        **table_result(operator, left._node, function, materialized),
    )


def check_not_global(operator: str, other: object) -> None:
    """CS-145: the rows of a global table that nobody names are in no result."""
    if isinstance(other, GlobalKTable):
        raise TopologyError(
            f"there is no {operator} with a global table",
            code="CS-145",
            where=here(operator),
            next="use join(…) or left_join(…); or read its topic as a table",
        )


def _misused(foreign_key: object, key_selector: object, table_joined: object) -> tuple[str, str] | None:
    """What is wrong with the way a table is to be joined with a global one, and the next step; None: nothing."""
    if table_joined is not None:
        step = 'drop table_joined; a name is given by named=Named("…")'
        return "a join with a global table has no partitioners: the table is whole everywhere", step
    if foreign_key is None and key_selector is None:
        step = "pass foreign_key=lambda left: …; by its own key: foreign_key=cs.keyed(lambda key, left: key)"
        return "a table looks its row in a global table up by a foreign key, and none is given", step
    if foreign_key is not None and key_selector is not None:
        return "foreign_key and key_selector are two names for one thing", "pass one of them"
    return None
