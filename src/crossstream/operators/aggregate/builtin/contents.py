"""What is in windows whose bounds depend on the records, and built-in aggregates of it, a column at a time.

    law    the aggregate of a window is what its records give one after the other; where sessions are joined, those of
           the earlier session come first

While records are taken, only the *contents* of windows are noted: aggregates of the store, and rows, in order. At the
end of the batch the parts run once over the rows of all windows that are wanted. A row counts in each of its windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl

from crossstream.columns.evaluate import Failure
from crossstream.columns.values import Values, concat_values, nulls
from crossstream.operators.aggregate.builtin.composition import AggregateParts, PartKey, beyond
from crossstream.operators.aggregate.builtin.counts import WholeSum
from crossstream.operators.aggregate.builtin.parts import PartRows, State
from crossstream.operators.aggregate.folding import STATE, Aggregated, HeldWindows
from crossstream.serdes import arrays
from crossstream.serdes.json.plain import SchemaJson
from crossstream.storage.columns import Column, concat, take, take_or_null
from crossstream.storage.sorted_run import begins_of, places_of

CHUNK = 1 << 18
"""Rows of windows that are folded at a time."""

States = Mapping[str, Column]
"""The columns of states, as in `AggregateParts.layout`."""


Contents: TypeAlias = tuple[list[int], int, tuple[int, ...]]
"""Elements, how many of them count, and the sums that may leave 64 bits.

