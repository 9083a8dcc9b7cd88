"""How the rows of a group change its aggregate: by the user's functions, one row after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import Failure, raised
from crossstream.columns.functions import Function
from crossstream.columns.values import Values
from crossstream.errors import SerdeError
from crossstream.operators.aggregate.folding import Aggregated, Folded, HeldWindows, WindowFold
from crossstream.operators.aggregate.kernel import SIDE, SIGN
from crossstream.operators.aggregate.refused import RefusedRows
from crossstream.serdes import calls
from crossstream.serdes.contract import EngineSerde
from crossstream.tables.rows import TableRows


@dataclass(frozen=True, slots=True)
class Calls:
    """The user's functions. ``adders``: one for each grouped stream; ``initializer`` None: the first value begins.
    ``merger``: makes one aggregate of those of two sessions.

    A function that returns None deletes the aggregate; the next row begins a new one. A row that has nothing to be
    taken from is passed over. A row that a function fails on, or whose aggregate the store's serde refuses, changes
    nothing. ``skips``: such rows do not stop the application; ``refused``: those of a table that were not added.
    """

    serde: EngineSerde
    adders: Sequence[Function]
    subtractor: Function | None = None
    initializer: Callable[[], Any] | None = None
    merger: Function | None = None
    skips: bool = False
    refused: RefusedRows | None = None

    def fold(self, rows: Changes, begins: np.ndarray, before: TableRows, every: bool) -> Folded:
        if self.refused is None or not self.refused.begin():
            folded = self._folded(rows, begins, before, every, written=False)
            if not self.skips or not (folded.failures or self._refuses(folded.values)):
                return folded
        return self._folded(rows, begins, before, every, written=True)

    def _refuses(self, values: Values) -> bool:
        try:
            values.wire(self.serde)
        except SerdeError:
            return True
        return False

    def _folded(
        self, rows: Changes, begins: np.ndarray, before: TableRows, every: bool, written: bool
    ) -> Folded:
        """``written``: each aggregate is written at once, so that a row which fails leaves the one before it.

        A function may have changed an aggregate in place before it failed, or the serde refuses it.
        """
        functions = [*self.adders, *([] if self.subtractor is None else [self.subtractor])]
        needs_key = any(function.with_key for function in functions)
        keys = rows.key.objects() if needs_key else [None] * rows.rows
        values = rows.value.own_objects()
        function_of = self.functions(rows)
        refused = self.refused if written else None
        row_keys = [b""] * rows.rows if refused is None else refused.keys(rows)
        aggregates, times = before.values.own_objects(), before.ts.tolist()
        stored = before.values.wire(self.serde).to_pylist() if written else []
        starts, triggers = begins.tolist(), list(zip(rows.major.tolist(), rows.minor.tolist(), strict=True))
        picked: list[int] = []
        results: list[Any] = []
        ts: list[int] = []
        failures: list[Failure] = []
        group, aggregate, newest, last_trigger, wire = -1, None, -1, None, None
        good = False
        for row, (value, time) in enumerate(zip(values, rows.ts.tolist(), strict=True)):
            if starts[row]:
                group += 1
                aggregate, newest, good = aggregates[group], times[group], False
                newest = newest if aggregate is not None else -1
                wire = stored[group] if written else None
            elif aggregate is None and triggers[row] != last_trigger:
                newest = -1
            last_trigger = triggers[row]
            function = function_of[row]
            if refused is not None and function is self.subtractor and refused.passes((group, row_keys[row])):
                continue
            try:
                made = self.applied(function, keys[row], aggregate, value)
                result = self._kept(made, written) if every or written else made
            except BaseException as error:
                failures.append(Failure(row, _cause(error), function.role))
                if isinstance(error, KeyboardInterrupt):
                    break
                if written:
                    aggregate = None if wire is None else self.serde.deserialize(wire)
                if refused is not None and function is not self.subtractor:
                    refused.add((group, row_keys[row]))
                continue
            aggregate, newest, wire = made, max(newest, time), result
            if good and not every:  # the last result of a group replaces those before
                picked[-1], results[-1], ts[-1] = row, result, newest
            else:
                picked.append(row)
                results.append(result)
                ts.append(newest)
            good = True
        made_values = (
            Values(self.serde, wire=pa.array(results, pa.large_binary()))
            if written
            else Values(objects=results)
        )
        if refused is not None:
            refused.put()
        return Folded(np.array(picked, np.int64), made_values, np.array(ts, np.int64), failures)

    def _kept(self, aggregate: Any, written: bool) -> Any:
        """An aggregate that the function cannot change any more, or its bytes. Raises `_Refusal`."""
        try:
            if not written:
                return self.frozen(aggregate)
            return None if aggregate is None else calls.serialize(self.serde, aggregate)
        except SerdeError as error:
            raise _Refusal(error) from None

    def in_windows(self, rows: Changes) -> WindowFold:
        return WindowCalls(self, rows)

    def functions(self, rows: Changes) -> list[Function]:
        """The function of each row."""
        if SIGN in rows.extra:
            assert self.subtractor is not None
            return [self.adders[0] if sign > 0 else self.subtractor for sign in rows.extra[SIGN].tolist()]
        if SIDE in rows.extra:
            return [self.adders[side] for side in rows.extra[SIDE].tolist()]
        return [self.adders[0]] * rows.rows

    def applied(self, function: Function, key: Any, aggregate: Any, value: Any) -> Any:
        if aggregate is None:
            if function is self.subtractor:
                return None
            if self.initializer is None:
                return value
            aggregate = self.initializer()
        assert function.call is not None
        return function.call(key, aggregate, value) if function.with_key else function.call(aggregate, value)

    def frozen(self, aggregate: Any) -> Any:
        """The aggregate of this moment: the function may change it in place for the next row."""
        if aggregate is None or isinstance(aggregate, str | int | float | bytes | bool):
            return aggregate
        return self.serde.deserialize(calls.serialize(self.serde, aggregate))


class _Refusal(Exception):
    """The store's serde refuses an aggregate: no error that the user's function raised."""

    def __init__(self, error: SerdeError) -> None:
        super().__init__(error)
        self.error = error


def _cause(error: BaseException) -> BaseException:
    return error.error if isinstance(error, _Refusal) else raised(error)


class WindowCalls:
    """Calls the user's functions. Merging begins with the initializer's aggregate, as in Kafka."""

    __slots__ = ("_calls", "_functions", "_keys", "_values")
    failures: Sequence[Failure] = ()
    by_record = True
    in_order = True

    def __init__(self, calls: Calls, rows: Changes) -> None:
        self._calls = calls
        self._functions = calls.functions(rows)
        functions = (*calls.adders, *(() if calls.merger is None else (calls.merger,)))
        needs_key = any(function.with_key for function in functions)
        self._keys = rows.key.objects() if needs_key else [None] * rows.rows
        self._values = rows.value.own_objects()

    def read(self, held: HeldWindows) -> list[Any]:
        return held.values.own_objects()

    def add(self, row: int, aggregate: Any) -> Any:
        return self._calls.applied(self._functions[row], self._keys[row], aggregate, self._values[row])

    def merge(self, row: int, aggregates: Sequence[Any]) -> Any:
        merger, initializer = self._calls.merger, self._calls.initializer
        assert merger is not None
        assert merger.call is not None
        rest = list(aggregates)
        merged = initializer() if initializer is not None else rest.pop(0)
        for other in rest:
            merged = (
                merger.call(self._keys[row], merged, other) if merger.with_key else merger.call(merged, other)
            )
        return merged

    def copy(self, aggregate: Any) -> Any:
        return self._calls.frozen(aggregate)

    def values(self, aggregates: list[Any]) -> Aggregated:
        return Aggregated(Values(objects=aggregates))

    def shown(self, aggregates: list[Any]) -> Values:
        return self.values(aggregates).values

    def folded(self, elements: np.ndarray, begins: np.ndarray) -> Aggregated:
        raise AssertionError("functions take one record at a time")
