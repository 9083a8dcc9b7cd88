"""Calling what the user passed, on columns: callables over objects, expressions over series.

A row on which a callable raises is a *failure*, a value like any other: the engine decides whether the
application stops or the record goes to the dead letters. An expression that fails is evaluated again on
halves of the rows, and so on, to find the rows at fault.

An expression reads the fields of a value. A null value has no fields, so such a row is a failure, as where a callable
reads a field of None. An expression that reads the whole value (the column ``value``) decides itself.

A serde may refuse rows of what a function gave (`encoded`). It decides on each row alone, in the form that the row has:
the result of an expression is a column, of which a serde may take what it would not take as an object (a UUID as text).
So the batch in which a row comes makes no difference. Nulls are null bytes in every serde, also where the type of their
column is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.columns.functions import Function, frame_for, is_joiner, reads_fields_only, select
from crossstream.columns.values import Bytes, Values
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, ProcessingError, SerdeError
from crossstream.gc_pause import paused_gc
from crossstream.serdes import arrays, calls
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.errors import NO_COLUMN
from crossstream.serdes.json.columns import beyond_the_calendar
from crossstream.storage.columns import take_or_null
from crossstream.storage.sorted_run import places_of

_JOINED = 2048
"""Rows whose objects a joiner gets at a time (decision 0055)."""


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
    return _on_rows(evaluate(function, key.take(rows), **_taken(arguments, rows)), rows, key.rows)


def _on_rows(outcome: Outcome, rows: np.ndarray, count: int) -> Outcome:
    """The outcome for some ``rows`` as that of all; null elsewhere."""
    failures = [failure.at(rows[failure.row]) for failure in outcome.failures]
    return Outcome(outcome.values.take(places_of(rows, count)), failures)


def _evaluated(function: Function, key: Values, arguments: Mapping[str, Values]) -> Outcome:
    if function.expression is not None:
        return _express(function, key, arguments)
    assert function.call is not None
    if is_joiner(arguments):
        return _joined(function, function.call, key, arguments)
    columns = [values.objects() for values in arguments.values()]
    if function.with_key:
        columns.insert(0, key.objects())
    results, failures = call_of_user(function.call, columns)
    return Outcome(Values(function.returns, objects=results), failures)


def _joined(
    function: Function, call: Callable[..., Any], key: Values, arguments: Mapping[str, Values]
) -> Outcome:
    """A joiner on some rows at a time: no other reader gets their objects, and the next ones take their memory."""
    results: list[Any] = []
    failures: list[Failure] = []
    with paused_gc():
        for start in range(0, key.rows, _JOINED):
            stop = min(start + _JOINED, key.rows)
            columns = [values.slice(start, stop).own_objects() for values in arguments.values()]
            if function.with_key:
                columns.insert(0, key.slice(start, stop).objects())
            found, failed = call_of_user(call, columns)
            results += found
            failures += [failure.at(start + failure.row) for failure in failed]
    return Outcome(Values(function.returns, objects=results), failures)


def uncalled(function: Function, rows: int) -> Values:
    """Nulls, where the function was not called or failed, of the type that it gives elsewhere."""
    returns = function.returns
    if function.expression is None:
        return Values(returns, objects=[None] * rows)
    dtype = None if returns is None else returns.dtype
    return Values(returns, series=arrays.null_series(rows, pl.Null() if dtype is None else dtype))


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
    truths, failures = call_rows(bool, [outcome.values.objects()])
    failures = [*outcome.failures, *(replace(failure, role=function.role) for failure in failures)]
    return np.array(truths, bool), sorted(failures, key=lambda failure: failure.row)


def _truths(answers: pl.Series) -> np.ndarray:
    if answers.dtype not in (pl.Boolean, pl.Null):
        step = "compare or cast inside the expression, for instance pl.col('price') > 10"
        raise refuse("CS-501", f"a predicate expression gave {answers.dtype}, not Boolean", step)
    return answers.cast(pl.Boolean).fill_null(False).to_numpy()


def serialized(
    keys: Values, serde: EngineSerde | None, noun: str
) -> tuple[pa.LargeBinaryArray, list[Failure]]:
    """Keys that a function made as bytes of a table's keys; those of a wrong type are null, and failures.

    ``noun``: what they are called in the message. Raises `SerdeError` if no single row is at fault.
    """
    column, wrong = written(keys, serde)
    return column, [Failure(row, _wrong_type(noun, error)) for row, error in wrong]


def written(values: Values, serde: EngineSerde | None) -> tuple[Bytes, list[tuple[int, SerdeError]]]:
    """The bytes, null where the serde refuses a row, and the refused rows.

    Raises `SerdeError` if no single row is at fault.
    """
    try:
        return values.wire(serde), []
    except SerdeError:
        if serde is None:
            raise
        column, wrong = encoded(values, serde)
        if not wrong and not values.missing().all():
            raise
        return column, wrong


def _wrong_type(noun: str, error: CrossStreamError) -> CrossStreamError:
    what = f"{noun} has the wrong type: {error.what}"
    return refuse("CS-401", what, "let the function return what the key serde of the other table takes")


def _express(function: Function, key: Values, arguments: Mapping[str, Values]) -> Outcome:
    """An expression on every row; where it reads fields of a value that is null, the row is a failure."""
    value = arguments.get("value")
    if value is None or not reads_fields_only(function, arguments) or not (missing := value.missing()).any():
        return _express_together(function, key, arguments)
    failures = [Failure(row, _null_value(function.role)) for row in np.flatnonzero(missing).tolist()]
    rows = np.flatnonzero(~missing)
    if not len(rows):
        return Outcome(uncalled(function, key.rows), failures)
    outcome = _on_rows(_express_together(function, key.take(rows), _taken(arguments, rows)), rows, key.rows)
    return replace(outcome, failures=sorted([*failures, *outcome.failures], key=lambda failure: failure.row))


def _null_value(role: str) -> CrossStreamError:
    step = (
        'drop such records before: filter(pl.col("value").is_not_null()); or decide in the expression:'
        ' pl.when(pl.col("value").is_not_null()).then(…)'
    )
    return refuse("CS-501", f"the value is null, and the {role} is an expression that reads its fields", step)


def _taken(arguments: Mapping[str, Values], rows: np.ndarray) -> dict[str, Values]:
    return {name: values.take(rows) for name, values in arguments.items()}


def _express_together(function: Function, key: Values, arguments: Mapping[str, Values]) -> Outcome:
    found = _expressed(function, key, arguments)
    if not isinstance(found, Exception):
        return Outcome(Values(function.returns, series=found))
    if key.rows <= 1:
        return Outcome(uncalled(function, key.rows), [Failure(0, found)] if key.rows else [])
    halves = np.array_split(np.arange(key.rows), 2)
    outcomes = [_express_together(function, key.take(rows), _taken(arguments, rows)) for rows in halves]
    return _merged(function, halves, outcomes)


def _expressed(function: Function, key: Values, arguments: Mapping[str, Values]) -> pl.Series | Exception:
    """The results of the expression; or what it raised, or why a value cannot be read.

    Anything else is an error of this package, which must not pass for a failure of the function: it is raised.
    """
    assert function.expression is not None
    try:
        frame = frame_for(function, key, arguments)
    except SerdeError as error:
        return error
    try:
        series = _of_declared_type(select(function.expression, frame), function)
        if beyond_the_calendar(series):
            raise ValueError("the expression gave a time before the year 1 or after 9999")
        return series
    except ProcessingError:
        raise
    except pl.exceptions.PanicException as error:  # which is no `Exception`
        return RuntimeError(str(error))
    except Exception as error:  # of Polars, or of a function in `map_batches`
        return error


def _of_declared_type(series: pl.Series, function: Function) -> pl.Series:
    """With the type that is declared: a serde that the user named for the results may have another one."""
    returns = function.returns
    if returns is None or returns.dtype in (None, series.dtype):
        return series
    return calls.decode_series(returns, calls.encode_series(returns, series))


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
    parts = [
        arrays.null_series(len(part), dtype) if bad else part for part, bad in zip(parts, failed, strict=True)
    ]
    return Outcome(Values(function.returns, series=pl.concat(parts)), failures)


Segment: TypeAlias = tuple[np.ndarray, Bytes | SerdeError]
"""Rows in ascending order, and their bytes, or why the serde refuses each of them."""

_FEW = 16
"""Rows that are checked one by one: where many are wrong, halving further would check each of them twice."""


def encoded(values: Values, serde: EngineSerde) -> tuple[Bytes, list[tuple[int, SerdeError]]]:
    """The bytes, null where there are none, and the refused rows in ascending order.

    Raises `SerdeError` for what is not a matter of single rows.
    """
    rows, found, wrong = [np.empty(0, np.int64)], [pa.nulls(0, pa.large_binary())], []
    for own, part in values.parts():
        for within, piece in _pieces(part, serde):
            if isinstance(piece, SerdeError):
                wrong += [(row, piece) for row in own[within].tolist()]
            else:
                rows.append(own[within])
                found.append(piece)
    place = places_of(np.concatenate(rows), values.rows)
    return take_or_null(pa.concat_arrays(found), place), sorted(wrong, key=lambda one: one[0])


def first_refused(values: Values, serde: EngineSerde) -> tuple[int, SerdeError] | None:
    """The first row that the serde refuses, and why; None if it refuses none. Raises as `encoded`."""
    wrong = encoded(values, serde)[1]
    return wrong[0] if wrong else None


def _pieces(values: Values, serde: EngineSerde) -> Iterator[Segment]:
    """All rows but nulls; the refused ones in ascending order."""
    rows = np.flatnonzero(~values.missing())
    if not values.expressed():
        yield from _one_by_one(values.objects(), rows, serde)
        return
    column = values.series()
    there = column if len(rows) == len(column) else column.gather(pl.Series(rows, dtype=pl.Int64))
    refusal = _of_the_type(there, serde)
    yield from _halved(there, rows, serde) if refusal is None else [(rows, refusal)]


def _one_by_one(items: list[Any], rows: np.ndarray, serde: EngineSerde) -> Iterator[Segment]:
    taken: list[int] = []
    found: list[bytes | None] = []
    for row in rows.tolist():
        try:
            found.append(calls.serialize(serde, items[row]))
            taken.append(row)
        except SerdeError as error:
            yield np.array([row]), error
    yield np.array(taken, np.int64), pa.array(found, pa.large_binary())


def _halved(column: pl.Series, rows: np.ndarray, serde: EngineSerde) -> Iterator[Segment]:
    if not len(rows):
        return
    found = _column(column, serde)
    if not isinstance(found, SerdeError) or len(rows) == 1:
        yield rows, found
        return
    step = (len(rows) + 1) // 2 if len(rows) > _FEW else 1
    for start in range(0, len(rows), step):
        yield from _halved(column[start : start + step], rows[start : start + step], serde)


def _column(column: pl.Series, serde: EngineSerde) -> Bytes | SerdeError:
    try:
        return calls.encode_series(serde, column)
    except SerdeError as error:
        if error.code == NO_COLUMN:
            raise
        return error


def _of_the_type(column: pl.Series, serde: EngineSerde) -> SerdeError | None:
    """What the serde says of the type of a column, and so of any of its rows; None if it takes the type."""
    refusal = _column(column.clear(), serde)
    if not isinstance(refusal, SerdeError) or not len(column):
        return None
    first = _column(column[:1], serde)
    return first if isinstance(first, SerdeError) and first.what == refusal.what else None
