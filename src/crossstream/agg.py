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
from typing import Any, NamedTuple, TypeAlias

import polars as pl

from crossstream.columns.aggregates import BY, VALUE, AggregateKind
from crossstream.error_codes import refuse
from crossstream.errors import caller_location

Field: TypeAlias = str | pl.Expr

__all__ = [
    "Aggregation",
    "approx_distinct",
    "bottom",
    "collect",
    "collect_set",
    "count",
    "count_distinct",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "sum",
    "top",
]


class Asked(NamedTuple):
    """A built-in aggregate as it was asked for. ``limit``: of `top` and `bottom`, how many values."""

    kind: AggregateKind
    field: Field | None = None
    limit: int = 0


_Build = Callable[[Sequence[pl.Expr]], pl.Expr]


class Aggregation:
    """A built-in aggregate, or an expression of several: they take the operators of arithmetic.

    ``terms``: the aggregates in it; ``expression``: makes the result of their columns.

    >>> sum("price") / count()
    <Aggregation of sum('price'), count()>
    """

    __slots__ = ("expression", "terms")

    def __init__(self, terms: Sequence[Asked], expression: _Build) -> None:
        self.terms = tuple(terms)
        self.expression = expression

    def __repr__(self) -> str:
        return f"<Aggregation of {', '.join(map(_shown, self.terms))}>"

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
    """The sum: of whole numbers as Int64 (of UInt64 as such), of floats as Float64, of Decimals as such; null without
    any value.

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


def count_distinct(field: Field) -> Aggregation:
    """How many different values there are, exactly. The values of a group are kept; of many, use `approx_distinct`."""
    return _one("count_distinct", field)


def top(n: int, by: Field, field: Field | None = None) -> Aggregation:
    """The ``n`` values with the largest ``by``, the largest first; of equal ones those that arrived first.

    ``field``: what is listed of each record, by default its whole value. Records without ``by`` are passed over. Raises
    CS-101 for fewer than one value, CS-104 for what is no field.

    >>> top(3, by="price")
    <Aggregation of top(3, …)>
    """
    return _ranked("top", n, by, field)


def bottom(n: int, by: Field, field: Field | None = None) -> Aggregation:
    """The ``n`` values with the smallest ``by``, the smallest first; as `top` otherwise.

    >>> bottom(1, by="price", field="item")
    <Aggregation of bottom(1, …)>
    """
    return _ranked("bottom", n, by, field)


def approx_distinct(field: Field) -> Aggregation:
    """About how many different values there are, in at most 4 KB of state for a group (HyperLogLog).

    The standard error is 2.3 %; up to some hundred values the number is nearly always exact.
    """
    return _one("approx_distinct", field)


def _shown(term: Asked) -> str:
    given = "" if term.field is None else repr(term.field) if isinstance(term.field, str) else "…"
    return f"{term.kind}({f'{term.limit}, ' if term.limit else ''}{given})"


def _one(kind: AggregateKind, field: Field | None, limit: int = 0) -> Aggregation:
    return Aggregation([Asked(kind, field, limit)], lambda columns: columns[0])


def _ranked(kind: AggregateKind, n: Any, by: Any, field: Any) -> Aggregation:
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        what = f"{kind} lists at least one value, not {n!r}"
        raise refuse("CS-101", what, f'say how many: cs.agg.{kind}(3, by="price")', **caller_location(kind))
    given = (by, VALUE if field is None else field)
    for one in given:
        if not isinstance(one, str | pl.Expr):
            step = f'name a field, as in cs.agg.{kind}(3, by="price"), or pass a Polars expression'
            raise refuse("CS-104", f"a field of {kind} is {one!r}", step, **caller_location(kind))
    decides, listed = (pl.col(one) if isinstance(one, str) else one for one in given)
    return _one(kind, pl.struct(decides.alias(BY), listed.alias(VALUE)), n)
