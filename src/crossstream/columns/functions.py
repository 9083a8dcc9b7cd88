"""What a user passes as a function: a Python callable, or a Polars expression and the columns that it reads.

Every column has a declared type, so a record means the same in whatever batch it comes (decision 0031). Fields that an
expression does not read are never decoded. An expression that looks at other rows would depend on how batches are cut.

Polars writes an expression as JSON; its docs promise no stable form. So only two shapes are looked for, a column and a
field of a column. A column in any other shape counts as read whole, and so does everything where there is no JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from crossstream.columns.values import Values
from crossstream.error_codes import refuse
from crossstream.serdes.contract import EngineSerde
from crossstream.signatures import required_arguments


@dataclass(frozen=True, slots=True)
class keyed:
    """Marks a callable that also wants the key: ``keyed(lambda key, value: …)``.

    In a joiner ``keyed(lambda key, left, right: …)``. Source: Kafka's ``…WithKey`` variants.

    >>> keyed(lambda key, value: f"{key}={value}").function("a", 1)
    'a=1'
    """

    function: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Function:
    """A user's function in normal form: exactly one of ``call`` and ``expression`` is set.

    ``with_key``: the callable takes the key first. An expression reads the key as column ``key``. ``returns``: the
    serde of the type that it gives, where that is declared. ``role``: what the operator calls it.
    """

    call: Callable[..., Any] | None = None
    expression: pl.Expr | None = None
    with_key: bool = False
    returns: EngineSerde | None = None
    role: str = "function"

    @classmethod
    def of(
        cls, function: Callable[..., Any] | pl.Expr | keyed, *, arguments: int = 1, with_key: bool = False
    ) -> Function:
        """Normal form of what the user passed; `TypeError` if it is neither callable nor expression.

        ``arguments``: how many values it takes besides the key (a joiner: 2). A callable that requires
        one more than that takes the key first, `keyed` or not; where its signature cannot be read,
        ``with_key`` decides.
        """
        if isinstance(function, pl.Expr):
            return cls(expression=function, with_key=True)
        if isinstance(function, keyed):
            return cls(call=function.function, with_key=True)
        if callable(function):
            return cls(call=function, with_key=_takes_key(function, arguments, with_key))
        raise TypeError(f"expected a callable or a Polars expression, got {type(function).__name__}")

    @property
    def field(self) -> str | None:
        """The field of the value that an expression is, and nothing else: ``pl.col("customer_id")``."""
        if self.expression is None or not self.expression.meta.is_column():
            return None
        name = self.expression.meta.output_name()
        return None if name in ("key", "value") else name


def _takes_key(function: Callable[..., Any], arguments: int, otherwise: bool) -> bool:
    required = required_arguments(function)
    if required in (arguments, arguments + 1):
        return required == arguments + 1
    return otherwise


WHOLE = "value"
"""The name by which an expression reads a value as a whole."""

ALL = "*"
"""Stands for all columns there are, where an expression names none: ``pl.all()``, or a selector by type or pattern."""

Fields: TypeAlias = frozenset[str] | None
"""The fields of a column that are read; None: the column as a whole."""


@dataclass(frozen=True, slots=True, eq=False)
class Same:
    """An expression, equal to itself only: it cannot be hashed, and == on it makes another expression."""

    expression: pl.Expr

    def __hash__(self) -> int:
        return id(self.expression)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.expression is self.expression


def projection_of(function: Function) -> Mapping[str, Fields]:
    """The columns that an expression reads, or `ALL`, and which fields of each. A callable reads no columns."""
    return {} if function.expression is None else _projection(Same(function.expression))


def columns_of(function: Function) -> frozenset[str]:
    """The columns that an expression reads; ``value``, the value as a whole, also where it reads `ALL`."""
    return frozenset(WHOLE if name == ALL else name for name in projection_of(function))


def fields_of(function: Function, column: str) -> Fields:
    """The fields of a column that an expression reads; empty if it does not read the column."""
    projection = projection_of(function)
    return None if ALL in projection else projection.get(column, frozenset())


@lru_cache(maxsize=512)
def _projection(same: Same) -> dict[str, Fields]:
    parts = serialized(same.expression)
    if parts is None:
        return dict.fromkeys(filter(None, same.expression.meta.root_names()))
    found: dict[str, Fields] = {}
    for column, field in _reads(parts):
        known = found.get(column, frozenset())
        found[column] = None if field is None or known is None else known | {field}
    return found


def serialized(expression: pl.Expr) -> Any:
    """The parts of an expression, as Polars writes them as JSON; None where it cannot."""
    try:
        return json.loads(expression.meta.serialize(format="json"))
    except (pl.exceptions.PolarsError, ValueError):
        return None


def _reads(node: Any) -> Iterator[tuple[str, str | None]]:
    """(column, field) of everything a serialised expression reads; field None: the column as a whole."""
    if isinstance(node, list):
        for item in node:
            yield from _reads(item)
    elif isinstance(node, dict):
        if (column := _column(node)) is not None:
            yield column, None
        elif (field := _field_of_column(node)) is not None:
            yield field
        elif (names := _selected(node)) is not None:
            yield from ((name, None) for name in names)
        else:
            for kind, item in node.items():
                yield from _reads(_operands(kind, item))


def _operands(kind: str, node: Any) -> Any:
    """The expressions inside a part of a serialised expression, without names and options."""
    if kind in ("Column", "Field", "Literal"):
        return None
    if kind == "Alias" and isinstance(node, list):
        return node[:1]
    if not isinstance(node, dict):
        return node
    if kind == "Eval":
        return node.get("expr", node)  # what is done with its elements reads nothing else
    return node.get("input") if kind in ("Function", "AnonymousFunction") else node


def _column(node: Any) -> str | None:
    name = node.get("Column") if isinstance(node, dict) else None
    return name if isinstance(name, str) else None


def _field_of_column(node: dict[str, Any]) -> tuple[str, str] | None:
    """``pl.col("left").struct.field("price")`` as (left, price); None if the node is something else."""
    call = node.get("Function")
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return None
    access, inputs = call["function"].get("StructExpr"), call.get("input")
    if not isinstance(access, dict) or not isinstance(inputs, list) or len(inputs) != 1:
        return None
    column, field = _column(inputs[0]), access.get("FieldByName")
    return None if column is None or not isinstance(field, str) else (column, field)


def _selected(node: dict[str, Any]) -> Sequence[str] | None:
    """The columns that a selector takes; None if the node is no selector."""
    selector = node.get("Selector")
    if selector is None:
        return None
    by_name = selector.get("ByName") if isinstance(selector, dict) else None
    return [ALL] if by_name is None else by_name.get("names", [ALL])


_NODES = {
    "Agg": "",
    "Explode": "input",
    "Filter": "input",
    "Gather": "expr",
    "Over": "function",
    "Rolling": "function",
    "Slice": "input",
    "Sort": "expr",
    "SortBy": "expr",
}
"""Polars expressions that combine or move rows, and the operand with the rows; "": any operand."""

_FUNCTIONS = frozenset(
    """
    Append ApproxNUnique ArgMax ArgMin ArgSort ArgUnique ArgWhere BackwardFill Correlation CumCount CumMax
    CumMean CumMin CumProd CumSum Diff DropNans DropNulls Entropy EwmMean EwmMeanBy EwmStd EwmVar ExtendConstant
    FillNullWithStrategy ForwardFill GatherEvery Hist IndexOf Interpolate InterpolateBy Kurtosis Mode NullCount
    PctChange PeakMax PeakMin Product QCut Quantile RLE RLEID Random Rank Reshape Reverse RollingExpr
    RollingExprBy SearchSorted Shift ShiftAndFill Skew TopK TopKBy Unique UniqueCounts ValueCounts
    """.split()  # noqa: SIM905 - words are easier to read than sixty quoted strings
)
"""Functions that do so."""

_OF_A_KIND = {
    "Bitwise": frozenset({"And", "Or", "Xor"}),
    "Boolean": frozenset(
        {"All", "Any", "HasNulls", "IsDuplicated", "IsFirstDistinct", "IsLastDistinct", "IsUnique"}
    ),
    "StringExpr": frozenset({"ConcatVertical"}),
}
"""More of them, by namespace."""


def other_rows(expression: pl.Expr) -> str | None:
    """Polars' name of what makes an expression read other rows (``Sum``); None if nothing is known to."""
    return _found(serialized(expression))


