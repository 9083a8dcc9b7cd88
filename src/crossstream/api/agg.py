"""Checks what was passed to ``agg(…)``, and finds out the types of its results."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import polars as pl

from crossstream import serdes
from crossstream.agg import Aggregation, Asked
from crossstream.api.checks import function_of
from crossstream.columns.aggregates import AggregateKind, Aggregates, Term, result_type
from crossstream.columns.functions import Function, other_rows, plain, select, serialized
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, caller_location
from crossstream.graph.nodes import Node

_EXAMPLE = 'agg(total=cs.agg.sum("price"), average=cs.agg.sum("price") / cs.agg.count())'


def aggregates_of(columns: Mapping[str, Any], node: Node) -> Aggregates:
    """The aggregates of the values of a node.

    Raises CS-104 for what is not made of aggregates, CS-111 for a field that reads other records, CS-113 for values
    without a declared type, CS-114 for a field that the type does not have or that cannot be aggregated so.
    """
    if not columns:
        what = "agg without aggregates makes empty rows"
        raise refuse("CS-104", what, f"name them: {_EXAMPLE}", **caller_location("agg"))
    fields: list[tuple[Any, Function]] = []
    terms: list[Term] = []
    types: list[pl.DataType] = []
    results: list[tuple[str, pl.Expr]] = []
    for name, given in columns.items():
        given = _made_of_aggregates(name, given)
        places = []
        for asked in given.terms:
            kind, field, limit = asked
            term = Term(kind, None if field is None else _number_of(fields, kind, field, node), limit)
            if term not in terms:
                terms.append(term)
                types.append(_type_of(term, name, fields))
            places.append(pl.col(str(terms.index(term))))
        results.append((name, _result(name, given, places)))
    frame = pl.DataFrame([pl.Series(str(number), [], dtype=dtype) for number, dtype in enumerate(types)])
    dtype = pl.Struct({name: _dtype_of(name, expression, frame) for name, expression in results})
    _check_json(dtype)
    return Aggregates(tuple(function for _, function in fields), tuple(terms), tuple(results), dtype)


def _made_of_aggregates(name: str, given: Any) -> Aggregation:
    made = as_aggregation(given) if isinstance(given, pl.Expr) else given
    if isinstance(made, Aggregation):
        return made
    what = "a Polars expression that is not made of aggregates" if isinstance(given, pl.Expr) else repr(given)
    if callable(given) and getattr(given, "__module__", "") == "crossstream.agg":
        what = f"the function {given.__name__} itself"
    step = f"make it of cs.agg.count(), cs.agg.sum(…) and the like: {_EXAMPLE}"
    raise refuse("CS-104", f"{name} of agg is {what}", step, **caller_location("agg"))


def _number_of(fields: list[tuple[Any, Function]], kind: AggregateKind, field: Any, node: Node) -> int:
    """The number of a field; a new one is checked."""
    if isinstance(field, pl.Expr) and field.meta.is_column():
        field = field.meta.output_name()
    for number, (known, _) in enumerate(fields):
        if known is field or (isinstance(field, str) and isinstance(known, str) and known == field):
            return number
    if not isinstance(field, str | pl.Expr):
        step = f'name a field, as in cs.agg.{kind}("price"), or pass a Polars expression'
        raise refuse("CS-104", f"the field of {kind} is {field!r}", step, **caller_location("agg"))
    expression = pl.col(field) if isinstance(field, str) else field
    function = function_of("agg", f"field of {kind}", expression, {"value": node})
    fields.append((field, function))
    return len(fields) - 1


def _type_of(term: Term, name: str, fields: list[tuple[Any, Function]]) -> pl.DataType:
    """The type of a term. Raises CS-114 for a field that it does not take."""
    declared = None if term.field is None else fields[term.field][1].returns
    field = None if declared is None else declared.dtype
    if term.field is not None and field is None:
        raise _misfit(f"the type of the field of {name} is not known", "cast it: pl.col(…).cast(pl.Int64)")
    dtype = result_type(term.kind, field)
    if dtype is None:
        cast = "cast it in the expression, for instance pl.col(…).cast(pl.Float64)"
        raise _misfit(f"{name} of agg is the {term.kind} of a field of type {field}", cast)
    return dtype


def _result(name: str, given: Aggregation, places: list[pl.Expr]) -> pl.Expr:
    try:
        made = given.expression(places)
    except Exception as error:
        raise _misfit(
            f"{name} of agg fails: {type(error).__name__}: {error}", "change the expression"
        ) from error
    if not isinstance(made, pl.Expr):
        raise _misfit(f"the function in {name} of agg gives {made!r}", "let it give a Polars expression")
    strange = set(made.meta.root_names()) - {place.meta.output_name() for place in places}
    if strange or (other_rows(made) is not None):
        what = (
            f"reads {', '.join(map(repr, sorted(strange)))}"
            if strange
            else f"combines groups ({other_rows(made)})"
        )
        step = "combine aggregates of one group only, by arithmetic and the like"
        raise refuse("CS-111", f"{name} of agg {what}, beside its aggregates", step, **caller_location("agg"))
    return made


def _dtype_of(name: str, expression: pl.Expr, frame: pl.DataFrame) -> pl.DataType:
    try:
        dtype: pl.DataType = plain(select(expression, frame).dtype)
        return dtype
    except (pl.exceptions.PolarsError, CrossStreamError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise _misfit(
            f"{name} of agg does not fit its aggregates: {reason}", "change the expression"
        ) from None


def _check_json(dtype: pl.Struct) -> None:
    try:
        serdes.json(dtype)
    except CrossStreamError as error:
        raise _misfit(f"agg makes values that JSON does not have: {error.what}", "cast the field") from None


def _misfit(what: str, step: str) -> CrossStreamError:
    return refuse("CS-114", what, step, **caller_location("agg"))


_KINDS: Mapping[str, AggregateKind] = MappingProxyType(
    {"Sum": "sum", "Mean": "mean", "Min": "min", "Max": "max", "Count": "count"}
)

_Place = Callable[[Asked], Any]
"""What stands for a term in the JSON."""


def as_aggregation(expression: pl.Expr) -> Aggregation | None:
    """The aggregates in an expression, and what it makes of them; None if it has none that are known."""
    parts = serialized(expression)
    terms: list[Asked] = []

    def found(term: Asked) -> Any:
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


def _column(term: Asked, name: str) -> Any:
    column = pl.col(name).fill_null(0) if term.kind == "sum" else pl.col(name)
    return serialized(column)


def _replaced(node: Any, place: _Place) -> Any:
    """The JSON with something else in place of each aggregate."""
    if node == "Len":
        return place(Asked("count"))
    if isinstance(node, list):
        return [_replaced(one, place) for one in node]
    if not isinstance(node, dict):
        return node
    term = _term(node.get("Agg"))
    if term is not None:
        return place(term)
    return {name: one if name == "Literal" else _replaced(one, place) for name, one in node.items()}


def _term(call: Any) -> Asked | None:
    if not isinstance(call, dict) or len(call) != 1:
        return None
    name, given = next(iter(call.items()))
    if name not in _KINDS:
        return None
    options = given if isinstance(given, dict) and "input" in given else {"input": given}
    if options.get("propagate_nans"):
        return None
    if options.get("include_nulls"):
        return Asked("count")
    return Asked(_KINDS[name], _expression(options["input"]))


def _expression(parts: Any) -> pl.Expr:
    return pl.Expr.deserialize(io.StringIO(json.dumps(parts)), format="json")
