"""The columns that an expression reads, and the expression on them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from crossstream.algebra.functions import Function
from crossstream.algebra.undeclared import Undeclared
from crossstream.algebra.uses import ALL, WHOLE, Same, Use, fitted, use_of, uses_of
from crossstream.algebra.values import Values
from crossstream.errors import ProcessingError

_TRIED = (pl.Boolean(), pl.Int64(), pl.Float64(), pl.String(), pl.Datetime("us", "UTC"), pl.List(pl.Int64()))
"""What a null may be of, in turn, where an expression does not take a null of no type."""

_MOST_TRIED = 300


@dataclass(frozen=True, slots=True)
class Read:
    """What an expression reads by a name, and how. ``spread``: by the names of its fields, too."""

    name: str
    values: Values
    use: Use
    spread: bool = False

    def undeclared(self) -> Undeclared | None:
        return self.values.undeclared(None if self.use.whole else frozenset(self.use.fields))

    def decoded(self) -> Read:
        """With values that are decoded as a whole, where their types are not declared."""
        values = self.values
        if values.declared() or values.expressed():
            return self
        return replace(self, values=Values(values.serde, objects=values.objects()))

    def take(self, rows: np.ndarray) -> Read:
        return replace(self, values=self.values.take(rows))

    def of_one_origin(self, rows: np.ndarray) -> Read:
        return replace(self, values=self.values.take(rows).of_one_origin())


def reads_of(function: Function, key: Values, arguments: dict[str, Values]) -> list[Read]:
    """All that the expression of the function reads of the arguments and the key."""
    uses = uses_of(function)
    sides = arguments if "left" in arguments else {}
    others = {
        name: values
        for name, values in {**arguments, "key": key}.items()
        if name in uses and name != WHOLE and name not in sides
    }
    reads = [Read(name, values, Use(whole=True)) for name, values in others.items()]
    for name, values in sides.items():
        use = use_of(function, name)
        if use is not None:
            reads.append(Read(name, values, use))
    use = None if sides else _value_use(uses, others.keys())
    return reads if use is None else [Read(WHOLE, arguments[WHOLE], use, spread=True), *reads]


def _value_use(uses: dict[str, Use], others: Collection[str]) -> Use | None:
    """How the value is used: as a whole, by its fields, or both; None: it is not."""
    fields = {name: use for name, use in uses.items() if name not in (WHOLE, ALL, *others)}
    whole = WHOLE in uses or ALL in uses
    return Use(whole=whole, fields=fields) if whole or fields else None


def origins_of(reads: Sequence[Read]) -> list[np.ndarray]:
    """As `Values.origins`, of all that is read and has several."""
    return [origins for read in reads if (origins := read.values.origins()) is not None]


def marks_of(reads: Sequence[Read]) -> list[list[Hashable]]:
    """As `Undeclared.kinds`, of all that is read."""
    marks: list[list[Hashable]] = []
    for read in reads:
        found = read.undeclared()
        if found is not None:
            marks.extend(found.kinds(read.use))
    return marks


def columns_in(values: Values) -> Iterator[tuple[np.ndarray, pl.Series]]:
    """What an expression gave, as columns: rows, and a series of them."""
    for rows, part in values.parts():
        yield rows, part.series()


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that an expression reads. ``open``: those whose types are those of the values."""

    expression: pl.Expr
    frame: pl.DataFrame
    open: frozenset[str]
    rows: int

    def select(self) -> pl.Series:
        """What the expression gives. A null of no type gets one, where the expression takes it then only."""
        try:
            return _select(self.expression, self.frame, self.rows)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            types = _types_for(Same(self.expression), tuple(self.frame.schema.items()), self.open)
            if types is None:
                raise
        return _select(self.expression, _typed(self.frame, self.open, types), self.rows)


@lru_cache(maxsize=1024)
def _types_for(
    same: Same, schema: tuple[tuple[str, pl.DataType], ...], open_: frozenset[str]
) -> tuple[pl.DataType, ...] | None:
    """Types with which the expression takes the nulls without type in the ``open_`` columns; None: there are none."""
    blanks = sum(_blanks(dtype) for name, dtype in schema if name in open_)
    nothing = pl.DataFrame({name: pl.Series([None], dtype=dtype) for name, dtype in schema})
    for types in _candidates(blanks) if blanks else ():
        with suppress(pl.exceptions.PolarsError, pl.exceptions.PanicException):
            _select(same.expression, _typed(nothing, open_, types), 1)
            return types
    return None


