"""What ``agg(…)`` asks for, as frozen data: built-in aggregates of fields, and the expressions over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import polars as pl

from crossstream.columns.functions import Function

AggregateKind: TypeAlias = Literal[
    "count",
    "sum",
    "min",
    "max",
    "mean",
    "first",
    "last",
    "collect",
    "collect_set",
    "count_distinct",
    "approx_distinct",
    "top",
    "bottom",
]

IN_ORDER: frozenset[AggregateKind] = frozenset({"first", "last", "collect", "collect_set", "top", "bottom"})
"""The aggregates that depend on the order of the records."""

OF_ROWS: frozenset[AggregateKind] = IN_ORDER | {"min", "max", "count_distinct", "approx_distinct"}
"""The aggregates that a row which is taken away may change in a way that only the other rows of its group show."""


BY, VALUE = "by", "value"
"""The fields of what "top" and "bottom" aggregate: what decides, and what is listed."""


@dataclass(frozen=True, slots=True)
class Term:
    """A built-in aggregate. ``field``: the number of its field; None: of the records themselves.

    ``limit``: of "top" and "bottom", how many values. Their field is a struct of `BY` and `VALUE`.
    """

    kind: AggregateKind
    field: int | None = None
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Aggregates:
    """``fields``: what is aggregated, expressions over a value. ``columns``: the results by name.

    A result is an expression over the terms, which it calls ``"0"``, ``"1"`` and so on. ``dtype``: the struct of the
    results.
    """

    fields: tuple[Function, ...]
    terms: tuple[Term, ...]
    columns: tuple[tuple[str, pl.Expr], ...]
    dtype: pl.Struct

    @property
    def of_rows(self) -> bool:
        """Whether a grouped table has to keep the rows of its groups."""
        return any(term.kind in OF_ROWS for term in self.terms)

    @property
    def words(self) -> dict[str, str]:
        """The results in words, by name: ``sum(amount)``; what is done with a term is left out."""
        texts = [str(function.expression) for function in self.fields]
        terms = [
            term.kind if term.field is None else f"{term.kind}({texts[term.field]})" for term in self.terms
        ]
        return {
            name: " and ".join(terms[int(number)] for number in result.meta.root_names())
            for name, result in self.columns
        }

    @property
    def in_order(self) -> bool:
        """Whether a result depends on the order of the records."""
        return any(term.kind in IN_ORDER for term in self.terms)

    @property
    def field_types(self) -> tuple[pl.DataType, ...]:
        """The types of the fields."""
        return tuple(function.returns.dtype or pl.Null() for function in self.fields if function.returns)


def result_type(kind: AggregateKind, field: pl.DataType | None) -> pl.DataType | None:
    """The type of a term over a field of this type; None if it has none: such values are not added or compared.

    >>> result_type("sum", pl.Int64()), result_type("sum", pl.String())
    (Int64, None)
    """
    if kind in ("count", "count_distinct", "approx_distinct"):
        return pl.Int64()
    assert field is not None
    if kind in ("top", "bottom"):
        types = field.to_schema() if isinstance(field, pl.Struct) else {}
        return pl.List(types[VALUE]) if _is_ordered(types[BY]) else None
    if kind in ("collect", "collect_set"):
        return pl.List(field)
    if kind in ("first", "last"):
        return field
    if kind in ("min", "max"):
        return field if _is_ordered(field) else None
    whole = field in (pl.Int64, pl.UInt64, pl.Boolean)
    if not (whole or field.is_float() or field.is_decimal()):
        return None
    if kind == "mean" or field.is_float():
        return pl.Float64()
    return pl.Int64() if field == pl.Boolean else field


def _is_ordered(dtype: Any) -> bool:
    """Whether values of a type have a largest one."""
    return not dtype.is_nested() and dtype not in (pl.Null, pl.Object)
