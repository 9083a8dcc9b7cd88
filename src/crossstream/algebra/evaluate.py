"""Calling what the user passed, on columns: callables over objects, expressions over series.

A row on which a callable raises is a *failure*, a value like any other: the engine decides whether the
application stops or the record goes to the dead letters. An expression that fails is evaluated again on
halves of the rows, and so on, to find the rows at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.algebra.expressions import (
    Read,
    columns_for,
    columns_in,
    marks_of,
    origins_of,
    reads_of,
)
from crossstream.algebra.functions import Function
from crossstream.algebra.refused import encoded
from crossstream.algebra.undeclared import groups_of, groups_of_numbers
from crossstream.algebra.uses import Same
from crossstream.algebra.values import Values, chained
from crossstream.errors import CrossStreamError, ProcessingError, SerdeError
from crossstream.serdes import Serde
from crossstream.serdes.calendar import beyond
from crossstream.serdes.json_columns import null_series
from crossstream.serdes.refusals import MIXED, UNDECODABLE


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that a function of the user could not process."""

    row: int
    error: Exception


class Raised(Exception):
    """Around an error of ours that a function of the user raised: it is no refusal of ours."""

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
    if function.expression is not None:
        return _express(function, key, arguments)
    is_joiner = "left" in arguments
    columns = [values.own_objects() if is_joiner else values.objects() for values in arguments.values()]
    if function.with_key:
        columns.insert(0, key.objects())
    assert function.call is not None
    results, failures = call_of_user(function.call, columns)
    return Outcome(Values(objects=results), failures)


def uncalled(function: Function, rows: int, key: Values, /, **arguments: Values) -> Values:
    """Nulls where the function was not called: of the type that an expression gives elsewhere, if that is declared."""
    dtype = None
    if function.expression is not None:
        reads = reads_of(function, key, arguments)
        if all(read.values.declared() for read in reads):
            given = tuple((name, values.declared_type()) for name, values in arguments.items())
            dtype = _result_type(Same(function.expression), key.declared_type(), given)
    return Values(objects=[None] * rows) if dtype is None else Values(series=null_series(rows, dtype))


@lru_cache(maxsize=256)
def _result_type(
    same: Same, key: pl.DataType | None, arguments: tuple[tuple[str, pl.DataType | None], ...]
) -> pl.DataType | None:
    """The type of what an expression gives for columns of these types; None: it cannot be told."""
    none = {name: Values(series=pl.Series([], dtype=dtype)) for name, dtype in arguments}
    outcome = evaluate(Function.of(same.expression), Values(series=pl.Series([], dtype=key)), **none)
    return outcome.values.series().dtype if outcome.values.expressed() else None


def call_of_user(
    call: Callable[..., Any], columns: list[list[Any]], check: Callable[[Any], Any] | None = None
) -> tuple[list[Any], list[Failure]]:
    """A callable of the user on every row: as `call_rows`, and what it raises is its own, also an error of ours.

    ``check``: makes the result of what it gave, or raises.
    """
    results, failures = call_rows(call, columns)
    failures = [Failure(failure.row, raised(failure.error)) for failure in failures]
    if check is None:
        return results, failures
    failed = {failure.row for failure in failures}
    results, refused = call_rows(check, [results])
    failures += [failure for failure in refused if failure.row not in failed]
    return results, sorted(failures, key=lambda failure: failure.row)


def raised(error: Exception) -> Exception:
    """The error of a function of the user, which nobody takes for a refusal of ours."""
    return Raised(error) if isinstance(error, CrossStreamError) else error


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
    if function.expression is not None:
        found = np.zeros(value.rows, bool)
        for rows, series in columns_in(outcome.values):
            found[rows] = _truths(series)
        return found, outcome.failures
    answers = outcome.values.objects()
    try:
        return np.fromiter(map(bool, answers), bool, value.rows), outcome.failures
    except Exception:
        truths, failures = call_rows(bool, [answers])
        return np.array(truths, bool), sorted([*outcome.failures, *failures], key=lambda failure: failure.row)


def _truths(answers: pl.Series) -> np.ndarray:
    if answers.dtype not in (pl.Boolean, pl.Null):
        raise ProcessingError(
            f"a predicate expression gave {answers.dtype}, not Boolean",
            code="CS-503",
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
        code="CS-411",
        next="let the function return what the key serde of the other table takes",
    )


def _express(function: Function, key: Values, arguments: dict[str, Values]) -> Outcome:
    """An expression on every row: apart on those whose types something else declares."""
    reads = reads_of(function, key, arguments)
    origins = origins_of(reads)
    if not origins:
        return _express_alike(function, reads, key.rows)
    groups = groups_of_numbers(origins)
    outcomes = [
        _express_alike(function, [read.of_one_origin(rows) for read in reads], len(rows)) for rows in groups
    ]
    return _merged(groups, outcomes)


