"""The checks of a join, and the node it becomes.

What is on the other side of a stream decides which join it is (`STREAM_JOINS`); a table is joined by key, or by
foreign key.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import polars as pl

from crossstream.api.checks import check_option, function_of
from crossstream.api.draft import (
    OPERATORS,
    Draft,
    Handle,
    check_same_builder,
    child,
    given_name,
    table_result,
)
from crossstream.api.options import Materialized, Named, TableJoined
from crossstream.api.stream_joins import stream_global_join, stream_stream_join, stream_table_join
from crossstream.columns.functions import keyed
from crossstream.errors import TopologyError
from crossstream.graph.nodes import ForeignKeyJoin, ForeignKeyKind, JoinKind, ManyJoin, Node, Shape, TableJoin
from crossstream.graph.validate import check_partitions
from crossstream.location import here
from crossstream.serdes import Serde
from crossstream.serdes.keys import LeftOrRight, LeftOrRightSerde
from crossstream.serdes.serde import alike, told_apart
from crossstream.typing import ForeignKeyExtractor, ManyJoiner, ValueJoiner

STREAM_JOINS: Mapping[Shape, Callable[..., Node]] = MappingProxyType(
    {"stream": stream_stream_join, "table": stream_table_join, "global": stream_global_join}
)
"""What makes the join of a stream, by what is on the other side; called with (kind, stream, other side, …)."""

_NOUNS: Mapping[Shape, str] = MappingProxyType(
    {"stream": "KStream", "table": "KTable", "global": "GlobalKTable"}
)


def stream_join(
    kind: JoinKind, left: Handle, other: object, given: tuple[Any, ...], settings: Mapping[str, Any]
) -> Node:
    """A new join below a stream; ``given``, ``settings``: what the user passed after the other side.

    Raises `TopologyError`: CS-135 other builder, CS-135 nothing that a stream can be joined with, CS-136
    options that this kind of join does not take, or takes elsewhere.
    """
    operator = OPERATORS[kind]
    node = getattr(other, "_node", None)
    join = STREAM_JOINS.get(node.shape) if isinstance(node, Node) else None
    if join is None or not isinstance(node, Node):
        raise TopologyError(
            f"a stream cannot be joined with a {type(other).__name__}",
            code="CS-135",
            where=here(operator),
            next=f"pass a {' or a '.join(_NOUNS[shape] for shape in STREAM_JOINS)} of the same builder",
        )
    check_same_builder(operator, left._draft, other._draft)  # type: ignore[attr-defined]
    try:
        inspect.signature(join).bind(kind, left, other, *given, **settings)
    except TypeError as fault:
        step = f"write {operator}({_parameters(join, 2)})"
        raise _wrong_call(f"{operator} with a {_NOUNS[node.shape]}", operator, str(fault), step) from None
    return join(kind, left, other, *given, **settings)


def stream_join_refusal(
    join: Callable[..., Any], given: tuple[Any, ...], settings: Mapping[str, Any], fault: str
) -> TopologyError:
    """CS-136: the method ``join`` of a stream takes no such arguments. Whatever the other side is, it is ``other``."""
    operator = join.__name__
    shapes: list[Shape] = ["stream"] if operator == "outer_join" else list(STREAM_JOINS)
    nodes = [getattr(one, "_node", None) for one in (*given[1:], *settings.values())]
    meant = [node.shape for node in nodes if isinstance(node, Node) and node.shape in shapes]
    ways = [
        f"{operator}({_parameters(STREAM_JOINS[shape], 2)}) with a {_NOUNS[shape]}"
        for shape in meant[:1] or shapes
    ]
    return _wrong_call(f"{operator} of a KStream", operator, fault, f"write {', or '.join(ways)}")


def table_join_refusal(
    join: Callable[..., Any], given: tuple[Any, ...], settings: Mapping[str, Any], fault: str
) -> TopologyError:
    """CS-136: the method ``join`` of a table takes no such arguments. In Java the foreign key comes first."""
    operator = join.__name__
    functions = [one for one in given[2:] if callable(one) or isinstance(one, pl.Expr | keyed)]
    step = f"write {operator}({_parameters(join, 1)})"
    if len(functions) > 1 and "foreign_key" in inspect.signature(join).parameters:
        step = f"the joiner comes first, the foreign key by name: {operator}(other, joiner, foreign_key=…)"
    return _wrong_call(f"{operator} of a KTable", operator, fault, step)


def _wrong_call(what: str, operator: str, fault: str, step: str) -> TopologyError:
    return TopologyError(
        f"{what} is not called like that: {fault}", code="CS-136", where=here(operator), next=step
    )


def _parameters(join: Callable[..., Any], first: int) -> str:
    """How the user writes the parameters from the ``first`` on; what may be left out in brackets."""
    written = []
    for one in list(inspect.signature(join).parameters.values())[first:]:
        text = f"{one.name}=…" if one.kind is one.KEYWORD_ONLY else one.name
        written.append(f"[{text}]" if one.default is None else text)
    return ", ".join(written)


def primary_key_join(
    kind: JoinKind,
    left: Handle,
    other: Handle,
    joiner: ValueJoiner,
    table_joined: TableJoined | None,
    named: Named | None,
    materialized: Materialized | None,
) -> Node:
    """A new `TableJoin` below both tables."""
    operator = OPERATORS[kind]
    draft, right = _other_side(operator, left, other)
    if table_joined is not None:
        raise _misplaced(
            operator, "table_joined", "a foreign key", "drop it, or pass foreign_key=lambda left: …"
        )
    name = given_name(operator, named)
    function = function_of(operator, "joiner", joiner, {"left": left._node, "right": right})
    _check_keys(operator, left._node, right)
    check_partitions(
        draft.nodes, f"{left._node.name}.{operator}({right.name})", (left._node.name, right.name)
    )
    return child(
        draft,
        TableJoin,
        f"{operator}({right.name})",
        left._node,
        name,
        parents=(left._node.name, right.name),
        kind=kind,
        **table_result(operator, left._node, function, materialized),
    )


def foreign_key_join(
    kind: ForeignKeyKind,
    left: Handle,
    other: Handle,
    joiner: ValueJoiner,
    foreign_key: ForeignKeyExtractor,
    table_joined: TableJoined | None,
    named: Named | None,
    materialized: Materialized | None,
) -> Node:
    """A new `ForeignKeyJoin` below both tables; one that has rows of both is keyed by `LeftOrRight`."""
    operator = "right_join" if kind == "right" else OPERATORS[kind]
    draft, right = _other_side(operator, left, other)
    either = kind in ("right", "outer")
    if named is not None:
        raise _misplaced(operator, "named", "no foreign key", 'write table_joined=TableJoined(name="…")')
    option = check_option(operator, "table_joined", table_joined, TableJoined) or TableJoined()
    function = function_of(operator, "joiner", joiner, {"left": left._node, "right": right})
    key = _either_key(left._node, right) if either else None
    return child(
        draft,
        ForeignKeyJoin,
        f"{operator}({right.name})",
        left._node,
        option.name,
        parents=(left._node.name, right.name),
        kind=kind,
        foreign_key=function_of(operator, "foreign_key", foreign_key, {"value": left._node}, by_name=True),
        partitioner=option.partitioner,
        other_partitioner=option.other_partitioner,
        **table_result(operator, left._node, function, materialized, key),
    )


def check_keyed_by(operator: str, foreign_key: object, keyed_by: object) -> None:
    """CS-136: by foreign key an unreferenced row of the other table has no key like the left table's."""
    if foreign_key is None and keyed_by is not None:
        raise _misplaced(
            operator, "keyed_by", "a foreign key", "drop it: the result is keyed like both tables"
        )
    if foreign_key is not None and keyed_by is not LeftOrRight:
        raise TopologyError(
            f"{operator} by foreign key also has rows that are not keyed like the left table: those of the"
            " other table that no left row refers to",
            code="CS-136",
            where=here(operator),
            next="say that you want them: keyed_by=cs.LeftOrRight; or use left_join(…, foreign_key=…)",
        )


