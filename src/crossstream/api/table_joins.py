"""The joins of a table: by key, by foreign key, with several tables, with a global table. Checks, and the nodes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from crossstream.api.checks import check_headers, check_option, check_same_keys, reference_of
from crossstream.api.draft import OPERATORS, Handle, check_same_builder, child, given_name, table_result
from crossstream.api.merging import OnMerge, joiner_of, many_joiner_of
from crossstream.api.options import Materialized, Named, TableJoined, materialized_of
from crossstream.api.stream_joins import written_parameters, wrong_call
from crossstream.columns.changes import Headers
from crossstream.columns.functions import keyed
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, caller_location
from crossstream.graph.names import check_partitions
from crossstream.graph.nodes import ForeignKeyJoin, ForeignKeyKind, ManyJoin, Node, TableJoin
from crossstream.serdes.keys import LeftOrRight, LeftOrRightSerde
from crossstream.typing import ForeignKeyExtractor, KeySelector, ManyJoiner, ValueJoiner


def table_join_error(
    join: Callable[..., Any], given: tuple[Any, ...], settings: Mapping[str, Any], fault: str
) -> CrossStreamError:
    """CS-136: wrong arguments for the method ``join`` of a table. In Java the foreign key comes first."""
    operator = join.__name__
    functions = [one for one in given[2:] if callable(one) or isinstance(one, pl.Expr | keyed)]
    step = f"write {operator}({written_parameters(join)})"
    if len(functions) > 1 and "foreign_key" in inspect.signature(join).parameters:
        step = f"the joiner comes first, the foreign key by name: {operator}(other, joiner, foreign_key=…)"
    return wrong_call(f"{operator} of a KTable", operator, fault, step)


@dataclass(frozen=True, slots=True)
class JoinSettings:
    """What a join with one table may be given. Right and outer joins have no ``key_selector``, the others no
    ``keyed_by``."""

    joiner: ValueJoiner | None
    on_merge: OnMerge
    foreign_key: ForeignKeyExtractor | None = None
    key_selector: KeySelector | None = None
    keyed_by: type[LeftOrRight] | None = None
    table_joined: TableJoined | None = None
    named: Named | None = None
    materialized: Materialized | None = None
    headers: Headers | None = None

    @property
    def by_key(self) -> bool:
        return self.foreign_key is None and self.key_selector is None


def table_join(kind: ForeignKeyKind, left: Handle, other: object, settings: Mapping[str, Any]) -> Node:
    """Adds a join with a table: by key, or by foreign key; a global table has no key of its own to join by.

    ``settings``: those of `JoinSettings` by name, with ``store`` and ``value``, the short form of ``materialized``.
    The result of a right or outer join by foreign key is keyed by `LeftOrRight`.
    """
    operator = OPERATORS[kind]
    given = dict(settings)
    kept = materialized_of(operator, given.pop("materialized"), given.pop("store"), given.pop("value"))
    asked = JoinSettings(**given, materialized=kept)
    right = _other_side(operator, left, other, takes_global=kind in ("inner", "left"))
    for what, step in _faults(kind, asked, is_global=right.shape == "global"):
        raise _error(operator, what, step)
    add = _join_by_key if asked.by_key else _join_by_foreign_key
    return add(kind, left, right, asked)


def _join_by_key(kind: ForeignKeyKind, left: Handle, right: Node, asked: JoinSettings) -> Node:
    operator, mine = OPERATORS[kind], left._node
    name, path = given_name(operator, asked.named), f"{operator}({right.name})"
    function = joiner_of(operator, kind, asked.joiner, asked.on_merge, {"left": mine, "right": right})
    check_same_keys(operator, mine, mine.key, right, "or join by foreign_key=…")
    check_partitions(left._draft.nodes, f"{mine.name}.{path}", (mine.name, right.name))
    result = table_result(operator, mine, function, asked.materialized)
    headers = check_headers(operator, asked.headers)
    return child(left._draft, TableJoin, path, mine, name, right, kind=kind, headers=headers, **result)


def _join_by_foreign_key(kind: ForeignKeyKind, left: Handle, right: Node, asked: JoinSettings) -> Node:
    operator, mine = OPERATORS[kind], left._node
    name = given_name(operator, asked.named)
    option = check_option(operator, "table_joined", asked.table_joined, TableJoined) or TableJoined()
    role = "foreign_key" if asked.key_selector is None else "key_selector"
    extractor = reference_of(operator, role, getattr(asked, role), mine, right)
    sides = {"left": mine, "right": right}
    function = joiner_of(operator, kind, asked.joiner, asked.on_merge, sides, key=extractor)
    key = None
    if kind in ("right", "outer"):
        assert mine.key is not None
        assert right.key is not None
        key = LeftOrRightSerde(mine.key, right.key)
    return child(
        left._draft,
        ForeignKeyJoin,
        f"{operator}({right.name})",
        mine,
        name or option.name,
        right,
        kind=kind,
        foreign_key=extractor,
        partitioner=option.partitioner,
        other_partitioner=option.other_partitioner,
        headers=check_headers(operator, asked.headers),
        **table_result(operator, mine, function, asked.materialized, key),
    )


def _faults(kind: ForeignKeyKind, asked: JoinSettings, *, is_global: bool) -> Iterator[tuple[str, str]]:
    """(fault, next step) of options that do not fit the kind of join."""
    operator, by_key = OPERATORS[kind], asked.by_key
    if by_key and is_global:
        step = "pass foreign_key=lambda left: …; by its own key: foreign_key=cs.keyed(lambda key, left: key)"
        yield "a table joins a global table by a foreign key, and none is given", step
    if by_key and kind == "right":
        step = "write other.left_join(this, lambda right, left: …), or pass foreign_key=lambda left: …"
        yield "a right join by key is the left join of the other table with this one", step
    if not (asked.foreign_key is None or asked.key_selector is None):
        yield "foreign_key and key_selector mean the same, and both are given", "pass one of them"
    if asked.key_selector is not None and not is_global:
        yield f"{operator} takes key_selector only with a global table", "pass foreign_key=lambda left: …"
    if asked.table_joined is not None and is_global:
        step = 'drop table_joined; a name is given by named=Named("…")'
        yield "a join with a global table has no partitioners: every task has the whole table", step
    if asked.table_joined is not None and by_key:
        yield (
            f"{operator} takes table_joined only with a foreign key",
            "drop it, or pass foreign_key=lambda left: …",
        )
    if asked.keyed_by is not None and by_key:
        step = "drop it: the result is keyed like both tables"
        yield f"{operator} takes keyed_by only with a foreign key", step
    if kind in ("right", "outer") and asked.keyed_by is not LeftOrRight and not by_key:
        what = f"{operator} by foreign key also has rows without a left key: rows of the other table that no left row"
        yield f"{what} refers to", "pass keyed_by=cs.LeftOrRight; or use left_join(…, foreign_key=…)"
    if asked.named is not None and not (by_key or is_global):
        yield f"{operator} takes named only with no foreign key", 'write table_joined=TableJoined(name="…")'


def join_many(
    kind: Literal["inner", "left"],
    left: Handle,
    others: Mapping[str, tuple[Handle, ForeignKeyExtractor]],
    joiner: ManyJoiner | None,
    named: Named | None,
    materialized: Materialized | None,
) -> Node:
    """Adds a `ManyJoin`; the names of its tables are sorted."""
    operator = "join_many" if kind == "inner" else "left_join_many"
    pairs = _pairs(operator, others)
    rights = {name: _other_side(operator, left, table) for name, (table, _) in pairs.items()}
    sides = {"left": left._node, **rights}
    function = many_joiner_of(operator, joiner, sides)
    return child(
        left._draft,
        ManyJoin,
        f"{operator}({','.join(rights)})",
        left._node,
        given_name(operator, named),
        *rights.values(),
        kind=kind,
        names=tuple(pairs),
        foreign_keys=tuple(
            reference_of(operator, f"foreign key of {name!r}", foreign_key, left._node, rights[name])
            for name, (_, foreign_key) in pairs.items()
        ),
        **table_result(operator, left._node, function, materialized),
    )


def _pairs(operator: str, others: object) -> dict[str, tuple[Any, Any]]:
    """The tables and foreign keys by name, sorted. Raises CS-136 for other arguments."""
    step = f'write {{"customer": (customers, lambda left: …), …}}; names are identifiers other than {", ".join(_TAKEN)}'
    if not isinstance(others, Mapping) or not others:
        raise _error(operator, f"the tables of {operator} are {others!r}, not a dict of them", step)
    if len(others) > _MOST:
        raise _error(operator, f"{operator} takes up to {_MOST} tables, not {len(others)}", step)
    for name, pair in others.items():
        if not isinstance(name, str) or not name.isidentifier() or name in _TAKEN:
            raise _error(operator, f"{operator} cannot call a table {name!r}", step)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise _error(
                operator, f"{operator} needs a table and a foreign key for {name!r}, not {pair!r}", step
            )
    return dict(sorted(others.items()))


_TAKEN = ("key", "left", "right", "value")
"""Names that an expression reads as other columns."""

_MOST = 62
"""The number of foreign keys that fit into the bits of an integer (`operators/star_join/subscriptions.py`)."""


def _other_side(operator: str, left: Handle, other: object, *, takes_global: bool = False) -> Node:
    """The node of the other table. Raises CS-135 for anything but a table of the same builder."""
    if isinstance(other, Handle) and other._node.shape in ("table", "global" if takes_global else "table"):
        check_same_builder(operator, left._draft, other._draft)
        return other._node
    steps = {
        "KStream": "turn the stream into a table first: stream.to_table()",
        "GlobalKTable": "use join or left_join, which take one; or read its topic as a table",
    }
    what = f"a KTable joins a KTable, not a {type(other).__name__}"
    step = steps.get(type(other).__name__, "pass the table that builder.table(…) returned")
    raise refuse("CS-135", what, step, **caller_location(operator))


def _error(operator: str, what: str, step: str) -> CrossStreamError:
    return refuse("CS-136", what, step, **caller_location(operator))
