"""How rows change aggregates: those of groups, in columns, and those of windows whose bounds depend on the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import Failure
from crossstream.columns.values import Values
from crossstream.storage.columns import Column
from crossstream.tables.rows import TableRows

STATE = "state"
"""Extra column: what a store keeps of an aggregate beside its value."""

PACKED = ((STATE, "bytes"),)
"""The column of the state, as in a `Layout`."""


@dataclass(frozen=True, slots=True)
class Folded:
    """``rows``: those after which there is a result to keep; ``values``, ``ts``: the aggregate after each of them.

    ``state``: what the store keeps beside the value, after the last row of each group that has a result.
    """

    rows: np.ndarray
    values: Values
    ts: np.ndarray
    failures: list[Failure] = field(default_factory=list)
    state: Mapping[str, Column] = field(default_factory=dict)


class Fold(Protocol):
    """Applies rows to aggregates: of groups that are known, or of windows whose bounds depend on the records."""

    def fold(self, rows: Changes, begins: np.ndarray, before: TableRows, every: bool) -> Folded:
        """Rows sorted by group, then arrival; ``begins``: where groups begin; ``before``: their aggregates.

        With ``every`` there is a result for each row that did not fail, else for the last of each group.
        """

    def in_windows(self, rows: Changes) -> WindowFold:
        """The rows of a batch, to be applied to the windows that they turn out to belong to."""


WindowKey = tuple[int, int, int]
"""The number of a key, the start and the end."""


class Aggregated(NamedTuple):
    """Aggregates as a column, and the extra columns that the store keeps beside them."""

    values: Values
    extra: Mapping[str, Column] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HeldWindows:
    """Windows of the store. ``group``: the number of the key of each; ``states``: the column `STATE`, if any."""

    group: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    ts: np.ndarray
    values: Values
    states: Column | None

    def numbers(self) -> dict[WindowKey, int]:
        """The number of each window: by key, start and end."""
        keys = zip(self.group.tolist(), self.starts.tolist(), self.ends.tolist(), strict=True)
        return {key: number for number, key in enumerate(keys)}


class WindowFold(Protocol):
    """Applies records of a batch to windows. An aggregate is what the implementation makes it; None: there is none.

    ``failures``: the rows of which it is known that they fail; ``by_record``: others may fail, too, so that the rows
    have to be taken one after the other; ``in_order``: aggregates depend on the order of their rows.
    """

    @property
    def failures(self) -> Sequence[Failure]: ...

    @property
    def by_record(self) -> bool: ...

    @property
    def in_order(self) -> bool: ...

    def read(self, held: HeldWindows) -> list[Any]:
        """Aggregates of the store; called before all else."""

    def add(self, row: int, aggregate: Any) -> Any:
        """The aggregate with a row; may change the one that is given."""

    def merge(self, row: int, aggregates: Sequence[Any]) -> Any:
        """One aggregate of those of several sessions, the earliest first; ``row``: the one that joins them."""

    def copy(self, aggregate: Any) -> Any:
        """A copy of the aggregate: a later `add` does not change it."""

    def values(self, aggregates: list[Any]) -> Aggregated:
        """Aggregates as columns."""

    def shown(self, aggregates: list[Any]) -> Values:
        """Their values alone, of each change in a batch."""

    def folded(self, elements: np.ndarray, begins: np.ndarray) -> Aggregated:
        """The aggregates of all that sessions have; called unless `by_record`.

        ``elements``: row numbers, and the numbers of aggregates of the store as −1 less the number, in order of time;
        ``begins``: where sessions begin.
        """
