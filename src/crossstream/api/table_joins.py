"""The joins of a table: by key, by foreign key, with several tables, with a global table. Checks, and the nodes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, NoReturn

import polars as pl

from crossstream.api.checks import check_headers, check_option, function_of
from crossstream.api.draft import OPERATORS, Handle, check_same_builder, child, given_name, table_result
from crossstream.api.options import Materialized, Named, TableJoined
from crossstream.api.serde_rules import check_same_keys
from crossstream.api.stream_joins import written_parameters, wrong_call
from crossstream.columns.functions import keyed
from crossstream.columns.headers import Headers
from crossstream.errors import TopologyError, caller_location
from crossstream.graph.nodes import ForeignKeyJoin, ForeignKeyKind, JoinKind, ManyJoin, Node, TableJoin
from crossstream.graph.validate import check_partitions
from crossstream.serdes.keys import LeftOrRight, LeftOrRightSerde
from crossstream.typing import ForeignKeyExtractor, KeySelector, ManyJoiner, ValueJoiner


def table_join_refusal(
    join: Callable[..., Any], given: tuple[Any, ...], settings: Mapping[str, Any], fault: str
) -> TopologyError:
    """CS-136: wrong arguments for the method ``join`` of a table. In Java the foreign key comes first."""
    operator = join.__name__
    functions = [one for one in given[2:] if callable(one) or isinstance(one, pl.Expr | keyed)]
    step = f"write {operator}({written_parameters(join, 1)})"
    if len(functions) > 1 and "foreign_key" in inspect.signature(join).parameters:
        step = f"the joiner comes first, the foreign key by name: {operator}(other, joiner, foreign_key=…)"
    return wrong_call(f"{operator} of a KTable", operator, fault, step)


def primary_key_join(
    kind: JoinKind,
    left: Handle,
    other: Handle,
    joiner: ValueJoiner,
    table_joined: TableJoined | None,
    named: Named | None,
    materialized: Materialized | None,
    headers: Headers | None,
) -> Node:
    """Adds a `TableJoin`."""
    operator = OPERATORS[kind]
    right = _other_side(operator, left, other)
    if table_joined is not None:
        _refuse_misplaced(
            operator, "table_joined", "a foreign key", "drop it, or pass foreign_key=lambda left: …"
        )
    name = given_name(operator, named)
    function = function_of(operator, "joiner", joiner, {"left": left._node, "right": right})
    check_same_keys(operator, left._node, left._node.key, right, "or join by foreign_key=…")
    check_partitions(
        left._draft.nodes, f"{left._node.name}.{operator}({right.name})", (left._node.name, right.name)
    )
    return child(
        left._draft,
        TableJoin,
        f"{operator}({right.name})",
        left._node,
        name,
        parents=(left._node.name, right.name),
        kind=kind,
        headers=check_headers(operator, headers),
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
    headers: Headers | None,
) -> Node:
    """Adds a `ForeignKeyJoin`; the result of a right or outer join is keyed by `LeftOrRight`."""
    operator = "right_join" if kind == "right" else OPERATORS[kind]
    right = _other_side(operator, left, other)
    if named is not None:
        _refuse_misplaced(operator, "named", "no foreign key", 'write table_joined=TableJoined(name="…")')
    option = check_option(operator, "table_joined", table_joined, TableJoined) or TableJoined()
    function = function_of(operator, "joiner", joiner, {"left": left._node, "right": right})
    key = None
    if kind in ("right", "outer"):
        assert left._node.key is not None
        assert right.key is not None
        key = LeftOrRightSerde(left._node.key, right.key)
    return child(
        left._draft,
        ForeignKeyJoin,
        f"{operator}({right.name})",
        left._node,
        option.name,
        parents=(left._node.name, right.name),
        kind=kind,
        foreign_key=function_of(operator, "foreign_key", foreign_key, {"value": left._node}, by_name=True),
        partitioner=option.partitioner,
        other_partitioner=option.other_partitioner,
        headers=check_headers(operator, headers),
        **table_result(operator, left._node, function, materialized, key),
    )


def table_global_join(
    kind: JoinKind,
    left: Handle,
    other: Handle,
    joiner: ValueJoiner,
    foreign_key: ForeignKeyExtractor | None,
    key_selector: KeySelector | None,
    table_joined: object,
    named: Named | None,
    materialized: Materialized | None,
    headers: Headers | None,
) -> Node:
    """Adds a `ForeignKeyJoin` with a global table on the right. Raises CS-136 for wrong options."""
    operator = OPERATORS[kind]
    check_same_builder(operator, left._draft, other._draft)
    fault = _misused(foreign_key, key_selector, table_joined)
    if fault is not None:
        _refuse(operator, *fault)
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
        headers=check_headers(operator, headers),
        **table_result(operator, left._node, function, materialized),
    )


def _misused(foreign_key: object, key_selector: object, table_joined: object) -> tuple[str, str] | None:
    """The fault in the options of a join with a global table, and the next step; None: no fault."""
    if table_joined is not None:
        step = 'drop table_joined; a name is given by named=Named("…")'
        return "a join with a global table has no partitioners: every task has the whole table", step
    if foreign_key is None and key_selector is None:
        step = "pass foreign_key=lambda left: …; by its own key: foreign_key=cs.keyed(lambda key, left: key)"
        return "a table joins a global table by a foreign key, and none is given", step
    if foreign_key is not None and key_selector is not None:
        return "foreign_key and key_selector mean the same, and both are given", "pass one of them"
    return None


def join_many(
    kind: Literal["inner", "left"],
    left: Handle,
    others: Mapping[str, tuple[Handle, ForeignKeyExtractor]],
    joiner: ManyJoiner,
    named: Named | None,
    materialized: Materialized | None,
) -> Node:
    """Adds a `ManyJoin`; the names of its tables are sorted."""
    operator = "join_many" if kind == "inner" else "left_join_many"
    pairs = _pairs(operator, others)
    rights = {name: _other_side(operator, left, table) for name, (table, _) in pairs.items()}
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
    """The tables and foreign keys by name, sorted. Raises CS-136 for other arguments."""
    step = f'write {{"customer": (customers, lambda left: …), …}}; names are identifiers other than {", ".join(_TAKEN)}'
    if not isinstance(others, Mapping) or not others:
        _refuse(operator, f"the tables of {operator} are {others!r}, not a dict of them", step)
    if len(others) > _MOST:
        _refuse(operator, f"{operator} takes up to {_MOST} tables, not {len(others)}", step)
    for name, pair in others.items():
        if not isinstance(name, str) or not name.isidentifier() or name in _TAKEN:
            _refuse(operator, f"{operator} cannot call a table {name!r}", step)
        if not isinstance(pair, tuple) or len(pair) != 2:
            _refuse(operator, f"{operator} needs a table and a foreign key for {name!r}, not {pair!r}", step)
    return dict(sorted(others.items()))


_TAKEN = ("key", "left", "right", "value")
"""Names that an expression reads as other columns."""

_MOST = 62
"""The number of foreign keys that fit into the bits of an integer (`operators/star_join/subscriptions.py`)."""


def check_keyed_by(operator: str, foreign_key: object, keyed_by: object) -> None:
    """Refuses (CS-136) a right or outer join by foreign key that does not say how its result is keyed."""
    if foreign_key is None and keyed_by is not None:
        _refuse_misplaced(
            operator, "keyed_by", "a foreign key", "drop it: the result is keyed like both tables"
        )
    if foreign_key is not None and keyed_by is not LeftOrRight:
        _refuse(
            operator,
            f"{operator} by foreign key also has rows without a left key: rows of the other table that no left row"
            " refers to",
            "pass keyed_by=cs.LeftOrRight; or use left_join(…, foreign_key=…)",
        )


def check_key_selector(operator: str, key_selector: object) -> None:
    """Refuses (CS-136) ``key_selector`` in a join of two tables."""
    if key_selector is not None:
        _refuse_misplaced(operator, "key_selector", "a global table", "pass foreign_key=lambda left: …")


def check_right_join(foreign_key: object) -> None:
    """Refuses (CS-136) a right join by key: it is the left join of the other table."""
    if foreign_key is None:
        _refuse(
            "right_join",
            "a right join by key is the left join of the other table with this one",
            "write other.left_join(this, lambda right, left: …), or pass foreign_key=lambda left: …",
        )


def check_not_global(operator: str, other: object) -> None:
    """Refuses (CS-136) right and outer joins with a global table."""
    if is_global(other):
        _refuse(
            operator,
            f"there is no {operator} with a global table",
            "use join(…) or left_join(…); or read its topic as a table",
        )


def is_global(table: object) -> bool:
    node = getattr(table, "_node", None)
    return isinstance(node, Node) and node.shape == "global"


def _other_side(operator: str, left: Handle, other: object) -> Node:
    """The node of the other table. Raises CS-135 for anything but a table of the same builder."""
    if isinstance(other, Handle) and other._node.shape == "table":
        check_same_builder(operator, left._draft, other._draft)
        return other._node
    steps = {
        "KStream": "turn the stream into a table first: stream.to_table()",
        "GlobalKTable": "use join or left_join, which take one; or read its topic as a table",
    }
    raise TopologyError(
        f"a KTable joins a KTable, not a {type(other).__name__}",
        code="CS-135",
        where=caller_location(operator),
        next=steps.get(type(other).__name__, "pass the table that builder.table(…) returned"),
    )


def _refuse_misplaced(operator: str, setting: str, needs: str, step: str) -> NoReturn:
    _refuse(operator, f"{operator} takes {setting} only with {needs}", step)


def _refuse(operator: str, what: str, step: str) -> NoReturn:
    raise TopologyError(what, code="CS-136", where=caller_location(operator), next=step)
