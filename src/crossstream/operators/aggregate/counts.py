"""How the rows of a group change its number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import Failure
from crossstream.columns.values import Values
from crossstream.operators.aggregate.folding import Aggregated, Folded, HeldWindows, WindowFold
from crossstream.operators.aggregate.kernel import SIGN, last_rows, times_after
from crossstream.serdes.contract import EngineSerde
from crossstream.tables.rows import TableRows


@dataclass(frozen=True, slots=True)
class Count:
    """The number of records of each group, or of rows of a grouped table. A count of 0 stays (Kafka's rule)."""

    serde: EngineSerde

    def fold(self, rows: Changes, begins: np.ndarray, before: TableRows, every: bool) -> Folded:
        signs = np.asarray(rows.extra[SIGN], np.int64) if SIGN in rows.extra else np.ones(rows.rows, np.int64)
        counts = self._counts(before.values)
        total = np.cumsum(signs)
        starts = np.flatnonzero(begins)
        group = np.cumsum(begins) - 1
        total += (counts - total[starts] + signs[starts])[group]
        picked = np.arange(rows.rows) if every else last_rows(begins)
        made = (
            Values(series=pl.Series(total[picked]))
            if self.serde.dtype
            else Values(objects=total[picked].tolist())
        )
        return Folded(picked, made, times_after(rows.ts, begins, before, every))

    def in_windows(self, rows: Changes) -> WindowFold:
        return WindowCounts(self.serde)

    def _counts(self, values: Values) -> np.ndarray:
        if self.serde.dtype is None:
            return np.array([count or 0 for count in values.objects()], np.int64)
        return values.series().cast(pl.Int64).fill_null(0).to_numpy()


@dataclass(slots=True)
class WindowCounts:
    """Counts rows."""

    serde: EngineSerde
    failures: Sequence[Failure] = ()
    by_record: bool = False
    in_order: bool = False
    _held: Sequence[int] = ()

    def read(self, held: HeldWindows) -> list[Any]:
        self._held = held.values.objects()
        return list(self._held)

    def add(self, row: int, aggregate: Any) -> Any:
        return (aggregate or 0) + 1

    def merge(self, row: int, aggregates: Sequence[Any]) -> Any:
        return sum(aggregates)

    def copy(self, aggregate: Any) -> Any:
        return aggregate

    def values(self, aggregates: list[Any]) -> Aggregated:
        if self.serde.dtype is None:
            return Aggregated(Values(objects=aggregates))
        return Aggregated(Values(series=pl.Series(aggregates, dtype=pl.Int64)))

    def shown(self, aggregates: list[Any]) -> Values:
        return self.values(aggregates).values

    def folded(self, elements: np.ndarray, begins: np.ndarray) -> Aggregated:
        counts = np.ones(len(elements), np.int64)
        counts[elements < 0] = np.array(self._held, np.int64)[-1 - elements[elements < 0]]
        return self.values(np.add.reduceat(counts, np.flatnonzero(begins)).tolist())
