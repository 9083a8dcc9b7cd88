"""Calling what the user passed, on columns: callables over objects, expressions over series.

A row on which a callable raises is a *failure*, a value like any other: the engine decides whether the
application stops or the record goes to the dead letters. An expression that fails is evaluated again on
halves of the rows, and so on, to find the rows at fault.

An expression reads the fields of a value. A null value has no fields, so such a row is a failure, as where a callable
reads a field of None. An expression that reads the whole value (the column ``value``) decides itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.columns.expressions import frame_for, is_joiner, reads_fields_only, select
from crossstream.columns.functions import Function
from crossstream.columns.refused import encoded
from crossstream.columns.values import Values
from crossstream.errors import CrossStreamError, ProcessingError, SerdeError
from crossstream.serdes import Serde
from crossstream.serdes import serde as calls
from crossstream.serdes.json_columns import beyond_the_calendar, null_series


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that a user's function could not process."""

    row: int
    error: BaseException
    role: str = "function"

    def at(self, row: int) -> Failure:
        """The same failure, of this row."""
        return replace(self, row=int(row))


class Raised(Exception):
    """Wraps an error of this package that a user's function raised: it is not a refusal of this package."""

    def __init__(self, error: CrossStreamError) -> None:
        super().__init__(error)
        self.error = error


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a function gave for each row; rows in ``failures`` are null and must be dropped."""

    values: Values
    failures: list[Failure] = field(default_factory=list)


def evaluate(function: Function, key: Values, /, **arguments: Values) -> Outcome:
    """The function on every row. ``arguments``: ``value=``; or ``left=`` and one for each other side of a joiner."""
    outcome = _evaluated(function, key, arguments)
    if outcome.failures:
        outcome = replace(outcome, failures=[replace(one, role=function.role) for one in outcome.failures])
    return outcome


def evaluate_where(there: np.ndarray, function: Function, key: Values, /, **arguments: Values) -> Outcome:
    """As `evaluate`, on the rows for which ``there`` holds; null elsewhere, where the function is not called."""
    if there.all():
        return evaluate(function, key, **arguments)
    rows = np.flatnonzero(there)
    if not len(rows):
        return Outcome(uncalled(function, key.rows))
    outcome = evaluate(function, key.take(rows), **_taken(arguments, rows))
    place = np.full(key.rows, -1, np.int64)
    place[rows] = np.arange(len(rows))
    return Outcome(
        outcome.values.take(place), [failure.at(rows[failure.row]) for failure in outcome.failures]
    )


def _evaluated(function: Function, key: Values, arguments: Mapping[str, Values]) -> Outcome:
    if function.expression is not None:
        return _express(function, key, arguments)
    columns = [
        values.own_objects() if is_joiner(arguments) else values.objects() for values in arguments.values()
    ]
    if function.with_key:
        columns.insert(0, key.objects())
    assert function.call is not None
    results, failures = call_of_user(function.call, columns)
    return Outcome(Values(function.returns, objects=results), failures)


def uncalled(function: Function, rows: int) -> Values:
    """Nulls, where the function was not called or failed, of the type that it gives elsewhere."""
    returns = function.returns
    if function.expression is None:
        return Values(returns, objects=[None] * rows)
    dtype = None if returns is None else returns.dtype
    return Values(returns, series=null_series(rows, pl.Null() if dtype is None else dtype))


def call_of_user(
    call: Callable[..., Any],
    columns: list[list[Any]],
    check: Callable[[Any], Any] | None = None,
    role: str = "function",
) -> tuple[list[Any], list[Failure]]:
    """A user's callable on every row: as `call_rows`, with its errors marked as its own (`raised`).

    ``check``: makes the result of what it gave, or raises.
    """
    results, failures = call_rows(call, columns)
    failures = [Failure(failure.row, raised(failure.error), role) for failure in failures]
    if check is None:
        return results, failures
    failed = {failure.row for failure in failures}
    results, refused = call_rows(check, [results])
    failures += [replace(failure, role=role) for failure in refused if failure.row not in failed]
    return results, sorted(failures, key=lambda failure: failure.row)


def raised(error: BaseException) -> BaseException:
    """The error of a user's function, so marked that it is not taken for a refusal of this package."""
    return Raised(error) if isinstance(error, CrossStreamError) else error


def call_rows(call: Callable[..., Any], columns: list[list[Any]]) -> tuple[list[Any], list[Failure]]:
    """A callable on every row; where it raised: None and a failure.

    Where it raises StopIteration, `map` ends, and continues when it is asked again.
    """
    calls: Iterator[Any] = map(call, *columns)
    results: list[Any] = []
    failures: list[Failure] = []
    while True:
        try:
            results.extend(calls)
            if len(results) == len(columns[0]):
                return results, failures
            failure: BaseException = StopIteration("next(…) found nothing; next(…, None) gives None instead")
        except BaseException as error:  # sys.exit() is no reason to lose operator and record
            failure = error
        failures.append(Failure(len(results), failure))
        results.append(None)


