"""What the functions of an application do, each as a Polars expression and as a callable.

Values are rows ``{"n": number, "s": text or None, "t": text or None}``; ``s`` and ``t`` are often keys of other tables.
Sources may declare more columns, or other types. Each callable is a function of its own, as users write them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import polars as pl

import crossstream as cs
from crossstream import serdes

TEXT, JSON, BYTES = serdes.string(), serdes.json(), serdes.bytes()
KEYS = {"text": TEXT, "json": JSON, "bytes": BYTES}
KEY_FORMS = ("text", "json")
_PLAIN = {"n": pl.Int64, "s": pl.String, "t": pl.String}
COLUMNS = {
    "plain": serdes.json(_PLAIN),
    "and u": serdes.json({**_PLAIN, "u": pl.Int64}),
    "and float u": serdes.json({**_PLAIN, "u": pl.Float64}),
    "float n": serdes.json({**_PLAIN, "n": pl.Float64}),
}
"""What the values of a source have; its records have a u always."""


class Row(TypedDict):
    n: int
    s: str | None
    t: str | None


class RowAndU(Row):
    u: int


class RowAndW(Row):
    w: int


class RowAndFloatU(Row):
    u: float


def row(n: Any, s: str | None, t: str | None) -> Any:
    return {"n": int(n), "s": s, "t": t}


# Predicates


def above_two(value: Any) -> bool:
    return bool(value["n"] > 2)


def above_four(value: Any) -> bool:
    return bool(value["n"] > 4)


def has_s(value: Any) -> bool:
    return value["s"] is not None


def is_one(value: Any) -> bool:
    return bool(value["t"] == "1")


def _n(name: str = "") -> pl.Expr:
    return pl.col(name).struct.field("n") if name else pl.col("n")


def _s(name: str = "") -> pl.Expr:
    return pl.col(name).struct.field("s") if name else pl.col("s")


def _t(name: str = "") -> pl.Expr:
    return pl.col(name).struct.field("t") if name else pl.col("t")


PREDICATES: dict[str, tuple[Any, Callable[[], pl.Expr]]] = {
    "n > 2": (above_two, lambda: _n() > 2),
    "n > 4": (above_four, lambda: _n() > 4),
    "s there": (has_s, lambda: _s().is_not_null()),
    "t = 1": (is_one, lambda: (_t() == "1").fill_null(False)),
}


# Mappers


def same(value: Any) -> Row:
    return row(value["n"], value["s"], value["t"])


def one_more(value: Any) -> Row:
    return row(value["n"] + 1, value["s"], value["t"])


def swapped(value: Any) -> Row:
    return row(value["n"], value["t"], value["s"])


def without_t(value: Any) -> Row:
    return row(value["n"], value["s"], None)


def plus_u(value: Any) -> RowAndU:
    return {**same(value), "u": int(value["n"]) * 10}


def plus_w(value: Any) -> RowAndW:
    return {**same(value), "w": int(value["n"]) * 10}


def plus_float_u(value: Any) -> RowAndFloatU:
    return {**same(value), "u": float(value["n"] * 10)}


def _struct(n: pl.Expr, s: pl.Expr, t: pl.Expr, **more: pl.Expr) -> pl.Expr:
    return pl.struct(n=n.cast(pl.Int64), s=s, t=t, **more)


MAPPERS: dict[str, tuple[Any, Callable[[], pl.Expr]]] = {
    "same": (same, lambda: _struct(_n(), _s(), _t())),
    "one more": (one_more, lambda: _struct(_n() + 1, _s(), _t())),
    "swapped": (swapped, lambda: _struct(_n(), _t(), _s())),
    "without t": (without_t, lambda: _struct(_n(), _s(), pl.lit(None, pl.String))),
    "plus u": (plus_u, lambda: _struct(_n(), _s(), _t(), u=_n().cast(pl.Int64) * 10)),
    "plus w": (plus_w, lambda: _struct(_n(), _s(), _t(), w=_n().cast(pl.Int64) * 10)),
    "plus float u": (plus_float_u, lambda: _struct(_n(), _s(), _t(), u=(_n() * 10).cast(pl.Float64))),
}


# Mappers of what a table sends, where a delete has no value


def sent(value: Any) -> Any:
    return None if value is None else row(value["n"], value["s"], value["t"])


def sent_with_u(value: Any) -> Any:
    return None if value is None else {**row(value["n"], value["s"], value["t"]), "u": int(value["n"])}


SENT = {"same": sent, "plus u": sent_with_u}


# Joiners


def _number(value: Any) -> Any:
    return 0 if value is None else value["n"]


def summed(left: Any, right: Any) -> Row:
    s = None if left is None else left["s"]
    t = None if right is None else right["t"]
    return row(_number(left) + _number(right), s, t)


def summed_twice(left: Any, right: Any) -> Row:
    s = None if left is None else left["s"]
    t = None if right is None else right["t"]
    return row(_number(left) + 2 * _number(right), s, t)


def of_left(left: Any, right: Any) -> Row:
    one = right if left is None else left
    return row(one["n"], one["s"], one["t"])


def of_right(left: Any, right: Any) -> Row:
    one = left if right is None else right
    return row(one["n"], one["s"], one["t"])


def _zero(name: str) -> pl.Expr:
    return _n(name).fill_null(0)


JOINERS: dict[str, tuple[Any, Callable[[], pl.Expr]]] = {
    "summed": (summed, lambda: _struct(_zero("left") + _zero("right"), _s("left"), _t("right"))),
    "summed twice": (
        summed_twice,
        lambda: _struct(_zero("left") + 2 * _zero("right"), _s("left"), _t("right")),
    ),
    "of left": (of_left, lambda: _either("left", "right")),
    "of right": (of_right, lambda: _either("right", "left")),
}


def _either(one: str, other: str) -> pl.Expr:
    there = _n(one).is_not_null()
    found = [pl.when(there).then(part(one)).otherwise(part(other)) for part in (_n, _s, _t)]
    return _struct(*found)


# Joiners of many: the tables are "d0", "d1", …


def many_summed(left: Any, rows: Any) -> Row:
    return row(left["n"] + sum(_number(one) for one in rows.values()), left["s"], left["t"])


def many_of_first(left: Any, rows: Any) -> Row:
    first = rows["d0"]
    return row(left["n"], left["s"], None if first is None else first["t"])


MANY: dict[str, tuple[Any, Callable[[int], pl.Expr]]] = {
    "summed": (
        many_summed,
        lambda count: _struct(
            sum((_zero(f"d{number}") for number in range(count)), _n("left")), _s("left"), _t("left")
        ),
    ),
    "of first": (many_of_first, lambda count: _struct(_n("left"), _s("left"), _t("d0"))),
}


# Aggregates: those of n, s and t, and perhaps one more


AGGREGATES: dict[str, Callable[[], Any]] = {
    "n sum": lambda: cs.agg.sum("n"),
    "n max": lambda: cs.agg.max("n"),
    "n count": lambda: cs.agg.count(),
    "s max": lambda: cs.agg.max("s"),
    "s min": lambda: cs.agg.min("s"),
    "t max": lambda: cs.agg.max("t"),
    "t min": lambda: cs.agg.min("t"),
    "u count": lambda: cs.agg.count(),
    "u min": lambda: cs.agg.min("n"),
}


def aggregates(chosen: tuple[str, ...]) -> dict[str, Any]:
    return {one[0]: AGGREGATES[one]() for one in chosen}
