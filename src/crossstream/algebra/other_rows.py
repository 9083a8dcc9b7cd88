"""Expressions that look at other rows than the one they give a value for.

    law    an expression gives for a row what it gives for the row alone, in whatever batch it comes

``pl.col("price").sum()`` is the sum over the batch, and how batches are cut is nobody's business. Polars does not tell
which expressions do that, but its serialised form names what they do. What is done with the elements of a list
(``.list.sum()``, ``.list.eval(…)``) stays within a row, and so does what is done with literals only. Decision 0031.
"""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from crossstream.algebra.uses import operands, reads_columns, serialized

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
"""Expressions of Polars that combine or move rows, and what of them has the rows; nothing: all of it."""

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
"""Likewise, by the namespace they are in."""


def other_rows(expression: pl.Expr) -> str | None:
    """What makes an expression look at other rows, by Polars' name of it (``Sum``); None if nothing is known to."""
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
