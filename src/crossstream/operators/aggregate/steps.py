"""Aggregating one record at a time, where the records before decide which aggregate it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl

from crossstream.columns.values import Values
from crossstream.serdes import Serde


class Steps(Protocol):
    """Applies records of a batch. An aggregate is what the implementation makes it; None: there is no aggregate."""

    def read(self, values: Values) -> list[Any]:
        """Aggregates of the store."""

    def add(self, row: int, aggregate: Any) -> Any:
        """The aggregate with a row; may change the one that is given."""

    def merge(self, row: int, aggregates: Sequence[Any]) -> Any:
        """One aggregate of those of several sessions, the earliest first; ``row``: the one that joins them."""

    def copy(self, aggregate: Any) -> Any:
        """A copy of the aggregate: a later `add` does not change it."""

    def values(self, aggregates: list[Any]) -> Values:
        """Aggregates as a column."""


@dataclass(frozen=True, slots=True)
class CountSteps:
    """Counts rows."""

    serde: Serde

    def read(self, values: Values) -> list[Any]:
        return values.objects()

    def add(self, row: int, aggregate: Any) -> Any:
        return (aggregate or 0) + 1

    def merge(self, row: int, aggregates: Sequence[Any]) -> Any:
        return sum(aggregates)

    def copy(self, aggregate: Any) -> Any:
        return aggregate

    def values(self, aggregates: list[Any]) -> Values:
        if self.serde.dtype is None:
            return Values(objects=aggregates)
        return Values(series=pl.Series(aggregates, dtype=pl.Int64))


class Components:
    """Numbers the sessions that records end up in, without their aggregates.

    ``of``: for each row, then each session of the store, a number; `roots` gives equal ones to what was merged.
    """

    def __init__(self, rows: int, sessions: int) -> None:
        self._parents = list(range(rows + sessions))
        self._rows = rows

    def read(self, values: Values) -> list[Any]:
        return list(range(self._rows, len(self._parents)))

    def add(self, row: int, aggregate: Any) -> Any:
        if aggregate is not None:
            self._parents[row] = aggregate
        return row if aggregate is None else aggregate

    def merge(self, row: int, aggregates: Sequence[Any]) -> Any:
        for other in aggregates[1:]:
            self._parents[other] = aggregates[0]
        return aggregates[0]

    def copy(self, aggregate: Any) -> Any:
        return aggregate

    def values(self, aggregates: list[Any]) -> Values:
        raise AssertionError("there are no aggregates")

    def roots(self) -> np.ndarray:
        """The number of the session of each row, then of each session."""
        parents = np.array(self._parents, np.int64)
        while not np.array_equal(above := parents[parents], parents):
            parents = above
        return parents
