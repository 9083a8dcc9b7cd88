"""The parts of what ``agg(…)`` asks for, each once, the columns of their states, and the results made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from crossstream.columns.aggregates import Aggregates, Term
from crossstream.columns.functions import as_plain, select
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.operators.aggregate.builtin.counts import Counted, WholeSum
from crossstream.operators.aggregate.builtin.exact import ExactSum
from crossstream.operators.aggregate.builtin.extremes import Ending, Extreme
from crossstream.operators.aggregate.builtin.lists import Collected
from crossstream.operators.aggregate.builtin.parts import AggregatePart, State
from crossstream.operators.aggregate.builtin.ranked import Ranked
from crossstream.operators.aggregate.builtin.sketch import Sketched
from crossstream.serdes import arrays
from crossstream.storage.columns import Column

PartKey = tuple[str, int | None, int]
"""What a part does, the number of its field, and how many values it lists."""


ROWS: PartKey = ("rows", None, 0)


@dataclass(frozen=True, slots=True)
class AggregateParts:
    """The parts of aggregates, each once, and the columns of their states."""

    aggregates: Aggregates
    parts: Mapping[PartKey, AggregatePart]

    @classmethod
    def of(cls, aggregates: Aggregates) -> AggregateParts:
        found: dict[PartKey, AggregatePart] = {ROWS: Counted()}
        for term in aggregates.terms:
            for kind in () if term.field is None else _PARTS.get(term.kind, (term.kind,)):
                dtype = aggregates.field_types[term.field or 0]
                found.setdefault((kind, term.field, term.limit), _part(kind, dtype, term.limit))
        return cls(aggregates, found)

    @property
    def layout(self) -> tuple[tuple[str, str], ...]:
        """The columns of the states: names and kinds."""
        return tuple(
            (f"state{number}.{nth}", kind)
            for number, part in enumerate(self.parts.values())
            for nth, kind in enumerate(part.kinds)
        )

    def states(self, columns: Mapping[str, Column]) -> dict[PartKey, State]:
        """The state of each part."""
        names = iter(self.layout)
        return {key: [columns[next(names)[0]] for _ in part.kinds] for key, part in self.parts.items()}

    def columns(self, states: Mapping[PartKey, State]) -> dict[str, Column]:
        """The states as columns of the store."""
        flat = [column for key in self.parts for column in states[key]]
        return {name: column for (name, _), column in zip(self.layout, flat, strict=True)}

    def visible(self, results: Mapping[PartKey, pl.Series]) -> pl.Series:
        """The struct of the results; numbers that JSON does not have (0/0, 1/0) are null."""
        terms = [
            self._term(term, results).alias(str(number)) for number, term in enumerate(self.aggregates.terms)
        ]
        frame = pl.DataFrame(terms)
        columns = {name: as_plain(select(one, frame)) for name, one in self.aggregates.columns}
        return arrays.struct_of({name: _finite(column) for name, column in columns.items()}, frame.height)

    def _term(self, term: Term, results: Mapping[PartKey, pl.Series]) -> pl.Series:
        if term.field is None:
            return results[ROWS]
        if term.kind == "count_distinct":
            return results["collect_set", term.field, 0].list.len().cast(pl.Int64)
        if term.kind not in ("sum", "mean"):
            return results[term.kind, term.field, term.limit]
        total, count = results["sum", term.field, 0], results["count", term.field, 0]
        there = count > 0
        made = total if term.kind == "sum" else total.cast(pl.Float64) / count
        return made if there.all() else made.zip_with(there, pl.Series([None], dtype=made.dtype))

    def merged(
        self, left: Mapping[str, Column], right: Mapping[str, Column]
    ) -> tuple[pl.Series, dict[str, Column]]:
        """Two states of each group as one, and its visible value; the rows of ``left`` came first.

        For windows that become one. ``left``, ``right``: the state columns (`layout`). Raises CS-501 where a sum of
        whole numbers is beyond 64 bits.
        """
        one, other = self.states(left), self.states(right)
        try:
            states = {key: part.merged(one[key], other[key]) for key, part in self.parts.items()}
        except OverflowError:
            raise beyond("a sum is beyond 64 bits, or has more than 38 digits") from None
        results = {key: part.result(states[key]) for key, part in self.parts.items()}
        return self.visible(results), self.columns(states)


_PARTS: Mapping[str, tuple[str, ...]] = {
    "sum": ("sum", "count"),
    "mean": ("sum", "count"),
    "count_distinct": ("collect_set",),
}


def _part(kind: str, dtype: pl.DataType, limit: int) -> AggregatePart:
    if kind == "count":
        return Counted()
    if kind == "approx_distinct":
        return Sketched()
    if kind == "sum":
        return (
            ExactSum(dtype) if dtype.is_float() or dtype.is_decimal() else WholeSum(signed=dtype != pl.UInt64)
        )
    if kind in ("min", "max"):
        return Extreme(dtype, kind == "max")
    if kind in ("first", "last"):
        return Ending(dtype, kind == "last")
    if isinstance(dtype, pl.Struct) and kind in ("top", "bottom"):
        return Ranked(dtype, limit, kind == "top")
    return Collected(dtype, kind == "collect_set")


def _finite(series: pl.Series) -> pl.Series:
    if not series.dtype.is_float() or series.is_finite().all():
        return series
    return series.zip_with(series.is_finite(), pl.Series([None], dtype=series.dtype))


def beyond(what: str = "a sum of whole numbers is beyond 64 bits") -> CrossStreamError:
    """The error of a sum that has no room for its result."""
    return refuse("CS-501", what, "add floats instead: cs.agg.sum(pl.col(…).cast(pl.Float64))")