def holds(function: Function, key: Values, value: Values) -> tuple[np.ndarray, list[Failure]]:
    """A predicate on every row; null counts as false."""
    outcome = evaluate(function, key, value=value)
    if function.expression is not None:
        return _truths(outcome.values.series()), outcome.failures
    answers = outcome.values.objects()
    try:
        return np.fromiter(map(bool, answers), bool, value.rows), outcome.failures
    except Exception:
        truths, failures = call_rows(bool, [answers])
        failures = [*outcome.failures, *(replace(failure, role=function.role) for failure in failures)]
        return np.array(truths, bool), sorted(failures, key=lambda failure: failure.row)


def _truths(answers: pl.Series) -> np.ndarray:
    if answers.dtype not in (pl.Boolean, pl.Null):
        raise ProcessingError(
            f"a predicate expression gave {answers.dtype}, not Boolean",
            code="CS-501",
            next="compare or cast inside the expression, for instance pl.col('price') > 10",
        )
    return answers.cast(pl.Boolean).fill_null(False).to_numpy()


def serialized(keys: Values, serde: Serde | None, noun: str) -> tuple[pa.LargeBinaryArray, list[Failure]]:
    """Keys that a function made as bytes of a table's keys; those of a wrong type are null, and failures.

    ``noun``: what they are called in the message. Raises `SerdeError` if no single row is at fault.
    """
    try:
        return keys.wire(serde), []
    except SerdeError:
        if serde is None:
            raise
        column, wrong = encoded(keys, serde)
        if not wrong and not keys.missing().all():
            raise
        return column, [Failure(row, _wrong_type(noun, error)) for row, error in wrong]


def _wrong_type(noun: str, error: SerdeError) -> SerdeError:
    return SerdeError(
        f"{noun} has the wrong type: {error.what}",
        code="CS-401",
        next="let the function return what the key serde of the other table takes",
    )


def _express(function: Function, key: Values, arguments: Mapping[str, Values]) -> Outcome:
    """An expression on every row; where it reads fields of a value that is null, the row is a failure."""
    value = arguments.get("value")
    if value is None or not reads_fields_only(function, arguments) or not (missing := value.missing()).any():
        return _express_together(function, key, arguments)
    failures = [Failure(row, _null_value(function.role)) for row in np.flatnonzero(missing).tolist()]
    rows = np.flatnonzero(~missing)
    if not len(rows):
        return Outcome(uncalled(function, key.rows), failures)
    outcome = _express_together(function, key.take(rows), _taken(arguments, rows))
    place = np.full(key.rows, -1, np.int64)
    place[rows] = np.arange(len(rows))
    failures += [failure.at(rows[failure.row]) for failure in outcome.failures]
    return Outcome(outcome.values.take(place), sorted(failures, key=lambda failure: failure.row))


def _null_value(role: str) -> ProcessingError:
    return ProcessingError(
        f"the value is null, and the {role} is an expression that reads its fields",
        code="CS-501",
        next='drop such records before: filter(pl.col("value").is_not_null()); or decide in the expression:'
        ' pl.when(pl.col("value").is_not_null()).then(…)',
    )


def _taken(arguments: Mapping[str, Values], rows: np.ndarray) -> dict[str, Values]:
    return {name: values.take(rows) for name, values in arguments.items()}


def _express_together(function: Function, key: Values, arguments: Mapping[str, Values]) -> Outcome:
    assert function.expression is not None
    try:
        series = _of_declared_type(select(function.expression, frame_for(function, key, arguments)), function)
        if beyond_the_calendar(series):
            raise ValueError("the expression gave a time before the year 1 or after 9999")
        return Outcome(Values(function.returns, series=series))
    except ProcessingError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:  # of Polars, or of a function in `map_batches`
        if not key.rows:
            return Outcome(uncalled(function, 0))
        if key.rows == 1:
            return Outcome(uncalled(function, 1), [Failure(0, _as_exception(error))])
    halves = np.array_split(np.arange(key.rows), 2)
    outcomes = [_express_together(function, key.take(rows), _taken(arguments, rows)) for rows in halves]
    return _merged(function, halves, outcomes)


def _of_declared_type(series: pl.Series, function: Function) -> pl.Series:
    """With the type that is declared: a serde that the user named for the results may have another one."""
    returns = function.returns
    if returns is None or returns.dtype in (None, series.dtype):
        return series
    return calls.decode_series(returns, calls.encode_series(returns, series))


def _as_exception(error: BaseException) -> Exception:
    """The error as an `Exception`, which a panic of Polars is not."""
    return error if isinstance(error, Exception) else RuntimeError(str(error))


def _merged(function: Function, groups: list[np.ndarray], outcomes: list[Outcome]) -> Outcome:
    """The outcomes of rows that stand one after the other; failed rows are nulls of the type of the others."""
    failures = [
        failure.at(rows[failure.row])
        for rows, outcome in zip(groups, outcomes, strict=True)
        for failure in outcome.failures
    ]
    parts = [outcome.values.series() for outcome in outcomes]
    failed = [len(outcome.failures) == outcome.values.rows for outcome in outcomes]
    dtype = next((part.dtype for part, bad in zip(parts, failed, strict=True) if not bad), parts[0].dtype)
    parts = [null_series(len(part), dtype) if bad else part for part, bad in zip(parts, failed, strict=True)]
    return Outcome(Values(function.returns, series=pl.concat(parts)), failures)