def _express_alike(function: Function, reads: Sequence[Read], rows: int) -> Outcome:
    """Together on those rows whose columns have the same types; those that have not what is read are failures."""
    try:
        marks = marks_of(reads) if rows > 1 else []
    except SerdeError as error:
        if error.code not in (UNDECODABLE, MIXED):
            raise
        return _express_apart(function, reads, _halves(rows), _express_alike)
    if not marks:
        return _express_together(function, reads, rows)
    return _express_apart(function, reads, groups_of(marks), _express_together)


def _express_apart(
    function: Function,
    reads: Sequence[Read],
    groups: Sequence[np.ndarray],
    express: Callable[[Function, Sequence[Read], int], Outcome],
) -> Outcome:
    """On each of the groups of rows by itself."""
    outcomes = [express(function, [read.take(rows) for read in reads], len(rows)) for rows in groups]
    return _merged(groups, outcomes)


def _halves(rows: int) -> list[np.ndarray]:
    """So that the rows of one half are none the worse for those of the other."""
    return [np.arange(rows // 2), np.arange(rows // 2, rows)]


def _express_together(function: Function, reads: Sequence[Read], rows: int) -> Outcome:
    open_ = not all(read.values.declared() for read in reads)
    try:
        return _in_the_calendar(columns_for(function, reads, rows).select(), open_)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, SerdeError) as error:
        if isinstance(error, SerdeError) and error.code not in (UNDECODABLE, MIXED):
            raise
        if not rows:
            return Outcome(Values(objects=[]))
        if rows == 1 and isinstance(error, SerdeError):
            return _express_decoded(function, reads, error)
        if rows == 1:
            return _failed(error, open_)
    return _express_apart(function, reads, _halves(rows), _express_together)


def _express_decoded(function: Function, reads: Sequence[Read], error: SerdeError) -> Outcome:
    """On a row whose fields cannot be decoded: as where somebody decoded all of it before, if that can be done.

    Whether somebody did, depends on the rows beside it; what is told of the failure does not.
    """
    try:
        whole = [read.decoded() for read in reads]
    except SerdeError:
        return _failed(error, open_=True)
    try:
        return _in_the_calendar(columns_for(function, whole, 1).select(), open_=True)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, SerdeError) as failure:
        return _failed(failure, open_=True)


def _failed(error: BaseException, open_: bool) -> Outcome:
    """Of one row."""
    return Outcome(Values(series=pl.Series([None]), open_=open_), [Failure(0, _as_exception(error))])


def _as_exception(error: BaseException) -> Exception:
    """The error; a panic of Polars is none that `except Exception` would find."""
    return error if isinstance(error, Exception) else RuntimeError(str(error))


def _merged(groups: Sequence[np.ndarray], outcomes: Sequence[Outcome]) -> Outcome:
    """The outcomes of groups of rows, each row in its place."""
    failures = [
        Failure(int(rows[failure.row]), failure.error)
        for rows, outcome in zip(groups, outcomes, strict=True)
        for failure in outcome.failures
    ]
    order = np.concatenate(groups)
    values = chained(_of_one_type(outcomes))
    if (np.diff(order) < 0).any():
        values = values.take(np.argsort(order))
    return Outcome(values, sorted(failures, key=lambda failure: failure.row))


def _of_one_type(outcomes: Sequence[Outcome]) -> list[Values]:
    """The values; where all rows failed, nulls of the type of the others."""
    failed = [len(outcome.failures) == outcome.values.rows for outcome in outcomes]
    parts = [outcome.values for outcome in outcomes]
    dtypes = {
        part.series().dtype for part, bad in zip(parts, failed, strict=True) if not bad and part.expressed()
    }
    if len(dtypes) != 1:
        return parts
    dtype = dtypes.pop()
    return [
        Values(series=null_series(part.rows, dtype), open_=part.is_open()) if bad else part
        for part, bad in zip(parts, failed, strict=True)
    ]


def _in_the_calendar(series: pl.Series, open_: bool) -> Outcome:
    """Times that Python has; those before the year 1 and after 9999 are failures."""
    mask = beyond(series)
    if mask is None:
        return Outcome(Values(series=series, open_=open_))
    wrong = ValueError("the expression gave a time before the year 1 or after 9999")
    rows = np.flatnonzero(mask)
    kept = series.gather(pl.Series(pa.array(np.arange(len(series)), mask=mask), dtype=pl.Int64))
    return Outcome(Values(series=kept, open_=open_), [Failure(row, wrong) for row in rows.tolist()])
