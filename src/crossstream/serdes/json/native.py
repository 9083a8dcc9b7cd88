"""Columns of JSON in C, where crossstream-native is installed (decision 0055).

For objects whose fields are text, numbers and truth values, without limits of their own. The C part gives up on what is
out of the ordinary: then msgspec reads those rows, and says what is wrong with them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import msgspec.inspect as mi
import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.serdes import arrays
from crossstream.serdes.json.shapes import Field, Layout, Leaf, NoColumn, StructOf
from crossstream.serdes.native_part import native_part

_MOST = 64
_TEXT, _WHOLE, _DOUBLE, _TRUTH = range(4)
_NULLABLE, _MAY_MISS, _WANTED = 1, 2, 4

_KINDS: dict[Any, int] = {mi.StrType: _TEXT, mi.IntType: _WHOLE, mi.FloatType: _DOUBLE, mi.BoolType: _TRUTH}
_COLUMNS = {_TEXT: pl.String, _WHOLE: pl.Int64, _DOUBLE: pl.Float64, _TRUTH: pl.Boolean}
_FORMS: dict[int, Any] = {_WHOLE: np.int64, _DOUBLE: np.float64, _TRUTH: np.bool_}
_EVERY = {"ge": -(2**63), "le": 2**63 - 1}
"""Limits that all integers of 64 bits are within."""


class _Field(ctypes.Structure):
    """`cs_json_field` of ``native/src/json.h``."""

    _fields_ = (
        ("name", c_char_p),
        ("name_size", c_int64),
        ("kind", c_int32),
        ("flags", c_int32),
        ("values", c_void_p),
        ("valid", c_void_p),
        ("text", c_void_p),
        ("nulls", c_int64),
    )


def _function() -> Callable[..., int] | None:
    """What makes columns, if it is installed, fits, and is not switched off."""
    part = native_part()
    return None if part is None else _typed(part)


@cache
def _typed(part: ctypes.CDLL) -> Callable[..., int]:
    found = part.cs_json_columns
    found.restype = c_int64
    found.argtypes = [c_void_p, c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_int32]
    return cast("Callable[..., int]", found)


@dataclass(frozen=True, slots=True)
class NativeColumns:
    """Reads rows of some fields. ``fields``: name, kind and flags of each; ``is_open``: others may be there."""

    fields: tuple[tuple[str, int, int], ...]
    is_open: bool

    def decoded(self, data: pa.LargeBinaryArray) -> pl.Series | None:
        """The struct of the fields that are wanted; None if it gives up. Null where there is no row."""
        function = _function()
        if function is None:
            return None
        rows, there = len(data), arrays.validity(data)
        positions, content = arrays.offsets(data), arrays.content(data)
        given = (_Field * len(self.fields))()
        made = [
            _Made.of(field, given[place], rows, int(positions[-1] - positions[0]))
            for place, field in enumerate(self.fields)
        ]
        mask = None if there is None else np.ascontiguousarray(there)
        count = function(
            content.ctypes.data,
            positions.ctypes.data,
            None if mask is None else mask.ctypes.data,
            rows,
            given,
            len(given),
            self.is_open,
        )
        if count < 0:
            return None
        parts = {
            one.name: one.series(given[place], count) for place, one in enumerate(made) if one is not None
        }
        dense = arrays.struct_of(parts, count)
        return dense if there is None else arrays.series_with_nulls(dense, there)


@dataclass(frozen=True, slots=True)
class _Made:
    """The memory of a column that is wanted."""

    name: str
    kind: int
    values: np.ndarray
    valid: np.ndarray
    text: np.ndarray | None

    @classmethod
    def of(cls, field: tuple[str, int, int], given: _Field, rows: int, size: int) -> _Made | None:
        """Says where the column of a field goes, if it is wanted. ``size``: bytes of all rows."""
        name, kind, flags = field
        data = name.encode()
        given.name, given.name_size, given.kind, given.flags = data, len(data), kind, flags
        if not flags & _WANTED:
            return None
        values = np.empty(rows + 1, np.int64) if kind == _TEXT else np.empty(rows, _FORMS[kind])
        made = cls(
            name, kind, values, np.empty(rows, np.bool_), np.empty(size, np.uint8) if kind == _TEXT else None
        )
        given.values, given.valid = values.ctypes.data, made.valid.ctypes.data
        if made.text is not None:
            values[0] = 0
            given.text = made.text.ctypes.data
        return made

    def series(self, given: _Field, rows: int) -> pl.Series:
        valid = self.valid[:rows] if given.nulls else None
        if self.text is not None:
            bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
            buffers = [bits, pa.py_buffer(self.values), pa.py_buffer(self.text)]
            return pl.Series(pa.Array.from_buffers(pa.large_utf8(), rows, buffers))
        if valid is None:
            return pl.Series(self.values[:rows])
        return pl.Series(pa.array(self.values[:rows], mask=~valid))


def native_columns(fields: Sequence[Field], shape: Any, is_open: bool) -> NativeColumns | None:
    """How the C part reads the columns of a ``shape``; None: it cannot.

    ``fields``: all that are checked. ``is_open``: there may be others.
    """
    if not isinstance(shape, StructOf) or shape.tagged or not 0 < len(fields) <= _MOST:
        return None
    wanted = {field.name for field in shape.fields}
    found = [_described(field, field.name in wanted) for field in fields]
    if None in found or not wanted <= {field.name for field in fields}:
        return None
    return NativeColumns(tuple(one for one in found if one is not None), is_open)


def native_of(layout: Layout, shape: Any) -> NativeColumns | None:
    """As `native_columns`, where all fields that have a column form are checked."""
    every = [field for field in layout.fields if not isinstance(field.shape, NoColumn)]
    is_open = len(every) < len(layout.fields) or not layout.options.get("forbid_unknown_fields")
    return native_columns(every, shape, is_open)


def _described(field: Field, is_wanted: bool) -> tuple[str, int, int] | None:
    shape, flags = field.shape, _WANTED if is_wanted else 0
    if not isinstance(shape, Leaf) or shape.narrow is not None:
        return None
    node = mi.type_info(shape.wire)
    kind = _KINDS.get(type(node))
    if kind is None or shape.dtype != _COLUMNS[kind] or not _is_plain(node):
        return None
    if field.default is not None and field.default.default is None:
        flags |= _MAY_MISS
    return field.name, kind, flags | (_NULLABLE if field.nullable else 0)


def _is_plain(node: Any) -> bool:
    """Whether the type has no limits of its own."""
    limits = {name: getattr(node, name) for name in node.__struct_fields__}
    return all(limit is None or _EVERY.get(name) == limit for name, limit in limits.items())
