"""Built-in aggregates, a column at a time: how the rows of a batch change the aggregates of their groups.

    law    after any number of batches, cut anywhere, each group has what its rows give one after the other; of a table,
           what the rows that it has now give, in the order in which they last changed

Each aggregate is made of parts (`parts.py`), which have state of their own beside the visible value. Sums and counts of
tables are taken back by arithmetic. Where that is not enough, the rows of the group are read again (`group_rows.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import Failure, evaluate
from crossstream.columns.order import running_maximum_of, same_trigger
from crossstream.columns.values import Values
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.operators.aggregate.builtin.composition import ROWS, AggregateParts, PartKey, beyond
from crossstream.operators.aggregate.builtin.contents import WindowContents
from crossstream.operators.aggregate.builtin.counts import Counted, WholeSum
from crossstream.operators.aggregate.builtin.exact import ExactSum
from crossstream.operators.aggregate.builtin.extremes import Extreme
from crossstream.operators.aggregate.builtin.group_rows import GroupRows
from crossstream.operators.aggregate.builtin.parts import AggregatePart, PartRows, State, empty_state
from crossstream.operators.aggregate.folding import Folded, WindowFold
from crossstream.operators.aggregate.kernel import SIGN, GroupState, times_after
from crossstream.serdes import arrays
from crossstream.serdes.json.plain import SchemaJson
from crossstream.storage.columns import concat, take
from crossstream.tables.rows import TableRows

BEYOND = "sum"
"""The role of a failure at which a sum leaves 64 bits."""


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """Built-in aggregates as a `Fold`. ``rows``: the rows of the groups of a table, where they are kept."""

    parts: AggregateParts
    kept: GroupRows | None = None

    def fold(self, rows: Changes, begins: np.ndarray, before: TableRows, every: bool) -> Folded:
        assert isinstance(before, GroupState), "the state is kept beside the value"
        items, failures = self.items(rows)
        good = np.ones(rows.rows, bool)
        good[[failure.row for failure in failures]] = False
        group, groups, held = np.cumsum(begins) - 1, np.arange(len(before.ts)), before
        while True:
            at = np.flatnonzero(good)
            there, starts = groups, np.flatnonzero(begins)
            if len(at) < rows.rows:
                there, starts = np.unique(group[at], return_index=True)
            mine = self._rows(rows, at, starts, every)
            before = _of_groups(held, there) if len(there) < len(groups) else held
            states = self.parts.states(before.state)
            fields = items if len(at) == rows.rows else [one.gather(at) for one in items]
            wrong = self._beyond(fields, mine, states)
            if not len(wrong):
                break
            failures += [Failure(int(row), beyond(), BEYOND) for row in at[wrong]]
            good[at[wrong]] = False
        if not len(at):
            return Folded(at, Values(objects=[]), at, failures)
        results, after = {}, {}
        try:
            for key, part in self.parts.parts.items():
                results[key], after[key] = self._run(key, part, fields, mine, states[key])
        except OverflowError:
            raise beyond("a sum of Decimals has more than 38 digits") from None
        if self.kept is not None:
            self._read_again(rows.take(at), there, fields, mine, states, results, after)
        picked = at[mine.picked]
        value = self.parts.visible(results)
        if mine.signs is not None:
            gone = results[ROWS] <= 0
            if gone.any():
                value = arrays.null_where(value, gone.to_numpy())
        made = Values(SchemaJson(self.parts.aggregates.dtype), series=value)
        times = self._times(rows.take(at), mine, before, every)
        return Folded(
            picked, made, times, sorted(failures, key=lambda one: one.row), self.parts.columns(after)
        )

    def in_windows(self, rows: Changes) -> WindowFold:
        items, failures = self.items(rows)
        return WindowContents(self.parts, items, failures)

    def items(self, rows: Changes) -> tuple[list[pl.Series], list[Failure]]:
        """What is aggregated of each row; NaN and infinities, which JSON does not have, are failures; −0.0 is 0.0."""
        found, failures = [], {}
        for function in self.parts.aggregates.fields:
            outcome = evaluate(function, rows.key, value=rows.value)
            series = outcome.values.series()
            failures.update({failure.row: failure for failure in reversed(outcome.failures)})
            if series.dtype.is_float() and not series.is_finite().all():
                odd = np.flatnonzero((~series.is_finite()).fill_null(False).to_numpy()).tolist()
                failures.update({row: Failure(row, _odd(series[row]), function.role) for row in odd})
            wanted = None if function.returns is None else function.returns.dtype
            found.append(one_zero(series if wanted in (None, series.dtype) else series.cast(wanted)))
        return found, list(failures.values())

    def _rows(self, rows: Changes, at: np.ndarray, starts: np.ndarray, every: bool) -> PartRows:
        begins = np.zeros(len(at), bool)
        begins[starts] = True
        signs = np.asarray(rows.extra[SIGN], np.int64)[at] if SIGN in rows.extra else None
        return PartRows.of(begins, np.arange(len(at)) if every else None, signs)

    def _beyond(self, fields: list[pl.Series], rows: PartRows, states: Mapping[PartKey, State]) -> np.ndarray:
        """The rows at which a sum of whole numbers leaves 64 bits: the first of each group."""
        wrong = [
            part.beyond(fields[key[1]], rows, states[key])
            for key, part in self.parts.parts.items()
            if isinstance(part, WholeSum) and key[1] is not None
        ]
        return np.unique(np.concatenate(wrong)) if wrong and len(rows.begins) else np.empty(0, np.int64)

    def _run(
        self, key: PartKey, part: AggregatePart, fields: list[pl.Series], rows: PartRows, before: State
    ) -> tuple[pl.Series, State]:
        items = None if key[1] is None else fields[key[1]]
        if rows.signs is not None and not isinstance(part, Extreme | Counted | WholeSum | ExactSum):
            return pl.Series([]), before  # all of their groups are read again
        return part.run(items, rows, before)

    def _read_again(
        self,
        rows: Changes,
        groups: np.ndarray,
        fields: list[pl.Series],
        mine: PartRows,
        states: Mapping[PartKey, State],
        results: dict[PartKey, pl.Series],
        after: dict[PartKey, State],
    ) -> None:
        """Results of the rows that groups have now, for what arithmetic cannot take back."""
        assert self.kept is not None
        events = self.kept.events(rows, groups, mine, fields)
        parts = self.parts.parts.items()
        bound = {key: part for key, part in parts if not isinstance(part, Counted | WholeSum | ExactSum)}
        wanted = self._to_read_again(bound, len(groups), fields, mine, states)
        if len(wanted):
            found: dict[PartKey, list[tuple[pl.Series, State]]] = {key: [] for key in bound}
            for now in self.kept.alive(events, groups, wanted, mine):
                for key, part in bound.items():
                    nothing = empty_state(part, len(now.rows.starts))
                    found[key].append(part.run(now.items[key[1] or 0], now.rows, nothing))
            for key, chunks in found.items():
                made = pl.concat([one for one, _ in chunks])
                state = [concat(list(columns)) for columns in zip(*(one for _, one in chunks), strict=True)]
                all_again = len(wanted) == len(groups)
                before = (None, None) if all_again else (results[key], after[key])
                results[key], after[key] = _replaced(before, (made, state), wanted, mine)
        self.kept.put(events, groups)

    def _to_read_again(
        self,
        bound: Mapping[PartKey, AggregatePart],
        groups: int,
        fields: list[pl.Series],
        mine: PartRows,
        states: Mapping[PartKey, State],
    ) -> np.ndarray:
        """The groups whose rows have to be looked at; with extremes alone, those that may have lost theirs."""
        lost = [
            part.lost(fields[key[1] or 0], mine, states[key])
            for key, part in bound.items()
            if isinstance(part, Extreme)
        ]
        return np.arange(groups) if len(lost) < len(bound) else np.unique(np.concatenate(lost))

    def _times(self, rows: Changes, mine: PartRows, before: GroupState, every: bool) -> np.ndarray:
        """The largest timestamp of each aggregate so far; one of a group without rows begins again."""
        if mine.signs is None:
            return times_after(rows.ts, mine.begins, before, every)
        left = mine.so_far(mine.signs, np.asarray(self.parts.states(before.state)[ROWS][0]))
        row = np.arange(rows.rows - 1)
        again = (left[:-1] <= 0) & ~same_trigger(rows.major, rows.minor, row, row + 1)
        times = rows.ts.copy()
        times[mine.starts] = np.where(
            before.present, np.maximum(times[mine.starts], before.ts), times[mine.starts]
        )
        starts = np.flatnonzero(mine.begins | np.append(False, again))
        return np.asarray(running_maximum_of(times, starts)[mine.picked])


def _replaced(
    before: tuple[pl.Series, State] | tuple[None, None],
    again: tuple[pl.Series, State],
    wanted: np.ndarray,
    mine: PartRows,
) -> tuple[pl.Series, State]:
    """Results and states, with those of the ``wanted`` groups as they were found again; ``before`` None: of all."""
    picked = mine.group[mine.picked]
    theirs = np.isin(picked, wanted)
    ends = np.flatnonzero(np.append(np.diff(picked[theirs]) > 0, True))
    state = [take(column, ends) for column in again[1]]
    if before[0] is None:
        return again[0], state
    result = np.where(theirs, len(picked) + np.cumsum(theirs) - 1, np.arange(len(picked)))
    group = np.arange(len(mine.starts))
    group[wanted] = len(group) + np.arange(len(wanted))
    after = [take(concat([one, other]), group) for one, other in zip(before[1], state, strict=True)]
    return pl.concat([before[0], again[0]]).gather(result), after


def _of_groups(kept: GroupState, groups: np.ndarray) -> GroupState:
    """What is kept of some of the groups."""
    state = {name: take(column, groups) for name, column in kept.state.items()}
    return GroupState(kept.present[groups], kept.values, kept.ts[groups], state=state)


def one_zero(series: pl.Series) -> pl.Series:
    """With 0.0 in place of −0.0, inside lists and structs too.

    They are equal, so which of them is the largest would depend on the rows of other groups in the batch.
    """
    if series.dtype.is_float():
        zero = series == 0
        return (
            series.zip_with((~zero).fill_null(True), pl.zeros(1, series.dtype, eager=True))
            if zero.any()
            else series
        )
    expression = _with_one_zero(pl.col("v"), series.dtype)
    return (
        series
        if expression is None
        else series.alias("v").to_frame().select(expression.alias(series.name)).to_series()
    )


def _with_one_zero(value: pl.Expr, dtype: Any) -> pl.Expr | None:
    """The expression for values of this type; None where it has no floats."""
    if dtype.is_float():
        return pl.when(value == 0).then(pl.lit(0.0, dtype)).otherwise(value)
    if isinstance(dtype, pl.List):
        inner = _with_one_zero(pl.element(), dtype.inner)
        return None if inner is None else value.list.eval(inner)
    if not isinstance(dtype, pl.Struct):
        return None
    found = {
        field.name: _with_one_zero(value.struct.field(field.name), field.dtype) for field in dtype.fields
    }
    if not any(one is not None for one in found.values()):
        return None
    fields = [(value.struct.field(name) if one is None else one).alias(name) for name, one in found.items()]
    return pl.when(value.is_not_null()).then(pl.struct(fields))


def _odd(value: float) -> CrossStreamError:
    what = f"the aggregated field is {value!r}, which JSON does not have"
    return refuse("CS-501", what, "leave it out: cs.agg.sum(pl.when(pl.col(…).is_finite()).then(pl.col(…)))")
