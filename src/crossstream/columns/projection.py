"""Projection pushdown: the columns and fields that an expression reads, and whether it reads other rows than its own.

Fields that are not read are never decoded. An expression that looks at other rows would depend on how batches are cut.

Polars writes an expression as JSON; its docs promise no stable form. So only two shapes are looked for, a column and a
field of a column. A column in any other shape counts as read whole, and so does everything where there is no JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import polars as pl

from crossstream.columns.functions import Function

WHOLE = "value"
"""The name by which an expression reads a value as a whole."""

ALL = "*"
"""Stands for all columns there are, where an expression names none: ``pl.all()``, or a selector by type or pattern."""

Fields: TypeAlias = frozenset[str] | None
"""The fields of a column that are read; None: the column as a whole."""

_SELECTORS = frozenset({"DtypeColumn", "Exclude", "IndexColumn", "Nth"})


@dataclass(frozen=True, slots=True, eq=False)
class Same:
    """An expression, equal to itself only: it cannot be hashed, and == on it makes another expression."""

    expression: pl.Expr

    def __hash__(self) -> int:
        return id(self.expression)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.expression is self.expression


def projection_of(function: Function) -> Mapping[str, Fields]:
    """The columns that an expression reads, or `ALL`, and which fields of each. A callable reads no columns."""
    return {} if function.expression is None else _projection(Same(function.expression))


def columns_of(function: Function) -> frozenset[str]:
    """The columns that an expression reads; ``value``, the value as a whole, also where it reads `ALL`."""
    return frozenset(WHOLE if name == ALL else name for name in projection_of(function))


def fields_of(function: Function, column: str) -> Fields:
    """The fields of a column that an expression reads; empty if it does not read the column."""
    projection = projection_of(function)
    return None if ALL in projection else projection.get(column, frozenset())


@lru_cache(maxsize=512)
def _projection(same: Same) -> dict[str, Fields]:
    parts = serialized(same.expression)
    if parts is None:
        return dict.fromkeys(filter(None, same.expression.meta.root_names()))
    found: dict[str, Fields] = {}
    for column, field in _reads(parts):
        known = found.get(column, frozenset())
        found[column] = None if field is None or known is None else known | {field}
    return found


def serialized(expression: pl.Expr) -> Any:
    """The parts of an expression, as Polars writes them as JSON; None where it cannot."""
    try:
        return json.loads(expression.meta.serialize(format="json"))
    except (pl.exceptions.PolarsError, ValueError):
        return None


def reads_columns(part: Any) -> bool:
    """Whether a part of a serialised expression reads any column."""
    return any(True for _ in _reads(part))


def _reads(node: Any) -> Iterator[tuple[str, str | None]]:
    """(column, field) of everything a serialised expression reads; field None: the column as a whole."""
    if isinstance(node, list):
        for item in node:
            yield from _reads(item)
    elif isinstance(node, dict):
        if (column := _column(node)) is not None:
            yield column, None
        elif (field := _field_of_column(node)) is not None:
            yield field
        elif (names := _selected(node)) is not None:
            yield from ((name, None) for name in names)
        else:
            for kind, item in node.items():
                yield from _reads(operands(kind, item))
    elif node == "Wildcard":
        yield ALL, None


def operands(kind: str, node: Any) -> Any:
    """The expressions inside a part of a serialised expression, without names and options."""
    if kind in ("Column", "Field", "Literal"):
        return None
    if kind == "Alias" and isinstance(node, list):
        return node[:1]
    if not isinstance(node, dict):
        return node
    if kind == "Eval":
        return node.get("expr", node)  # what is done with its elements reads nothing else
    return node.get("input") if kind in ("Function", "AnonymousFunction") else node


def _column(node: Any) -> str | None:
    name = node.get("Column") if isinstance(node, dict) else None
    if not isinstance(name, str):
        return None
    return ALL if name.startswith("^") and name.endswith("$") else name


def _field_of_column(node: dict[str, Any]) -> tuple[str, str] | None:
    """``pl.col("left").struct.field("price")`` as (left, price); None if the node is something else."""
    call = node.get("Function")
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return None
    access, inputs = call["function"].get("StructExpr"), call.get("input")
    if not isinstance(access, dict) or not isinstance(inputs, list) or len(inputs) != 1:
        return None
    column, field = _column(inputs[0]), access.get("FieldByName")
    return None if column in (None, ALL) or not isinstance(field, str) else (str(column), field)


def _selected(node: dict[str, Any]) -> Sequence[str] | None:
    """The columns that a selector takes; None if the node is no selector. Polars 1.32 changed the form."""
    selector = node.get("Selector")
    by_name = selector.get("ByName") if isinstance(selector, dict) else None
    if by_name is None and (selector is not None or not _SELECTORS.isdisjoint(node)):
        return [ALL]
    names: Sequence[str] | None = node.get("Columns") if by_name is None else by_name.get("names", [ALL])
    return names


_NODES = {
    "Agg": "",
    "Explode": "input",
    "Filter": "input",
    "Gather": "expr",
    "Over": "function",
    "Rolling": "function",
    "Slice": "input",
    "Sort": "expr",
    "SortBy": "expr",
    "Window": "function",
}
"""Polars expressions that combine or move rows, and the operand with the rows; "": any operand."""

_FUNCTIONS = frozenset(
    """
    Append ApproxNUnique ArgMax ArgMin ArgSort ArgUnique ArgWhere BackwardFill Correlation CumCount CumMax
    CumMean CumMin CumProd CumSum Diff DropNans DropNulls Entropy EwmMean EwmMeanBy EwmStd EwmVar ExtendConstant
    FillNullWithStrategy ForwardFill GatherEvery Hist IndexOf Interpolate InterpolateBy Kurtosis Mode NullCount
    PctChange PeakMax PeakMin Product QCut Quantile RLE RLEID Random Rank Reshape Reverse RollingExpr
    RollingExprBy SearchSorted Shift ShiftAndFill Skew TopK TopKBy Unique UniqueCounts ValueCounts
    """.split()  # noqa: SIM905 - words are easier to read than sixty quoted strings
)
"""Functions that do so."""

_OF_A_KIND = {
    "Bitwise": frozenset({"And", "Or", "Xor"}),
    "Boolean": frozenset(
        {"All", "Any", "HasNulls", "IsDuplicated", "IsFirstDistinct", "IsLastDistinct", "IsUnique"}
    ),
    "StringExpr": frozenset({"ConcatVertical"}),
}
"""More of them, by namespace."""


def other_rows(expression: pl.Expr) -> str | None:
    """Polars' name of what makes an expression read other rows (``Sum``); None if nothing is known to."""
    return _found(serialized(expression))