An element is a row of the batch, or an aggregate of the store, as −1 less its number. Windows that were copied share
the list; one that continues where another has continued takes a copy.
"""


class LargeSum(NamedTuple):
    """A sum that may leave 64 bits: the number of each row and of each aggregate of the store, and its bounds."""

    rows: list[int]
    held: list[int]
    least: int
    most: int


@dataclass(slots=True)
class Chains:
    """Rows that are folded with several results: ``picked``: the row of each; ``numbers``: what it is the result of.

    ``begins``: where chains begin; ``held``: the aggregates of the store before them; −1: nothing.
    """

    rows: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    picked: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def add(self, numbers: list[int], found: list[Contents]) -> list[int]:
        """Adds contents that share a list; gives the numbers of what it cannot take: joined sessions, no rows."""
        elements, longest = found[0][0], max(length for _, length, _ in found)
        head = int(elements[0] < 0)
        if longest == head or min(elements[head:longest]) < 0:
            return numbers
        first = len(self.rows)
        self.begins.append(first)
        self.held.append(-1 - elements[0] if head else -1)
        self.rows += elements[head:longest]
        alone = []
        for number, (_, length, _) in zip(numbers, found, strict=True):
            if length == head:
                alone.append(number)
            else:
                self.picked.append(first + length - head - 1)
                self.numbers.append(number)
        return alone


@dataclass(slots=True)
class WindowContents:
    """Notes contents. ``items``: the aggregated fields of the rows; ``failures``: those of rows that have none."""

    parts: AggregateParts
    items: Sequence[pl.Series]
    failures: Sequence[Failure]
    _held: States = field(default_factory=dict)
    _failed: Mapping[int, Failure] = field(default_factory=dict)
    _sums: Sequence[LargeSum] = ()

    @property
    def by_record(self) -> bool:
        """Whether a row may fail that has all fields."""
        return bool(self._sums)

    @property
    def in_order(self) -> bool:
        return True

    # -- a record at a time ----------------------------------------------------------------------------

    def read(self, held: HeldWindows) -> list[Contents]:
        self._held = self._unpacked(held.states)
        self._failed = {failure.row: failure for failure in self.failures}
        self._sums = list(self._large_sums())
        large = bool(self._sums)
        totals = zip(*(one.held for one in self._sums), strict=True) if large else [()] * len(held.group)
        return [([-1 - number], 1, one) for number, one in enumerate(totals)]

    def add(self, row: int, aggregate: Contents | None) -> Contents:
        if row in self._failed:
            raise self._failed[row].error
        elements, length, totals = aggregate or ([], 0, (0,) * len(self._sums))
        if self._sums:
            totals = self._total(totals, tuple(one.rows[row] for one in self._sums))
        if len(elements) > length:
            elements = elements[:length]
        elements.append(row)
        return elements, length + 1, totals

    def merge(self, row: int, aggregates: Sequence[Contents]) -> Contents:
        elements, length, totals = aggregates[0]
        for others, count, other_totals in aggregates[1:]:
            totals = self._total(totals, other_totals)
            if len(elements) > length:
                elements = elements[:length]
            elements += others[:count]
            length += count
        return elements, length, totals

    def copy(self, aggregate: Contents) -> Contents:
        return aggregate

    def _total(self, left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
        made = tuple(one + other for one, other in zip(left, right, strict=True))
        for total, one in zip(made, self._sums, strict=True):
            if not one.least <= total <= one.most:
                raise beyond()
        return made

    def _large_sums(self) -> Iterator[LargeSum]:
        states = self.parts.states(self._held)
        for key, part in self.parts.parts.items():
            if isinstance(part, WholeSum) and key[1] is not None:
                numbers, held = part.numbers(self.items[key[1]]), part.of_bits(states[key][0])
                limits = np.iinfo(numbers.dtype)
                if sum(np.abs(one.astype(np.float64)).sum() for one in (numbers, held)) >= limits.max / 2:
                    yield LargeSum(numbers.tolist(), held.tolist(), int(limits.min), int(limits.max))

    # -- in columns ------------------------------------------------------------------------------------

    def values(self, aggregates: list[Contents | None]) -> Aggregated:
        there = [number for number, one in enumerate(aggregates) if one is not None]
        made, elements, begins = list[Aggregated](), list[int](), list[int]()
        for number in there:
            one = aggregates[number]
            assert one is not None
            begins.append(len(elements))
            elements += one[0][: one[1]]
            if len(elements) >= CHUNK or number == there[-1]:
                firsts = np.zeros(len(elements), bool)
                firsts[begins] = True
                made.append(self.folded(np.array(elements, np.int64), firsts))
                elements, begins = [], []
        if not made:
            return Aggregated(nulls(len(aggregates), self._serde), {STATE: arrays.null_rows(len(aggregates))})
        place = places_of(np.array(there, np.int64), len(aggregates))
        states = take_or_null(concat([one.extra[STATE] for one in made]), place)
        return Aggregated(concat_values([one.values for one in made]).take(place), {STATE: states})

    def shown(self, aggregates: list[Contents | None]) -> Values:
        # Contents that continue one another share a list. It is folded once, with a result after each of them.
        chains: dict[int, list[int]] = {}
        for number, one in enumerate(aggregates):
            if one is not None:
                chains.setdefault(id(one[0]), []).append(number)
        made, places, alone = list[Values](), list[int](), list[int]()
        chunk = Chains()
        for numbers in chains.values():
            alone += chunk.add(
                numbers, [one for number in numbers if (one := aggregates[number]) is not None]
            )
            if len(chunk.rows) >= CHUNK:
                made.append(self._picked(chunk))
                places += chunk.numbers
                chunk = Chains()
        if chunk.rows:
            made.append(self._picked(chunk))
            places += chunk.numbers
        made.append(self.values([aggregates[number] for number in alone]).values)
        return concat_values(made).take(places_of(np.array(places + alone, np.int64), len(aggregates)))

    def _picked(self, chains: Chains) -> Values:
        begins = np.zeros(len(chains.rows), bool)
        begins[chains.begins] = True
        picked, place = np.unique(np.array(chains.picked, np.int64), return_inverse=True)
        results, _ = self._run(
            np.array(chains.rows, np.int64), begins, np.array(chains.held, np.int64), picked
        )
        return Values(self._serde, series=self.parts.visible(results)).take(place)

    def folded(self, elements: np.ndarray, begins: np.ndarray) -> Aggregated:
        # An aggregate of the store begins a piece, and so do contents; the pieces of contents are merged.
        pieces = begins | (elements < 0)
        heads = elements[pieces]
        held = np.where(heads < 0, -1 - heads, -1)
        rows = np.flatnonzero(elements >= 0)
        piece = (np.cumsum(pieces) - 1)[rows]
        first = begins_of(piece)
        with_rows = piece[first]
        results, states = self._run(elements[rows], first, held[with_rows])
        if len(with_rows) < len(held):
            place = places_of(with_rows, len(held))
            place = np.where(place < 0, len(with_rows) + held, place)
            states = {name: take(concat([one, self._held[name]]), place) for name, one in states.items()}
        if len(with_rows) < begins.sum() or not begins[pieces].all():
            states = self._joined(states, begins[pieces])
            of_part = self.parts.states(states)
            results = {key: part.result(of_part[key]) for key, part in self.parts.parts.items()}
        shown = Values(self._serde, series=self.parts.visible(results))
        return Aggregated(shown, {STATE: self._packed(states, shown.rows)})

    def _run(
        self, rows: np.ndarray, begins: np.ndarray, held: np.ndarray, picked: np.ndarray | None = None
    ) -> tuple[dict[PartKey, pl.Series], States]:
        """The results and states after rows. ``held``: what of the store each group begins with; −1: nothing."""
        if not len(rows):
            return {}, {name: take(column, held) for name, column in self._held.items()}
        mine = PartRows.of(begins, picked)
        items = [series.gather(rows) for series in self.items]
        before = self.parts.states({name: _or_nothing(column, held) for name, column in self._held.items()})
        results, after = dict[PartKey, pl.Series](), dict[PartKey, State]()
        try:
            for key, part in self.parts.parts.items():
                field = None if key[1] is None else items[key[1]]
                results[key], after[key] = part.run(field, mine, before[key])
        except OverflowError:
            raise beyond("a sum of Decimals has more than 38 digits") from None
        return results, self.parts.columns(after)

    def _joined(self, states: States, begins: np.ndarray) -> States:
        """One state for each group of states: neighbours are merged until each has one."""
        while not begins.all():
            nth = np.arange(len(begins)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
            right = np.flatnonzero(nth % 2 == 1)
            sides = [{name: take(one, at) for name, one in states.items()} for at in (right - 1, right)]
            merged = self.parts.merged(*sides)[1]
            rows = np.arange(len(begins))
            rows[right - 1] = len(begins) + np.arange(len(right))
            kept = np.flatnonzero(nth % 2 == 0)
            states = {name: take(concat([one, merged[name]]), rows[kept]) for name, one in states.items()}
            begins = begins[kept]
        return states

    @property
    def _serde(self) -> SchemaJson:
        return SchemaJson(self.parts.aggregates.dtype)

    @property
    def _state_serde(self) -> SchemaJson:
        types = {"int64": pl.Int64(), "bytes": pl.Binary()}
        return SchemaJson(pl.Struct({name: types[kind] for name, kind in self.parts.layout}))

    def _packed(self, states: States, rows: int) -> Column:
        columns = {name: pl.Series(one) for name, one in states.items()}
        return self._state_serde.encode_series(arrays.struct_of(columns, rows))

    def _unpacked(self, packed: Column) -> States:
        if not len(packed):
            return {
                name: np.empty(0, np.int64) if kind == "int64" else arrays.null_rows(0)
                for name, kind in self.parts.layout
            }
        frame = self._state_serde.decode_series(packed).struct.unnest()
        return {
            name: frame[name].to_numpy()
            if kind == "int64"
            else frame[name].to_arrow().cast(arrays.LARGE_BINARY)
            for name, kind in self.parts.layout
        }


def _or_nothing(column: Column, rows: np.ndarray) -> Column:
    """The rows of a state column; −1: the state of nothing."""
    if isinstance(column, np.ndarray):
        return np.append(column, 0)[rows]
    return take_or_null(column, rows)
