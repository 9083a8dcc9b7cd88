"""Calling what the user passed, on columns: callables over objects, expressions over series.

A row on which a callable raises is a *failure*, a value like any other: the engine decides whether the
application stops or the record goes to the dead letters. An expression that fails is evaluated again on
halves of the rows, and so on, to find the rows at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.algebra.functions import Function
from crossstream.algebra.uses import ALL, Use, fitted, use_of, uses_of
from crossstream.algebra.values import Values, concat_values
from crossstream.errors import ProcessingError, SerdeError
from crossstream.serdes import Serde


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
    """The function on every row. ``arguments``: ``value=``; or ``left=`` and one for each other side of a joiner."""
    if function.expression is not None:
        return _express(function, key, arguments)
    is_joiner = "left" in arguments
    columns = [values.own_objects() if is_joiner else values.objects() for values in arguments.values()]
    if function.with_key:
        columns.insert(0, key.objects())
    assert function.call is not None
    results, failures = call_rows(function.call, columns)
    return Outcome(Values(objects=results), failures)


def call_rows(call: Callable[..., Any], columns: list[list[Any]]) -> tuple[list[Any], list[Failure]]:
    """A callable on every row; where it raised: None and a failure.

    Where it raises StopIteration, `map` is at its end for those who ask, and goes on when asked again.
    """
    calls: Iterator[Any] = map(call, *columns)
    results: list[Any] = []
    failures: list[Failure] = []
    while True:
        try:
            results.extend(calls)
            if len(results) == len(columns[0]):
                return results, failures
            failure: Exception = StopIteration("next(…) found nothing; next(…, None) gives None instead")
        except Exception as error:
            failure = error
        failures.append(Failure(len(results), failure))
        results.append(None)


def holds(function: Function, key: Values, value: Values) -> tuple[np.ndarray, list[Failure]]:
    """A predicate on every row; null counts as false."""
    outcome = evaluate(function, key, value=value)
    if outcome.values.expressed():
        series = outcome.values.series()
        if series.dtype not in (pl.Boolean, pl.Null):
            raise ProcessingError(
                f"a predicate expression gave {series.dtype}, not Boolean",
                code="CS-503",
                next="compare or cast inside the expression, for instance pl.col('price') > 10",
            )
        return series.cast(pl.Boolean).fill_null(False).to_numpy(), outcome.failures
    answers = outcome.values.objects()
    try:
        return np.fromiter(map(bool, answers), bool, value.rows), outcome.failures
    except Exception:
        truths, failures = call_rows(bool, [answers])
        return np.array(truths, bool), sorted([*outcome.failures, *failures], key=lambda failure: failure.row)


def serialized(keys: Values, serde: Serde | None, noun: str) -> tuple[pa.LargeBinaryArray, list[Failure]]:
    """Keys that a function made as bytes of a table's keys; those of a wrong type are null, and failures.

    ``noun``: what they are called in the message. Raises `SerdeError` if no single row is at fault.
    """
    try:
        return keys.wire(serde), []
    except SerdeError:
        if serde is None:
            raise
        found: list[bytes | None] = []
        wrong = []
        for row, key in enumerate(keys.objects()):
            try:
                found.append(serde.serialize(key))
            except SerdeError as error:
                what = f"{noun} has the wrong type: {error.what}"
                step = "let the function return what the key serde of the other table takes"
                wrong.append(Failure(row, SerdeError(what, code="CS-411", next=step)))
                found.append(None)
        if not wrong:
            raise
        return pa.array(found, pa.large_binary()), wrong


def _express(function: Function, key: Values, arguments: dict[str, Values]) -> Outcome:
    expression = function.expression
    assert expression is not None
    rows = key.rows
    try:
        return Outcome(Values(series=_select(expression, _frame(function, key, arguments), rows)))
    except pl.exceptions.PolarsError as error:
        if not rows:
            return Outcome(Values(objects=[]))
        if rows == 1:
            return Outcome(Values(series=pl.Series([None])), [Failure(0, error)])
    halves = [np.arange(rows // 2), np.arange(rows // 2, rows)]
    outcomes = [
        _express(function, key.take(half), {name: values.take(half) for name, values in arguments.items()})
        for half in halves
    ]
    return Outcome(
        concat_values([outcome.values for outcome in outcomes]),
        [
            Failure(int(half[failure.row]), failure.error)
            for half, outcome in zip(halves, outcomes, strict=True)
            for failure in outcome.failures
        ],
    )


def _select(expression: pl.Expr, frame: pl.DataFrame, rows: int) -> pl.Series:
    try:
        result = frame.select(expression.alias("result")).to_series()
    except pl.exceptions.DuplicateError:
        if not expression.meta.has_multiple_outputs():
            raise
        raise ProcessingError(
            "an expression gave several columns, where there is one value for each record",
            code="CS-504",
            next='make one of them: pl.struct(pl.col("a", "b"))',
        ) from None
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
    uses = uses_of(function)
    wanted = uses.keys()
    sides = arguments.keys() if "left" in arguments else set[str]()
    for name, values in [("key", key), *arguments.items()]:
        if name in wanted and name != "value" and name not in sides:
            columns[name] = values.series()
    if "value" in arguments:
        names = wanted - columns.keys()
        columns = {**_value_columns(arguments["value"], {name: uses[name] for name in names}), **columns}
    for side in sides:
        values, use = arguments[side], use_of(function, side)
        if use is not None:
            columns[side] = fitted(values.series(use.names), use, not values.declared())
    if not columns:
        columns["key"] = pl.Series(np.zeros(key.rows, np.int8))
    return pl.DataFrame(columns)


def _value_columns(value: Values, uses: dict[str, Use]) -> dict[str, pl.Series]:
    """A column for each field that is wanted, or "value" for a value as a whole."""
    if not uses:
        return {}
    whole = "value" in uses or ALL in uses
    if ALL in uses and not value.declared():
        raise ProcessingError(
            "an expression takes all columns, and the values have no declared type that tells which there are",
            code="CS-508",
            next="name the columns, or declare the type: serdes.json(Order)",
        )
    series = value.series(None if whole else uses.keys())
    if isinstance(series.dtype, pl.Struct) or (series.dtype == pl.Null and not whole):
        asked = Use(fields={name: use for name, use in uses.items() if name not in ("value", ALL)})
        fields = fitted(series, asked, not value.declared()).struct
        present = list(fields.schema)
        found = {name: fields.field(name) for name in present if name in uses or ALL in uses}
        return found if "value" in found or "value" not in uses else {**found, "value": series}
    return {"value": series}
