"""Calling what the user passed, on columns: callables over objects, expressions over series.

A row on which a callable raises is a *failure*, a value like any other: the engine decides whether the
application stops or the record goes to the dead letters. An expression that fails is evaluated again row
by row, to find the rows at fault.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

from crossstream.algebra.functions import Function
from crossstream.algebra.values import Values
from crossstream.errors import ProcessingError


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that a function of the user could not process."""

    row: int
    error: Exception


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a function gave for each row; rows in ``failures`` are null and must be dropped."""

    values: Values
    failures: list[Failure] = field(default_factory=list)


def evaluate(function: Function, key: Values, **arguments: Values) -> Outcome:
    """The function on every row. ``arguments``: ``value=``, or ``left=`` and ``right=`` for a joiner."""
    if function.expression is not None:
        return _express(function, key, arguments)
    columns = [values.objects() for values in arguments.values()]
    if function.with_key:
        columns.insert(0, key.objects())
    assert function.call is not None
    results, failures = call_rows(function.call, columns)
    return Outcome(Values(objects=results), failures)


def call_rows(call: Callable[..., Any], columns: list[list[Any]]) -> tuple[list[Any], list[Failure]]:
    """A callable on every row; where it raised: None and a failure."""
    calls: Iterator[Any] = map(call, *columns)
    results: list[Any] = []
    failures: list[Failure] = []
    while True:
        try:
            results.extend(calls)
            return results, failures
        except Exception as error:
            failures.append(Failure(len(results), error))
            results.append(None)


def holds(function: Function, key: Values, value: Values) -> tuple[np.ndarray, list[Failure]]:
    """A predicate on every row; null counts as false."""
    outcome = evaluate(function, key, value=value)
    if outcome.values.expressed():
        series = outcome.values.series()
        if series.dtype != pl.Boolean:
            raise ProcessingError(
                f"a predicate expression gave {series.dtype}, not Boolean",
                code="CS-503",
                next="compare or cast inside the expression, for instance pl.col('price') > 10",
            )
        return series.fill_null(False).to_numpy(), outcome.failures
    return np.fromiter(map(bool, outcome.values.objects()), bool, value.rows), outcome.failures


def _express(function: Function, key: Values, arguments: dict[str, Values]) -> Outcome:
    expression = function.expression
    assert expression is not None
    rows = key.rows
    try:
        return Outcome(Values(series=_select(expression, _frame(function, key, arguments), rows)))
    except pl.exceptions.PolarsError as error:
        if rows == 1:
            return Outcome(Values(objects=[None]), [Failure(0, error)])
    parts, failures = [], []
    for row in range(rows):
        one = np.array([row])
        outcome = _express(function, key.take(one), {name: values.take(one) for name, values in arguments.items()})
        parts.append(outcome.values.series() if not outcome.failures else None)
        failures.extend(Failure(row, failure.error) for failure in outcome.failures)
    good = [part for part in parts if part is not None]
    if not good:
        return Outcome(Values(objects=[None] * rows), failures)
    blank = pl.Series([None], dtype=good[0].dtype)
    return Outcome(Values(series=pl.concat([blank if part is None else part for part in parts])), failures)


def _select(expression: pl.Expr, frame: pl.DataFrame, rows: int) -> pl.Series:
    result = frame.select(expression.alias("result")).to_series()
    if len(result) == rows:
        return result
    if len(result) == 1:
        return result.new_from_index(0, rows)
    raise ProcessingError(
        f"an expression gave {len(result)} rows for {rows} records",
        code="CS-504",
        next="use expressions that give one value for each row: no aggregation, filter or explode",
    )


def _frame(function: Function, key: Values, arguments: dict[str, Values]) -> pl.DataFrame:
    columns: dict[str, pl.Series] = {}
    wanted = function.columns
    if "key" in wanted:
        columns["key"] = key.series()
    if "value" not in arguments:
        fields = struct_fields(function)
        for side in arguments.keys() & wanted:
            columns[side] = _typed(arguments[side].series(fields.get(side)), fields.get(side))
    else:
        columns.update(_value_columns(arguments["value"], wanted - {"key"}))
    if not columns:
        columns["key"] = pl.Series(np.zeros(key.rows, np.int8))
    return pl.DataFrame(columns)


def _value_columns(value: Values, wanted: Collection[str]) -> dict[str, pl.Series]:
    names = set(wanted)
    whole = "value" in names
    if not names:
        return {}
    series = value.series(None if whole else names)
    if not isinstance(series.dtype, pl.Struct):
        if series.dtype == pl.Null and not whole:
            return {name: pl.Series(name, [None] * len(series)) for name in names}
        return {"value": series}
    present = {field.name for field in series.dtype.fields}
    found = {name: series.struct.field(name) for name in names & present}
    if whole and "value" not in found:
        found["value"] = series
    return found


def _typed(series: pl.Series, fields: Collection[str] | None) -> pl.Series:
    """A side that is missing in every row has no type yet: give it the fields that are asked for."""
    if series.dtype != pl.Null or not fields:
        return series
    return pl.Series([None] * len(series), dtype=pl.Struct({name: pl.String for name in fields}))


@lru_cache(maxsize=512)
def _fields_of(serialized: str) -> dict[str, frozenset[str] | None]:
    found: dict[str, set[str] | None] = {}
    for column, name in _accesses(json.loads(serialized)):
        if name is None:
            found[column] = None
        elif (names := found.setdefault(column, set())) is not None:
            names.add(name)
    return {column: None if names is None else frozenset(names) for column, names in found.items()}


def struct_fields(function: Function) -> dict[str, frozenset[str] | None]:
    """For each column of an expression the struct fields it reads; None where it reads the whole column."""
    assert function.expression is not None
    try:
        return dict(_fields_of(function.expression.meta.serialize(format="json")))
    except (pl.exceptions.PolarsError, ValueError):
        return dict.fromkeys(function.columns)


def _accesses(node: Any) -> Iterable[tuple[str, str | None]]:
    """(column, field) for every access in a serialised expression; field None: the column as a whole."""
    if isinstance(node, list):
        for item in node:
            yield from _accesses(item)
    elif isinstance(node, dict):
        call = node.get("Function")
        if isinstance(call, dict) and (name := _field_name(call)) is not None:
            yield call["input"][0]["Column"], name
        elif isinstance(node.get("Column"), str):
            yield node["Column"], None
        else:
            for item in node.values():
                yield from _accesses(item)


def _field_name(call: dict[str, Any]) -> str | None:
    kind = call.get("function")
    inputs = call.get("input")
    if not isinstance(kind, dict) or not isinstance(inputs, list) or len(inputs) != 1:
        return None
    access = kind.get("StructExpr")
    is_column = isinstance(inputs[0], dict) and isinstance(inputs[0].get("Column"), str)
    if isinstance(access, dict) and is_column and isinstance(access.get("FieldByName"), str):
        return str(access["FieldByName"])
    return None