def check_key_selector(operator: str, key_selector: object) -> None:
    """CS-136: the key of a row in another table is its foreign key."""
    if key_selector is not None:
        raise _misplaced(operator, "key_selector", "a global table", "pass foreign_key=lambda left: …")


def check_right_join(foreign_key: object) -> None:
    """CS-136: by key, a right join is the left join of the other table."""
    if foreign_key is None:
        raise TopologyError(
            "a right join by key is the left join of the other table with this one",
            code="CS-136",
            where=here("right_join"),
            next="write other.left_join(this, lambda right, left: …), or pass foreign_key=lambda left: …",
        )


def _either_key(left: Node, right: Node) -> Serde:
    assert left.key is not None
    assert right.key is not None
    return LeftOrRightSerde(left.key, right.key)


def join_many(
    kind: Literal["inner", "left"],
    left: Handle,
    others: Mapping[str, tuple[Handle, ForeignKeyExtractor]],
    joiner: ManyJoiner,
    named: Named | None,
    materialized: Materialized | None,
) -> Node:
    """A new `ManyJoin` below all tables; their names in alphabetical order."""
    operator = "join_many" if kind == "inner" else "left_join_many"
    pairs = _pairs(operator, others)
    rights = {name: _other_side(operator, left, table)[1] for name, (table, _) in pairs.items()}
    sides = {"left": left._node, **rights}
    function = function_of(operator, "joiner", joiner, sides, values=("left", "rows"))
    return child(
        left._draft,
        ManyJoin,
        f"{operator}({','.join(rights)})",
        left._node,
        given_name(operator, named),
        parents=(left._node.name, *(right.name for right in rights.values())),
        kind=kind,
        names=tuple(pairs),
        foreign_keys=tuple(
            function_of(
                operator, f"foreign key of {name!r}", foreign_key, {"value": left._node}, by_name=True
            )
            for name, (_, foreign_key) in pairs.items()
        ),
        **table_result(operator, left._node, function, materialized),
    )