def _found(node: Any) -> str | None:
    if node == "Len":
        return "Len"
    if isinstance(node, list):
        return next(filter(None, map(_found, node)), None)
    if not isinstance(node, dict):
        return None
    for kind, inner in node.items():
        found = _of(kind, inner)
        if found is not None:
            return found
    return None


def _of(kind: str, inner: Any) -> str | None:
    if kind in _NODES:
        place = _NODES[kind]
        if _has_rows(inner.get(place, inner) if isinstance(inner, dict) else inner):
            return _name(inner) if kind == "Agg" else kind
    elif kind == "Function" and _combines(inner):
        return _name(inner["function"])
    return _found(operands(kind, inner))


def _has_rows(node: Any) -> bool:
    """Whether a part reads columns, or fields of a struct that is being changed; literals are the same for all rows."""
    return reads_columns(node) or '{"Field": ' in json.dumps(node)


def _combines(call: Any) -> bool:
    """Whether a function combines rows, and gets any: the first operand has them."""
    if not isinstance(call, dict) or not _has_rows(call.get("input", [])[:1]):
        return False
    name = _name(call.get("function"))
    return name in _FUNCTIONS or (name in _OF_A_KIND and _name(call["function"][name]) in _OF_A_KIND[name])


def _name(call: Any) -> str:
    """A function without options is its name; with options an object of one entry."""
    return str(next(iter(call), "")) if isinstance(call, dict) else str(call)
