"""Built-in aggregates: as they are asked for, and what they make of the values of a group, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

import crossstream as cs
from tests.laws.compositions.functions import Value, ValueKind, half, letter, number, parts, row


def _text(aggregation: Any) -> Any:
    """A list as a text."""
    return aggregation.pipe(lambda values: values.list.sort().list.join(","))


def _float(aggregation: Any) -> Any:
    return aggregation.pipe(lambda values: values.cast(pl.Float64))


def columns(chosen: Sequence[str], kind: ValueKind) -> dict[str, Any]:
    """The arguments of ``agg`` for the aggregates of n, s and x that were chosen."""
    agg = cs.agg
    fields: tuple[Any, Any, Any] = ("n", "s", "x") if kind == "row" else parts(kind)
    n, s, x = fields if kind == "row" else ("value", fields[1], pl.col("value").cast(pl.Float64))
    made_n = {
        "sum": lambda: agg.sum(n),
        "count": lambda: agg.count(),
        "min": lambda: agg.min(n),
        "max": lambda: agg.max(n),
        "approx": lambda: agg.approx_distinct(n),
    }
    made_s = {
        "max": lambda: agg.max(s),
        "min": lambda: agg.min(s),
        "set": lambda: _text(agg.collect_set(s)),
        "list": lambda: _text(agg.collect(s)),
        "last": lambda: agg.last(s),
        "first": lambda: agg.first(s),
    }
    made_x = {
        "mean": lambda: agg.mean(x),
        "sum": lambda: agg.sum(x),
        "max": lambda: agg.max(x),
        "min": lambda: agg.min(x),
        "distinct": lambda: _float(agg.count_distinct(x)),
        "set": lambda: _float(agg.collect_set(x).pipe(lambda values: values.list.len())),
        "list": lambda: _float(agg.collect(x).pipe(lambda values: values.list.sum())),
        "ratio": lambda: agg.sum(n) / agg.count(),
    }
    return {"n": made_n[chosen[0]](), "s": made_s[chosen[1]](), "x": made_x[chosen[2]]()}


def aggregated(chosen: Sequence[str], values: Sequence[Value]) -> dict[str, Any]:
    """The row of a group of values, in order of arrival."""
    n = [number(value) for value in values]
    s = [letter(value) for value in values if letter(value) is not None]
    x = [half(value) if isinstance(value, dict) else float(value) for value in values]
    there = [one for one in x if one is not None]
    of_n: dict[str, Callable[[], int]] = {
        "sum": lambda: sum(n),
        "count": lambda: len(n),
        "min": lambda: min(n),
        "max": lambda: max(n),
        "approx": lambda: len(set(n)),
    }
    of_s: dict[str, Callable[[], Any]] = {
        "max": lambda: max(s, default=None),
        "min": lambda: min(s, default=None),
        "set": lambda: ",".join(sorted(set(s))),
        "list": lambda: ",".join(sorted(s)),
        "last": lambda: s[-1] if s else None,
        "first": lambda: s[0] if s else None,
    }
    of_x: dict[str, Callable[[], Any]] = {
        "mean": lambda: math.fsum(there) / len(there) if there else None,
        "sum": lambda: math.fsum(there) if there else None,
        "max": lambda: max(there, default=None),
        "min": lambda: min(there, default=None),
        "distinct": lambda: float(len(set(there))),
        "set": lambda: float(len(set(there))),
        "list": lambda: sum(there, 0.0),
        "ratio": lambda: sum(n) / len(n),
    }
    return row(of_n[chosen[0]](), of_s[chosen[1]](), of_x[chosen[2]]())