def _pairs(operator: str, others: object) -> dict[str, tuple[Any, Any]]:
    """CS-136: the tables and foreign keys by name, sorted, if each is what it should be."""
    fault = None
    if not isinstance(others, Mapping) or not others:
        fault = f"the tables of {operator} are {others!r}, not a dict of them"
    else:
        for name, pair in others.items():
            if not isinstance(name, str) or not name.isidentifier() or name in _TAKEN:
                fault = f"{operator} cannot call a table {name!r}"
            elif not isinstance(pair, tuple) or len(pair) != 2:
                fault = f"{operator} needs a table and a foreign key for {name!r}, not {pair!r}"
        if len(others) > _MOST:
            fault = f"{operator} takes up to {_MOST} tables, not {len(others)}"
    if fault is not None or not isinstance(others, Mapping):
        raise TopologyError(
            fault or "",
            code="CS-136",
            where=here(operator),
            next='write {"customer": (customers, lambda left: …), …}; names are identifiers besides '
            + ", ".join(_TAKEN),
        )
    return dict(sorted(others.items()))


_TAKEN = ("key", "left", "right", "value")
"""Names that columns of an expression have already, or might be taken for."""

_MOST = 62
"""As many foreign keys fit into the bits of a number (`operators/star_join/right_rows.py`)."""


def _other_side(operator: str, left: Handle, other: object) -> tuple[Draft, Node]:
    if not isinstance(other, type(left)):
        raise _not_a_table(operator, other)
    check_same_builder(operator, left._draft, other._draft)
    return left._draft, other._node


def _not_a_table(operator: str, other: object) -> TopologyError:
    steps = {
        "KStream": "turn the stream into a table first: stream.to_table()",
        "GlobalKTable": "use join or left_join, which take one; or read its topic as a table",
    }
    return TopologyError(
        f"a KTable joins a KTable, not a {type(other).__name__}",
        code="CS-135",
        where=here(operator),
        next=steps.get(type(other).__name__, "pass the table that builder.table(…) gave"),
    )


def _misplaced(operator: str, setting: str, needs: str, step: str) -> TopologyError:
    return TopologyError(
        f"{operator} takes {setting} only with {needs}", code="CS-136", where=here(operator), next=step
    )


def _check_keys(operator: str, left: Node, right: Node) -> None:
    if left.key is None or right.key is None or alike(left.key, right.key):
        return
    mine, theirs = told_apart(left.key, right.key)
    raise TopologyError(
        f"rows never meet: {left.name} has {mine} keys, {right.name} has {theirs} keys",
        code="CS-134",
        where=here(operator),
        next="give both tables the same key serde, or join by foreign_key=…",
    )
