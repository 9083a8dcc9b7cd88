"""What the functions of a graph do, each as a Python callable and as a Polars expression over declared values.

Values are rows ``{"n": int, "s": text or None, "x": float or None}``, or whole numbers alone. ``n`` and the numbers
are at least 1, ``s`` is often a key of another table, ``x`` is a half of a whole number, so that sums have no dust;
0.0 and -0.0 are one value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, TypedDict

import polars as pl
import pyarrow as pa

from crossstream import serdes

Value = dict[str, Any] | int
ValueKind = Literal["row", "int"]
Letters = ("a", "b", "c")

TEXT, INT, JSON = serdes.string(), serdes.int64(), serdes.json()
ROW = serdes.json({"n": pl.Int64, "s": pl.String, "x": pl.Float64})
DECLARED = {"row": ROW, "int": INT}


def row(n: int, s: str | None = None, x: float | None = None) -> dict[str, Any]:
    return {"n": n, "s": s, "x": x}


# Parts of a value


def number(value: Value | None) -> int:
    return 0 if value is None else value["n"] if isinstance(value, dict) else value


def letter(value: Value | None) -> str | None:
    """A key of another table; that of a number is by its parity."""
    if isinstance(value, dict):
        return value["s"]
    return None if value is None else "a" if value % 2 else "b"


def half(value: Value | None) -> float | None:
    return value["x"] if isinstance(value, dict) else None


def parts(kind: ValueKind, column: str = "") -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """The parts as expressions: of the values themselves, or of a ``column`` that holds them."""
    if kind == "row":
        fields = [pl.col(column).struct.field(name) if column else pl.col(name) for name in ("n", "s", "x")]
        return fields[0], fields[1], fields[2]
    n = pl.col(column or "value")
    s = (
        pl.when(n.is_null())
        .then(pl.lit(None, pl.String))
        .when(n % 2 == 1)
        .then(pl.lit("a"))
        .otherwise(pl.lit("b"))
    )
    return n, s, pl.lit(None, pl.Float64)


# Functions of one value: the callable, and the expression for a kind of values

Call = Callable[[Any], Any]

PREDICATES: dict[str, tuple[Call, Callable[[pl.Expr, pl.Expr, pl.Expr], pl.Expr]]] = {
    "n > 0": (lambda v: number(v) > 0, lambda n, s, x: n > 0),
    "n odd": (lambda v: number(v) % 2 == 1, lambda n, s, x: n % 2 == 1),
    "n > 4": (lambda v: number(v) > 4, lambda n, s, x: n > 4),
    "s = a": (lambda v: letter(v) == "a", lambda n, s, x: s.eq_missing(pl.lit("a"))),
    "x < 2": (
        lambda v: half(v) is None or half(v) < 2,
        lambda n, s, x: x.is_null() | (x < 2).fill_null(True),
    ),
}

_NEXT = {None: "a", "a": "b", "b": "c", "c": None}


def _next(s: pl.Expr) -> pl.Expr:
    chain = pl.when(s.is_null()).then(pl.lit("a")).when(s == "a").then(pl.lit("b"))
    return chain.when(s == "b").then(pl.lit("c")).otherwise(pl.lit(None, pl.String))


def _struct(n: pl.Expr, s: pl.Expr, x: pl.Expr) -> pl.Expr:
    return pl.struct(n=n, s=s, x=x)


MAPPERS: dict[str, tuple[ValueKind, Call, Callable[[pl.Expr, pl.Expr, pl.Expr], pl.Expr]]] = {
    "same": ("row", lambda v: row(number(v), letter(v), half(v)), _struct),
    "more": ("row", lambda v: row(number(v) + 1, letter(v), half(v)), lambda n, s, x: _struct(n + 1, s, x)),
    "next s": (
        "row",
        lambda v: row(number(v), _NEXT.get(letter(v)), number(v) / 2),
        lambda n, s, x: _struct(n, _next(s), n / 2),
    ),
    "number": ("int", number, lambda n, s, x: n),
    "some": (
        "row",
        lambda v: None if number(v) % 3 == 0 else row(number(v), letter(v), half(v)),
        lambda n, s, x: pl.when(n % 3 != 0).then(_struct(n, s, x)),
    ),
}
"""Name → the kind of values that it makes, and both forms. "some" makes nulls of some."""


class Row(TypedDict):
    n: int
    s: str | None
    x: float | None


def annotated(call: Call, kind: ValueKind) -> Call:
    """A callable that declares what it makes: rows, some of them null, or numbers."""

    def a_row(value: Any) -> Row | None:
        return call(value)  # type: ignore[no-any-return]

    def a_number(value: Any) -> int:
        return call(value)  # type: ignore[no-any-return]

    return a_row if kind == "row" else a_number


def with_nulls(call: Call, otherwise: Any = None) -> Call:
    """A callable that passes null values of a stream by."""
    return lambda value: otherwise if value is None else call(value)


def expressed(make: Callable[..., pl.Expr], kind: ValueKind, nulls: bool, otherwise: Any = None) -> pl.Expr:
    """The expression for values of a kind; ``nulls``: some may be null."""
    made = make(*parts(kind))
    return pl.when(pl.col("value").is_not_null()).then(made).otherwise(otherwise) if nulls else made


def selected(kind: ValueKind, nulls: bool) -> pl.Expr:
    """The letter of a value."""
    return expressed(lambda n, s, x: s, kind, nulls)


def failing(call: Callable[..., Any], fails: bool) -> Callable[..., Any]:
    """Raises where the last value is, or has, a multiple of 4."""

    @wraps(call)
    def raising(*values: Any) -> Any:
        if values[-1] is not None and number(values[-1]) % 4 == 0:
            raise Refused
        return call(*values)

    return raising if fails else call


def refusing(make: Callable[..., pl.Expr], fails: bool) -> Callable[..., pl.Expr]:
    """As `failing`, of an expression: a text that is not a number is cast to one."""

    def raising(n: pl.Expr, s: pl.Expr, x: pl.Expr) -> pl.Expr:
        checked = pl.when(n % 4 == 0).then(pl.lit("refused")).otherwise(pl.lit("1")).cast(pl.Int64)
        return pl.when(checked == 1).then(make(n, s, x))

    return raising if fails else make


class Refused(Exception):
    """What `failing` raises."""


# Functions of several


def joined(left: Value | None, right: Value | None) -> dict[str, Any]:
    s, x = letter(left), half(left)
    return row(
        number(left) + number(right), letter(right) if s is None else s, half(right) if x is None else x
    )


def joining(left: ValueKind, right: ValueKind) -> pl.Expr:
    (n1, s1, x1), (n2, s2, x2) = parts(left, "left"), parts(right, "right")
    return _struct(n1.fill_null(0) + n2.fill_null(0), pl.coalesce(s1, s2), pl.coalesce(x1, x2))


def annotated_join(left: Value | None, right: Value | None) -> Row:
    return joined(left, right)  # type: ignore[return-value]


def kept_left(left: Value | None, right: Value | None) -> Any:
    """The fields of both rows, which have the same."""
    return right if left is None else left


def kept_right(left: Value | None, right: Value | None) -> Any:
    return kept_left(right, left)


JOINERS = {"keep-left": kept_left, "keep-right": kept_right}
"""By the form of a join, where it is not `joined`."""


RIGHT = "right_"
"""The prefix of the right side's fields, where both sides' are kept."""


def united(value: dict[str, Any]) -> dict[str, Any]:
    """What `joined` makes, of the fields of both sides in one row. A side that is missing may have left none."""
    n, s, x = (value.get(name) for name in ("n", "s", "x"))
    n2, s2, x2 = (value.get(RIGHT + name) for name in ("n", "s", "x"))
    return row((n or 0) + (n2 or 0), s2 if s is None else s, x2 if x is None else x)


def uniting() -> pl.Expr:
    n, s, x = (pl.col(name) for name in ("n", "s", "x"))
    n2, s2, x2 = (pl.col(RIGHT + name) for name in ("n", "s", "x"))
    return _struct(n.fill_null(0) + n2.fill_null(0), pl.coalesce(s, s2), pl.coalesce(x, x2))


def joined_many(left: Value, others: dict[str, Value | None]) -> dict[str, Any]:
    return joined(joined(left, others["one"]), others["two"])


def joining_many(left: ValueKind, one: ValueKind, two: ValueKind) -> pl.Expr:
    sides = [parts(left, "left"), parts(one, "one"), parts(two, "two")]
    n = sum((side[0].fill_null(0) for side in sides), pl.lit(0, pl.Int64))
    return _struct(n, pl.coalesce(*(side[1] for side in sides)), pl.coalesce(*(side[2] for side in sides)))


# Aggregation by functions


def reduced(total: Value, value: Value | None) -> Value:
    """Of a stream: the sum, and what the last value has beside it."""
    if value is None:
        return total
    if isinstance(total, int):
        return total + number(value)
    return row(number(total) + number(value), letter(value), half(value))


def nothing() -> dict[str, Any]:
    return row(0, None, 0.0)


def added(total: dict[str, Any], value: Value | None) -> dict[str, Any]:
    """The sum; ``x`` counts."""
    return row(total["n"] + number(value), letter(value) or total["s"], total["x"] + 1.0)


def merged(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    return row(left["n"] + right["n"], right["s"] or left["s"], left["x"] + right["x"])


def put(total: dict[str, Any], value: Value) -> dict[str, Any]:
    """A row comes to a group of a table."""
    return row(total["n"] + number(value), None, total["x"] + 1.0)


def taken(total: dict[str, Any], value: Value) -> dict[str, Any] | None:
    """A row leaves a group of a table; the last one takes it along."""
    return None if total["x"] == 1.0 else row(total["n"] - number(value), None, total["x"] - 1.0)


def plus(total: int, value: int) -> int:
    return total + value


def minus(total: int, value: int) -> int | None:
    """Numbers are at least 1, so a group with the sum 0 has no rows."""
    return None if total == value else total - value


def put_row(total: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """A row comes to a group of rows of one letter; ``x`` of each is 1."""
    return row(total["n"] + value["n"], value["s"], total["x"] + 1.0)


def taken_row(total: dict[str, Any], value: dict[str, Any]) -> dict[str, Any] | None:
    return None if total["x"] == 1.0 else row(total["n"] - value["n"], value["s"], total["x"] - 1.0)


def copies(value: Value | None) -> list[Value]:
    """No, one or two values."""
    return [] if value is None else [joined(value, None), joined(value, value)][: number(value) % 3]


BATCHES = pa.schema(
    {
        "key": pa.large_string(),
        "value": pa.struct({"n": pa.int64(), "s": pa.large_string(), "x": pa.float64()}),
        "timestamp": pa.int64(),
    }
)


def transformed(batch: pa.RecordBatch) -> pa.Table:
    """Each value joined with none."""
    rows = batch.to_pylist()
    values = [None if one["value"] is None else joined(one["value"], None) for one in rows]
    made = [{**one, "value": value} for one, value in zip(rows, values, strict=True)]
    return pa.Table.from_pylist(made, BATCHES)


class Counting:
    """A processor that adds to each number how many records of its key there were before."""

    def __init__(self, store: str, keeps_key: bool) -> None:
        self.name, self.keeps_key = store, keeps_key

    def init(self, context: Any) -> None:
        self.context, self.seen = context, context.store(self.name)

    def process(self, record: Any) -> None:
        count = (self.seen.get(record.key) or 0) + 1
        self.seen.put(record.key, count)
        key = record.key if self.keeps_key else letter(record.value)
        self.context.forward(key, counted(record.value, count))


def counted(value: Value | None, count: int) -> dict[str, Any]:
    return row(number(value) + count, letter(value), half(value))
