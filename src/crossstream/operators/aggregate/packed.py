"""Built-in aggregates whose state is one value: of windows that become one, and of those copied from each other.

What takes an aggregate for a value (`sessions.py`, `sliding.py`) takes the whole state for it. The visible value is
made of the state where a change is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from crossstream.columns.changes import Changes
from crossstream.columns.functions import Function
from crossstream.columns.values import Values, nulls
from crossstream.operators.aggregate.columns import Columns
from crossstream.operators.aggregate.folds import FoldSteps
from crossstream.operators.aggregate.kernel import Folded, Kept
from crossstream.operators.aggregate.steps import Steps
from crossstream.operators.table.kernel import Rows
from crossstream.serdes import arrays
from crossstream.serdes.json_plain import SchemaJson
from crossstream.storage.columns import Column, concat, take

STATE = "state"
PACKED = ((STATE, "bytes"),)
"""The column of the state, as in a `Layout`."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A `Fold` of states; they are JSON with the columns of `Parts.layout`."""

    columns: Columns

    @property
    def serde(self) -> SchemaJson:
        """The serde of the states."""
        types = {"int64": pl.Int64(), "bytes": pl.Binary()}
        return SchemaJson(pl.Struct({name: types[kind] for name, kind in self.columns.parts.layout}))

    @property
    def by_record(self) -> bool:
        return self.columns.parts.aggregates.in_order

    def fold(self, rows: Changes, begins: np.ndarray, before: Rows, every: bool) -> Folded:
        assert not every, "records are applied one after the other where each has a result"
        state = self._unpacked(before.values)
        folded = self.columns.fold(
            rows, begins, Kept(before.present, before.values, before.ts, state=state), every
        )
        values = self._packed(folded.state, len(folded.rows)) if len(folded.rows) else nulls(0, self.serde)
        return replace(folded, values=values, state={})

    def merge(self, before: Rows, begins: np.ndarray) -> Rows:
        starts = np.flatnonzero(begins)
        lengths = np.diff(starts, append=len(begins))
        columns = self._unpacked(before.values)
        state = {name: take(column, starts) for name, column in columns.items()}
        for nth in range(1, int(lengths.max(initial=0))):
            longer = np.flatnonzero(lengths > nth)
            one = {name: take(column, longer) for name, column in state.items()}
            other = {name: take(column, starts[longer] + nth) for name, column in columns.items()}
            merged = self.columns.parts.merged(one, other)[1]
            rows = np.arange(len(starts))
            rows[longer] = len(starts) + np.arange(len(longer))
            state = {name: take(concat([column, merged[name]]), rows) for name, column in state.items()}
        made = self._packed(state, len(starts))
        return Rows(np.ones(len(starts), bool), made, np.maximum.reduceat(before.ts, starts))

    def steps(self, rows: Changes, merger: Function | None) -> Steps:
        return FoldSteps(self, self.serde, rows)

    def visible(self, states: Values) -> Values:
        """What readers of the table see; null for null."""
        parts, there = self.columns.parts, np.flatnonzero(~states.missing())
        state = parts.states(self._unpacked(states.take(there)))
        shown = parts.visible({key: part.result(state[key]) for key, part in parts.parts.items()})
        place = np.full(states.rows, -1)
        place[there] = np.arange(len(there))
        return Values(SchemaJson(parts.aggregates.dtype), series=shown).take(place)

    def shown(self, changes: Changes) -> Changes:
        """The changes with visible values, and their states beside them."""
        if not changes.rows:
            return replace(changes, value=nulls(0, self.serde))
        old = None if changes.old is None else self.visible(changes.old)
        extra = {**changes.extra, STATE: changes.value.wire(self.serde)}
        return replace(changes, value=self.visible(changes.value), old=old, extra=extra)

    def _packed(self, state: Mapping[str, Column], rows: int) -> Values:
        return Values(
            self.serde, series=arrays.struct_of({name: pl.Series(one) for name, one in state.items()}, rows)
        )

    def _unpacked(self, values: Values) -> dict[str, Column]:
        """The state columns; those of nothing for null."""
        found = values.series().struct
        return {
            name: found.field(name).fill_null(0).to_numpy()
            if kind == "int64"
            else found.field(name).to_arrow().cast(arrays.LARGE_BINARY)
            for name, kind in self.columns.parts.layout
        }