def _found(node: Any) -> str | None:
    if node == "Len":
        return "Len"
    if isinstance(node, list):
        return next(filter(None, map(_found, node)), None)
    if not isinstance(node, dict):
        return None
    return next(filter(None, (_of(kind, inner) for kind, inner in node.items())), None)


def _of(kind: str, inner: Any) -> str | None:
    if kind in _NODES:
        place = _NODES[kind]
        if _has_rows(inner.get(place, inner) if isinstance(inner, dict) else inner):
            return _name(inner) if kind == "Agg" else kind
    elif kind == "Function" and _combines(inner):
        return _name(inner["function"])
    return _found(_operands(kind, inner))


def _has_rows(node: Any) -> bool:
    """Whether a part reads columns, or fields of a struct that is being changed; literals are the same for all rows."""
    return any(True for _ in _reads(node)) or '{"Field": ' in json.dumps(node)


def _combines(call: Any) -> bool:
    """Whether a function combines rows, and gets any: the first operand has them."""
    if not isinstance(call, dict) or not _has_rows(call.get("input", [])[:1]):
        return False
    name = _name(call.get("function"))
    return name in _FUNCTIONS or (name in _OF_A_KIND and _name(call["function"][name]) in _OF_A_KIND[name])


def _name(call: Any) -> str:
    """A function without options is its name; with options an object of one entry."""
    return str(next(iter(call), "")) if isinstance(call, dict) else str(call)