def _typed(frame: pl.DataFrame, open_: frozenset[str], types: Sequence[pl.DataType]) -> pl.DataFrame:
    left = list(types)
    return frame.with_columns(
        frame[name].cast(_filled(frame[name].dtype, left)) for name in frame.columns if name in open_
    )


def _candidates(blanks: int) -> Iterator[tuple[pl.DataType, ...]]:
    """Types for so many nulls of no type: the same for all, then all there are, while they are few."""
    yield from ((dtype,) * blanks for dtype in _TRIED)
    if len(_TRIED) ** blanks <= _MOST_TRIED:
        yield from (types for types in product(_TRIED, repeat=blanks) if len(set(types)) > 1)


def _blanks(dtype: Any) -> int:
    """How many columns of nulls without type are in it."""
    if isinstance(dtype, pl.Struct):
        return sum(_blanks(field.dtype) for field in dtype.fields)
    return _blanks(dtype.inner) if isinstance(dtype, pl.List) else int(dtype == pl.Null)


def _filled(dtype: Any, types: list[pl.DataType]) -> Any:
    """The type with ``types`` in the place of nulls without type, taken from the front of the list."""
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: _filled(field.dtype, types) for field in dtype.fields})
    if isinstance(dtype, pl.List):
        return pl.List(_filled(dtype.inner, types))
    return types.pop(0) if dtype == pl.Null else dtype


def columns_for(function: Function, reads: Sequence[Read], rows: int) -> Columns:
    """The columns that the expression of the function reads. Raises `SerdeError`, CS-508."""
    assert function.expression is not None
    uses = uses_of(function)
    columns: dict[str, pl.Series] = {}
    open_: dict[str, bool] = {}
    for read in reads:
        found, is_open = _spread(read, uses) if read.spread else _column(read)
        columns.update(found)
        open_.update(dict.fromkeys(found, is_open))
    if not columns:
        columns["key"] = pl.Series(np.zeros(rows, np.int8))
    frame = pl.DataFrame(columns)
    return Columns(function.expression, frame, frozenset(name for name in open_ if open_[name]), rows)


def _column(read: Read) -> tuple[dict[str, pl.Series], bool]:
    """A column for the use, and whether its type is that of the values."""
    undeclared = read.undeclared()
    series = read.values.column(read.use.names) if undeclared is None else undeclared.series(read.use)
    is_open = undeclared is not None or read.values.is_open()
    return {read.name: fitted(series, read.use, is_open or not read.values.declared())}, is_open


def _spread(read: Read, uses: dict[str, Use]) -> tuple[dict[str, pl.Series], bool]:
    """A column for each field that is wanted, or "value" for a value as a whole; and as `_column`."""
    value, use = read.values, read.use
    if ALL in uses and not value.declared():
        raise ProcessingError(
            "an expression takes all columns, and the values have no declared type that tells which there are",
            code="CS-508",
            next="name the columns, or declare the type: serdes.json(Order)",
        )
    undeclared = read.undeclared()
    series = value.column(None if use.whole else use.fields) if undeclared is None else undeclared.series(use)
    is_open = undeclared is not None or value.is_open()
    columns = _columns_of(series, use, uses, is_open or not value.declared())
    return columns, is_open


def _columns_of(series: pl.Series, use: Use, uses: dict[str, Use], open_: bool) -> dict[str, pl.Series]:
    """The fields of objects by their names; also under "value" what they are as a whole, if none of them is called so.

    A null has all fields, and they are null.
    """
    found = {}
    if isinstance(series.dtype, pl.Struct) or (series.dtype == pl.Null and use.fields):
        fields = fitted(series, Use(fields=use.fields), open_).struct
        found = {name: fields.field(name) for name in fields.schema if name in uses or ALL in uses}
        if WHOLE not in uses:
            return found
    return {**found, WHOLE: fitted(found.get(WHOLE, series), uses.get(WHOLE, Use()), open_)}


def _select(expression: pl.Expr, frame: pl.DataFrame, rows: int) -> pl.Series:
    try:
        result = frame.select(expression.alias("result")).to_series()
    except pl.exceptions.DuplicateError:
        if not expression.meta.has_multiple_outputs():
            raise
        raise ProcessingError(
            "an expression gave several columns, where there is one value for each record",
            code="CS-504",
            next='make one of them: pl.struct(pl.col("a", "b"))',
        ) from None
    if len(result) == rows:
        return result
    if len(result) == 1:
        return result.new_from_index(0, rows)
    raise ProcessingError(
        f"an expression gave {len(result)} rows for {rows} records",
        code="CS-504",
        next="use expressions that give one value for each row: no aggregation, filter or explode",
    )
