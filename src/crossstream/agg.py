"""Built-in aggregates for ``agg(…)``, which makes a table of a struct of them, without a Python call for any record.

    table = orders.group_by_key().agg(
        orders=cs.agg.count(),
        total=cs.agg.sum("price"),
        average=cs.agg.sum("price") / cs.agg.count(),
        dearest=cs.agg.max(pl.col("price") * pl.col("number")),
    )

A field is the name of a field of the values, ``"value"`` for values that are no struct, or a Polars expression over one
record. Its type has to be declared. Nulls are passed over, as in SQL. Page: docs/built-in-aggregates.md.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import polars as pl

from crossstream.columns.aggregates import Kind

Field: TypeAlias = str | pl.Expr

__all__ = [
    "Aggregation",
    "approx_distinct",
    "collect",
    "collect_set",
    "count",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "sum",
]

_Build = Callable[[Sequence[pl.Expr]], pl.Expr]


class Aggregation:
    """A built-in aggregate, or an expression of several: they take the operators of arithmetic.

    ``terms``: the aggregates in it, each as (kind, field); ``expression``: makes the result of their columns.

    >>> sum("price") / count()
    <Aggregation of sum('price'), count()>
    """

    __slots__ = ("expression", "terms")

    def __init__(self, terms: Sequence[tuple[Kind, Field | None]], expression: _Build) -> None:
        self.terms = tuple(terms)
        self.expression = expression

    def __repr__(self) -> str:
        return f"<Aggregation of {', '.join(_shown(*term) for term in self.terms)}>"

    def pipe(self, function: Callable[[pl.Expr], pl.Expr]) -> Aggregation:
        """What a function of a Polars expression makes of the result.

        >>> mean("price").pipe(lambda price: price.round(2))
        <Aggregation of mean('price')>
        """
        return Aggregation(self.terms, lambda columns: function(self.expression(columns)))

    def _with(self, other: Any, combine: Callable[[Any, Any], Any], swapped: bool = False) -> Aggregation:
        if not isinstance(other, Aggregation):
            return self.pipe(lambda mine: combine(other, mine) if swapped else combine(mine, other))
        count = len(self.terms)

        def expression(columns: Sequence[pl.Expr]) -> pl.Expr:
            made: pl.Expr = combine(self.expression(columns[:count]), other.expression(columns[count:]))
            return made

        return Aggregation((*self.terms, *other.terms), expression)

    def __add__(self, other: Any) -> Aggregation:
        return self._with(other, operator.add)

    def __radd__(self, other: Any) -> Aggregation:
        return self._with(other, operator.add, swapped=True)

    def __sub__(self, other: Any) -> Aggregation:
        return self._with(other, operator.sub)

    def __rsub__(self, other: Any) -> Aggregation:
        return self._with(other, operator.sub, swapped=True)

    def __mul__(self, other: Any) -> Aggregation:
        return self._with(other, operator.mul)

    def __rmul__(self, other: Any) -> Aggregation:
        return self._with(other, operator.mul, swapped=True)

    def __truediv__(self, other: Any) -> Aggregation:
        return self._with(other, operator.truediv)

    def __rtruediv__(self, other: Any) -> Aggregation:
        return self._with(other, operator.truediv, swapped=True)

    def __floordiv__(self, other: Any) -> Aggregation:
        return self._with(other, operator.floordiv)

    def __mod__(self, other: Any) -> Aggregation:
        return self._with(other, operator.mod)

    def __neg__(self) -> Aggregation:
        return self.pipe(operator.neg)


def count(field: Field | None = None) -> Aggregation:
    """The number of records (of a table: rows), or of those with a field that is not null."""
    return _one("count", field)


def sum(field: Field) -> Aggregation:
    """The sum: of whole numbers as Int64, of floats as Float64, of Decimals as such; null without any value.

    A sum of whole numbers that leaves 64 bits is an error (CS-501). A sum of floats is exact, and rounded once: neither
    the order of the records nor the cut into batches changes a bit of it, nor do rows that are taken away.
    """
    return _one("sum", field)


def min(field: Field) -> Aggregation:
    """The smallest value."""
    return _one("min", field)


def max(field: Field) -> Aggregation:
    """The largest value."""
    return _one("max", field)


def mean(field: Field) -> Aggregation:
    """The sum over the number of values, as Float64; null without any value."""
    return _one("mean", field)


def first(field: Field) -> Aggregation:
    """The value that arrived first. Of a table: of the row that has not changed for the longest time."""
    return _one("first", field)


def last(field: Field) -> Aggregation:
    """The value that arrived last. Of a table: of the row that changed last."""
    return _one("last", field)


def collect(field: Field) -> Aggregation:
    """All values as a list, in order of arrival. A group's list is written with each of its changes: keep it short."""
    return _one("collect", field)


def collect_set(field: Field) -> Aggregation:
    """All different values as a list, in the order in which they first arrived."""
    return _one("collect_set", field)


def approx_distinct(field: Field) -> Aggregation:
    """About how many different values there are, in at most 4 KB of state for a group (HyperLogLog).

    The standard error is 2.3 %; up to some hundred values the number is nearly always exact.
    """
    return _one("approx_distinct", field)


def _shown(kind: Kind, field: Field | None) -> str:
    given = "" if field is None else repr(field) if isinstance(field, str) else "…"
    return f"{kind}({given})"


def _one(kind: Kind, field: Field | None) -> Aggregation:
    return Aggregation([(kind, field)], lambda columns: columns[0])
