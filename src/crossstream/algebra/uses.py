"""What an expression reads: which columns, which fields of them, and as what.

Fields that are not read are never decoded. Of values without declared type, a field that a row does not have is null,
whatever the expression does with it: the use tells the type such a null must have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import polars as pl

from crossstream.algebra.functions import Function
from crossstream.algebra.wanted import wanted
from crossstream.serdes.json_columns import with_nulls_of

WHOLE = "value"
"""The name by which an expression reads a value as a whole."""

ALL = "*"
"""Stands for all columns there are, where an expression names none: ``pl.all()``, or a selector by type or pattern."""


@dataclass(slots=True)
class Use:
    """How a column or field is read: as a ``whole``, of type ``dtype`` if that is known, or by its ``fields``."""

    whole: bool = False
    dtype: pl.DataType | None = None
    fields: dict[str, Use] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str] | None:
        """The fields that are read; None: all of them."""
        return None if self.whole or not self.fields else frozenset(self.fields)

    def null(self) -> pl.DataType:
        """The type of a null that can be used like this."""
        if self.fields:
            return pl.Struct({name: use.null() for name, use in self.fields.items()})
        return self.dtype or pl.Null()


def uses_of(function: Function) -> dict[str, Use]:
    """For each column that an expression reads, or `ALL`, how it is used. A callable reads no columns."""
    return {} if function.expression is None else _uses(Same(function.expression))


def columns_of(function: Function) -> frozenset[str]:
    """The columns that an expression reads; ``value``, the value as a whole, also where it reads `ALL`."""
    return frozenset(WHOLE if name == ALL else name for name in uses_of(function))


def use_of(function: Function, column: str) -> Use | None:
    """How an expression uses this column; None: it does not."""
    uses = uses_of(function)
    return Use(whole=True) if ALL in uses else uses.get(column)


def fields_of(function: Function, column: str) -> frozenset[str] | None:
    """The fields of a column that an expression reads; None: all of them."""
    use = use_of(function, column)
    return frozenset() if use is None else use.names


def fitted(series: pl.Series, use: Use, open_: bool) -> pl.Series:
    """The column as the use wants it: nulls of a type, and in an ``open_`` struct a null for a missing field."""
    dtype = series.dtype
    if _fits(dtype, use, open_):
        return series
    if isinstance(dtype, pl.List) and use.dtype is not None:
        return series.cast(use.dtype)
    if not isinstance(dtype, pl.Struct):
        return pl.Series([None], dtype=use.null()).new_from_index(0, len(series))
    present = {field.name: series.struct.field(field.name) for field in dtype.fields}
    blank = pl.Series([None], dtype=pl.Null()).new_from_index(0, len(series))
    changed = {
        name: fitted(present.get(name, blank), inner, open_).alias(name)
        for name, inner in use.fields.items()
        if name in present or open_
    }
    return with_nulls_of(pl.DataFrame(list({**present, **changed}.values())).to_struct(series.name), series)


def _fits(dtype: Any, use: Use, open_: bool) -> bool:
    """Whether a column of this type is as the use wants it."""
    if dtype == pl.Null:
        return use.null() == pl.Null
    if dtype == pl.List(pl.Null):
        return use.dtype in (None, dtype) or not isinstance(use.dtype, pl.List)
    if not isinstance(dtype, pl.Struct) or not use.fields:
        return True
    types = {field.name: field.dtype for field in dtype.fields}
    return all(
        _fits(types[name], inner, open_) if name in types else not open_ for name, inner in use.fields.items()
    )


_SELECTORS = frozenset({"DtypeColumn", "Exclude", "IndexColumn", "Nth"})


@dataclass(frozen=True, slots=True, eq=False)
class Same:
    """An expression, equal to itself only: it cannot be hashed, and == on it makes another expression."""

    expression: pl.Expr

    def __hash__(self) -> int:
        return id(self.expression)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.expression is self.expression


_Path: TypeAlias = tuple[str, ...]
"""(column, field, field of it, …)."""


@lru_cache(maxsize=512)
def _uses(same: Same) -> dict[str, Use]:
    parts = serialized(same.expression)
    if parts is None:
        return {name: Use(whole=True) for name in same.expression.meta.root_names() if name}
    root = Use()
    for path, dtype in _reads(parts):
        use = root
        for name in path:
            use = use.fields.setdefault(name, Use())
        use.whole = True
        use.dtype = use.dtype or dtype
    return root.fields


def serialized(expression: pl.Expr) -> Any:
    """The parts of an expression, as Polars writes them as JSON; None where it cannot."""
    try:
        return json.loads(expression.meta.serialize(format="json"))
    except (pl.exceptions.PolarsError, ValueError):
        return None


def reads_columns(part: Any) -> bool:
    """Whether a part of a serialised expression reads any column."""
    return any(True for _ in _reads(part))


def _reads(node: Any, struct: _Path | None = None) -> Iterator[tuple[_Path, pl.DataType | None]]:
    """Everything a serialised expression reads, and its type if known. ``struct``: what ``pl.field`` is of."""
    if isinstance(node, list):
        for item in node:
            yield from _reads(item, struct)
    elif isinstance(node, dict):
        path = _path(node, struct)
        if path is not None:
            yield path, None
            return
        if (names := _selected(node)) is not None:
            yield from (((name,), None) for name in names)
            return
        if isinstance(changed := node.get("StructEval"), dict):
            yield from _reads_of_struct(changed, struct)
            return
        for given, dtype in wanted(node.get("Function")):
            if (path := _path(given, struct)) is not None:
                yield path, dtype
        for kind, item in node.items():
            yield from _reads(operands(kind, item), struct)
    elif node == "Wildcard":
        yield (ALL,), None


def _reads_of_struct(
    node: dict[str, Any], struct: _Path | None
) -> Iterator[tuple[_Path, pl.DataType | None]]:
    """Of ``.struct.with_fields(…)``: the struct as a whole, and what is read of its fields and of columns."""
    whole, fields = node.get("expr"), node.get("evaluation")
    path = _path(whole, struct)
    if path is None:
        yield from _reads(whole, struct)
    else:
        yield path, pl.Struct({})
    yield from _reads(fields, path)


def operands(kind: str, node: Any) -> Any:
    """Of the inner part of a serialised expression of a kind what expressions it has, not names and options."""
    if kind in ("Column", "Field", "Literal"):
        return None
    if kind == "Alias" and isinstance(node, list):
        return node[:1]
    if not isinstance(node, dict):
        return node
    if kind == "Eval":
        return node.get("expr", node)  # what is done with its elements reads nothing else
    return node.get("input") if kind in ("Function", "AnonymousFunction") else node


def _selected(node: dict[str, Any]) -> Sequence[str] | None:
    """The columns that a selector takes; None if the node is none. As Polars has them from 1.32 on, and before."""
    selector = node.get("Selector")
    by_name = selector.get("ByName") if isinstance(selector, dict) else None
    if by_name is None and (selector is not None or not _SELECTORS.isdisjoint(node)):
        return [ALL]
    names: Sequence[str] | None = node.get("Columns") if by_name is None else by_name.get("names", [ALL])
    return names


def _path(node: Any, struct: _Path | None) -> _Path | None:
    """The column and field that a node stands for; None if it is something else."""
    if not isinstance(node, dict):
        return None
    if struct is not None and isinstance(names := node.get("Field"), list) and len(names) == 1:
        return (*struct, names[0])
    if isinstance(column := node.get("Column"), str):
        return (ALL if column.startswith("^") and column.endswith("$") else column,)
    call = node.get("Function")
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return None
    access, inputs = call["function"].get("StructExpr"), call.get("input")
    if (
        not isinstance(access, dict)
        or not isinstance(access.get("FieldByName"), str)
        or not isinstance(inputs, list)
        or len(inputs) != 1
    ):
        return None
    outer = _path(inputs[0], struct)
    return None if outer is None else (*outer, access["FieldByName"])