Types = Mapping[str, "pl.DataType | None"]
"""The declared types of the arguments of an expression; None: not declared."""


def is_joiner(arguments: Mapping[str, Any]) -> bool:
    """Whether a function gets the sides of a join, and not one value."""
    return "left" in arguments


def frame_for(function: Function, key: Values, arguments: Mapping[str, Values]) -> pl.DataFrame:
    """The columns that the expression of the function reads. Raises `SerdeError`."""
    projection, joiner = projection_of(function), is_joiner(arguments)
    columns = {"key": key.series()} if "key" in projection else {}
    for name, values in arguments.items():
        if name != WHOLE and (name in projection or (joiner and ALL in projection)):
            columns[name] = values.series(fields_of(function, name))
    if not joiner:
        columns.update(_value_columns(function, arguments, columns))
    return pl.DataFrame(columns or {"key": pl.Series(np.zeros(key.rows, np.int8))})


def _value_columns(
    function: Function, arguments: Mapping[str, Values], others: Mapping[str, Any]
) -> dict[str, pl.Series]:
    projection = projection_of(function)
    whole = WHOLE in projection or ALL in projection
    names = projection.keys() - others.keys() - {WHOLE, ALL, "key"}
    if not (whole or names):
        return {}
    series = arguments[WHOLE].series(None if whole else names)
    found = {}
    if isinstance(series.dtype, pl.Struct):
        fields = series.struct
        found = {
            name: fields.field(name) for name in fields.schema if name in projection or ALL in projection
        }
    if WHOLE in projection or not isinstance(series.dtype, pl.Struct):
        found.setdefault(WHOLE, series)
    return found


def reads_fields_only(function: Function, others: Mapping[str, Any]) -> bool:
    """Whether an expression reads fields of a value, and not the whole value."""
    projection = projection_of(function)
    return WHOLE not in projection and bool(projection.keys() - others.keys() - {"key"})


def select(expression: pl.Expr, frame: pl.DataFrame) -> pl.Series:
    """The result of the expression, one value for each row. Raises CS-501 for another number of values."""
    rows = frame.height
    try:
        result = frame.select(expression.alias("result")).to_series()
    except pl.exceptions.DuplicateError:
        if not expression.meta.has_multiple_outputs():
            raise
        what = "an expression gave several columns, where there is one value for each record"
        raise refuse("CS-501", what, 'make one of them: pl.struct(pl.col("a", "b"))') from None
    if len(result) == 1 != rows:
        result = result.new_from_index(0, rows)
    if len(result) != rows:
        step = "use expressions that give one value for each row: no aggregation, filter or explode"
        raise refuse("CS-501", f"an expression gave {len(result)} rows for {rows} records", step)
    return as_plain(result)


def as_plain(series: pl.Series) -> pl.Series:
    """With one type for each kind of value, as stores and topics keep it. Raises `PolarsError` if one does not fit.

    Polars has many: ``dt.hour`` gives eight bits, in which 23 × 60 is 100. So whole numbers have 64 bits, points in
    time are microseconds in UTC, categories are text.
    """
    dtype = plain(series.dtype)
    return series if dtype == series.dtype else series.cast(dtype)


@lru_cache(maxsize=512)
def plain(dtype: Any) -> Any:
    """The type that a column of this type has after `as_plain`."""
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: plain(field.dtype) for field in dtype.fields})
    if isinstance(dtype, pl.List | pl.Array):
        return pl.List(plain(dtype.inner))
    if isinstance(dtype, pl.Datetime):
        return pl.Datetime("us", None if dtype.time_zone is None else "UTC")
    if isinstance(dtype, pl.Decimal):
        return pl.Decimal(38, dtype.scale)
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return pl.String()
    if dtype.is_integer() and dtype != pl.UInt64:
        return pl.Int64()
    return pl.Duration("us") if isinstance(dtype, pl.Duration) else dtype


def result_type(function: Function, key: pl.DataType | None, types: Types) -> pl.DataType:
    """The type of what the expression gives for columns of these types. Raises `PolarsError`, CS-501."""
    assert function.expression is not None
    return _result_type(Same(function.expression), key, tuple(types.items()))


@lru_cache(maxsize=256)
def _result_type(
    same: Same, key: pl.DataType | None, types: tuple[tuple[str, pl.DataType | None], ...]
) -> pl.DataType:
    function = Function(expression=same.expression, with_key=True)
    columns = {name: Values(series=pl.Series([], dtype=dtype)) for name, dtype in types}
    frame = frame_for(function, Values(series=pl.Series([], dtype=key)), columns)
    return select(same.expression, frame).dtype
