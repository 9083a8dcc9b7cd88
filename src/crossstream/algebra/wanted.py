"""What the functions of Polars want to be given: the type that a null must have, where the values tell none.

A namespace (``.str``, ``.dt``, …) says it of the first thing that its functions are given, with a few exceptions:
`pl.concat_list`, `pl.concat_str` and `pl.format` take values of any type, `pl.datetime` and `pl.duration` take numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import polars as pl

_LIST, _NUMBER = pl.List(pl.Null()), pl.Int64()

_FAMILIES: dict[str, pl.DataType] = {
    "StringExpr": pl.String(),
    "TemporalExpr": pl.Datetime("ms"),
    "ListExpr": _LIST,
    "BinaryExpr": pl.Binary(),
}
"""What all functions of a namespace want first."""

_FUNCTIONS: dict[tuple[str, str], Iterable[pl.DataType | None]] = {
    ("ListExpr", "Concat"): (),
    ("ListExpr", "SetOperation"): (_LIST, _LIST),
    ("ListExpr", "Sum"): (pl.List(_NUMBER),),  # of no items: 0
    ("StringExpr", "ConcatHorizontal"): (),
    ("StringExpr", "Format"): (),
    ("StructExpr", "WithFields"): (pl.Struct({}),),
    ("TemporalExpr", "DatetimeFunction"): (_NUMBER,) * 7,
    ("TemporalExpr", "Duration"): (_NUMBER,) * 8,
    ("Boolean", "IsIn"): (None, _LIST),
    ("SumHorizontal", "ignore_nulls"): repeat(_NUMBER),  # of nulls: 0
}
"""What single functions want, one after the other; None: anything."""


def wanted(call: Any) -> Iterator[tuple[Any, pl.DataType]]:
    """(what it is given, the type that it wants) of a serialised call of a function, as far as that is known."""
    if isinstance(call, dict) and isinstance(call.get("function"), dict) and call.get("input"):
        types = next((_types(*item) for item in call["function"].items()), ())
        for given, dtype in zip(call["input"], types, strict=False):
            if dtype is not None:
                yield given, dtype


def _types(family: str, call: Any) -> Iterable[pl.DataType | None]:
    """What a function wants. Without options it is its name; with options an object of one entry."""
    name = str(next(iter(call), "")) if isinstance(call, dict) else str(call)
    if (family, name) in _FUNCTIONS:
        return _FUNCTIONS[family, name]
    if (family, name) == ("StructExpr", "RenameFields"):
        return (pl.Struct(dict.fromkeys(map(str, range(len(call[name]))), pl.Null())),)
    if family == "TemporalExpr" and name.startswith("Total"):
        return (pl.Duration("us"),)
    return (_FAMILIES[family],) if family in _FAMILIES else ()
