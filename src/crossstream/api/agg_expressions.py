"""Polars expressions that only aggregates make up: ``pl.col("price").sum() / pl.len()`` as an `Aggregation`.

They are found in the JSON that Polars writes (see `columns/projection.py`). They mean what Polars means: a sum of
nothing is 0. Aggregates that mean something else here, such as ``first``, which takes nulls in Polars, are refused.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import polars as pl

from crossstream.agg import Aggregation, Field
from crossstream.columns.aggregates import Kind
from crossstream.columns.functions import serialized

_KINDS: Mapping[str, Kind] = MappingProxyType(
    {"Sum": "sum", "Mean": "mean", "Min": "min", "Max": "max", "Count": "count"}
)

_Term = tuple[Kind, Field | None]
_Place = Callable[[_Term], Any]
"""What stands for a term in the JSON."""


def as_aggregation(expression: pl.Expr) -> Aggregation | None:
    """The aggregates in an expression, and what it makes of them; None if it has none that are known."""
    parts = serialized(expression)
    terms: list[_Term] = []

    def found(term: _Term) -> Any:
        terms.append(term)
        return None

    try:
        _replaced(parts, found)
    except pl.exceptions.PolarsError:
        return None

    def made(columns: Sequence[pl.Expr]) -> pl.Expr:
        names = iter([column.meta.output_name() for column in columns])
        return _expression(_replaced(parts, lambda term: _column(term, next(names))))

    return Aggregation(terms, made) if terms else None


def _column(term: _Term, name: str) -> Any:
    column = pl.col(name).fill_null(0) if term[0] == "sum" else pl.col(name)
    return serialized(column)


def _replaced(node: Any, place: _Place) -> Any:
    """The JSON with something else in place of each aggregate."""
    if node == "Len":
        return place(("count", None))
    if isinstance(node, list):
        return [_replaced(one, place) for one in node]
    if not isinstance(node, dict):
        return node
    term = _term(node.get("Agg"))
    if term is not None:
        return place(term)
    return {name: one if name == "Literal" else _replaced(one, place) for name, one in node.items()}


def _term(call: Any) -> _Term | None:
    if not isinstance(call, dict) or len(call) != 1:
        return None
    name, given = next(iter(call.items()))
    if name not in _KINDS:
        return None
    options = given if isinstance(given, dict) and "input" in given else {"input": given}
    if options.get("propagate_nans"):
        return None
    if options.get("include_nulls"):
        return "count", None
    return _KINDS[name], _expression(options["input"])


def _expression(parts: Any) -> pl.Expr:
    return pl.Expr.deserialize(io.StringIO(json.dumps(parts)), format="json")
