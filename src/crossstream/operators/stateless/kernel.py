"""Row-wise operators: filter, map and the like, on streams and on tables.

On a table a tombstone passes as a tombstone and no function is called for it; a filtered row that stops
matching becomes a tombstone, and one that was not in the result yields nothing. Source: semantics 3.2, 3.3, 2.2.5.

A record that a function fails on is left out of the result and reported beside it. A table without a store of its
own has no row to leave as it was: a row whose new value its function refuses is gone until the next good one. So an old
value that the function refuses is that of a row that was not there, and is not reported again. In a ``stored`` table
the row stays, and a filter that fails on an old value cannot know whether its row was in the result. Source: semantics
3.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import Failure, evaluate, evaluate_where, holds, raised
from crossstream.columns.functions import Function
from crossstream.columns.values import Values
from crossstream.error_codes import refuse
from crossstream.tables.rows import BEHIND, OVERTAKEN

Result = tuple[Changes, list[Failure]]


def filter_stream(changes: Changes, predicate: Function, negate: bool) -> Result:
    mask, failures = holds(predicate, changes.key, changes.value)
    keep = mask != negate
    keep[rows_of(failures)] = False
    return changes.where(keep), failures


def filter_table(changes: Changes, predicate: Function, negate: bool, stored: bool) -> Result:
    now, failures = _row_holds(changes.key, changes.value, predicate, negate)
    value = changes.value.take(np.where(now, np.arange(changes.rows), -1))
    if changes.old is None:
        return _without(failures if stored else [], changes.with_value(value)), failures
    was, unknown = _row_holds(changes.key, changes.old, predicate, negate)
    old = changes.old.take(np.where(was, np.arange(changes.rows), -1))
    there = now | was
    if stored:
        there[rows_of(unknown)] = True
        there[rows_of(failures)] = False
    return changes.with_value(value, old).where(there), failures


def rows_of(failures: list[Failure]) -> list[int]:
    return [failure.row for failure in failures]


def _good(changes: Changes, failures: list[Failure]) -> Result:
    return _without(failures, changes), failures


def _without(failures: list[Failure], changes: Changes) -> Changes:
    return changes.without(rows_of(failures)) if failures else changes


def _row_holds(
    key: Values, value: Values, predicate: Function, negate: bool
) -> tuple[np.ndarray, list[Failure]]:
    rows = np.flatnonzero(~value.missing())
    mask, failures = holds(predicate, key.take(rows), value.take(rows))
    keep = mask != negate
    keep[rows_of(failures)] = False
    result = np.zeros(value.rows, bool)
    result[rows] = keep
    return result, [f.at(rows[f.row]) for f in failures]


def records_of(changes: Changes) -> Changes:
    """The changes of a table as records of a stream, without the columns that only operators on tables read.

    A late version of a versioned table is a record; a version that its own input record overtakes is not.
    """
    mark = changes.extra.get(BEHIND)
    records = changes if mark is None else changes.where(np.asarray(mark) != OVERTAKEN)
    return replace(records, old=None, extra={})


def map_values_stream(changes: Changes, mapper: Function) -> Result:
    outcome = evaluate(mapper, changes.key, value=changes.value)
    return _good(changes.with_value(outcome.values), outcome.failures)


def map_values_table(changes: Changes, mapper: Function, stored: bool) -> Result:
    now = evaluate_where(~changes.value.missing(), mapper, changes.key, value=changes.value)
    was = None
    if changes.old is not None:
        was = evaluate_where(~changes.old.missing(), mapper, changes.key, value=changes.old).values
    return _without(now.failures if stored else [], changes.with_value(now.values, was)), now.failures


def select_key(changes: Changes, mapper: Function) -> Result:
    outcome = evaluate(mapper, changes.key, value=changes.value)
    return _good(replace(changes, key=outcome.values), outcome.failures)


def map_records(changes: Changes, mapper: Function) -> Result:
    """(key, value) → (key', value')."""
    outcome = evaluate(mapper, changes.key, value=changes.value)
    keys, values, failures = _pairs(outcome.values.objects(), outcome.failures)
    return _good(replace(changes, key=Values(objects=keys), value=Values(objects=values)), failures)


def _pairs(objects: list[Any], failures: list[Failure]) -> tuple[list[Any], list[Any], list[Failure]]:
    failed = {failure.row for failure in failures}
    keys: list[Any] = []
    values: list[Any] = []
    for row, pair in enumerate(objects):
        if row in failed:
            pair = (None, None)
        elif not isinstance(pair, tuple | list) or len(pair) != 2:
            wrong = TypeError(f"expected a pair (key, value), got {type(pair).__name__}")
            failures = [*failures, Failure(row, wrong, "mapper")]
            pair = (None, None)
        keys.append(pair[0])
        values.append(pair[1])
    return keys, values, failures


def flat_map_values(changes: Changes, mapper: Function) -> Result:
    outcome = evaluate(mapper, changes.key, value=changes.value)
    if mapper.expression is not None:
        rows, items = _exploded(outcome.values.series())
        return changes.take(rows).with_value(Values(series=items)), outcome.failures
    rows, flat, failures = _flattened(outcome.values.objects(), outcome.failures)
    return changes.take(rows).with_value(Values(objects=flat)), failures


def flat_map(changes: Changes, mapper: Function) -> Result:
    outcome = evaluate(mapper, changes.key, value=changes.value)
    rows, flat, failures = _flattened(outcome.values.objects(), outcome.failures)
    keys, values, bad = _pairs(flat, [])
    made = replace(changes.take(rows), key=Values(objects=keys), value=Values(objects=values))
    if not bad:
        return made, failures
    # A record with an item that is not a pair gives no result, and fails once.
    first = {int(rows[f.row]): f.error for f in reversed(bad)}
    failures = failures + [Failure(row, error, "mapper") for row, error in sorted(first.items())]
    return made.where(~np.isin(rows, list(first))), failures


def _exploded(lists: pl.Series) -> tuple[np.ndarray, pl.Series]:
    """The row that each item of the lists belongs to, and the items."""
    if lists.dtype == pl.Null:
        return np.empty(0, np.int64), lists.clear()
    if not isinstance(lists.dtype, pl.List):
        step = "let it give a list for each record, for instance pl.col('items') or pl.concat_list('a', 'b')"
        raise refuse("CS-501", f"a flat_map_values expression gave {lists.dtype}, not lists", step)
    counts = lists.list.len().fill_null(0).to_numpy()
    rows = np.repeat(np.arange(len(lists)), counts)
    return rows, lists.filter(pl.Series(counts > 0)).explode(empty_as_null=False)


def _flattened(objects: list[Any], failures: list[Failure]) -> tuple[np.ndarray, list[Any], list[Failure]]:
    flat: list[Any] = []
    counts = []
    failed = {failure.row for failure in failures}
    for row, items in enumerate(objects):
        start = len(flat)
        if items is not None and row not in failed:
            try:
                flat.extend(_items(items))
            except Exception as error:
                del flat[start:]
                failures = [*failures, Failure(row, raised(error), "mapper")]
        counts.append(len(flat) - start)
    return np.repeat(np.arange(len(objects)), counts), flat, failures


def _items(given: Any) -> Any:
    """The items that a function returned for a record; text is one value, not its characters."""
    if isinstance(given, str | bytes | bytearray | Mapping):
        raise TypeError(f"expected a list of values or the like, got one {type(given).__name__}")
    return given


def peek(changes: Changes, action: Function) -> Result:
    return _good(changes, evaluate(action, changes.key, value=changes.value).failures)


_FAILED = -2


def split(changes: Changes, predicates: tuple[Function | None, ...]) -> Result:
    """Adds the branch of each record as the extra column ``branch``; −1: no branch."""
    branch = np.full(changes.rows, -1, np.int64)
    failures: list[Failure] = []
    for index, predicate in enumerate(predicates):
        rows = np.flatnonzero(branch == -1)
        if predicate is None:
            branch[rows] = index
            continue
        mask, bad = holds(predicate, changes.key.take(rows), changes.value.take(rows))
        branch[rows[mask]] = index
        branch[rows[rows_of(bad)]] = _FAILED
        failures.extend(f.at(rows[f.row]) for f in bad)
    return _good(replace(changes, extra={**changes.extra, "branch": branch}), failures)


def branch_of(changes: Changes, index: int) -> Changes:
    taken = changes.where(changes.extra["branch"] == index)
    return replace(taken, extra={k: v for k, v in taken.extra.items() if k != "branch"})
