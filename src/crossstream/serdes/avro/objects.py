"""Columns to the objects that Python functions get: dicts and single values, or instances of a class."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timezone
from itertools import pairwise
from typing import Any
from uuid import UUID

import msgspec.inspect as mi
import numpy as np
import polars as pl

from crossstream.serdes.avro.schema import Node, nullable

Column = pl.Series | list[Any] | None
"""Values of a type: a series where it has a column form, else objects; None: they are only checked."""

Build = Callable[[pl.Series], list[Any]]


def objects(column: Column, node: Node) -> list[Any]:
    """The values as Python functions get them."""
    if not isinstance(column, pl.Series):
        assert column is not None
        return column
    if _is_plain(node):
        return _single(column)
    if column.null_count():
        return _among_nulls(objects(column.drop_nulls(), node), column)
    while node.kind == "union":
        others = [part for part in node.parts if part.kind != "null"]
        if not others:
            return [None] * len(column)
        node = others[0]
    if node.kind == "record":
        names = [one.name for one in node.fields]
        if not names:
            return [{} for _ in range(len(column))]
        parts = column.struct.unnest().get_columns()
        lists = [objects(part, one.node) for part, one in zip(parts, node.fields, strict=True)]
        return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]
    if node.kind in ("array", "map"):
        inner, item = pl.Series(column.to_arrow().flatten()), node.parts[0]
        if node.kind == "array":
            return _cut(objects(inner, item), column)
        keys, values = inner.struct.field("key").to_list(), objects(inner.struct.field("value"), item)
        return list(map(dict, _cut(list(zip(keys, values, strict=True)), column)))
    if node.logical == "uuid":
        return [UUID(one) for one in column.to_list()]
    return _single(column)


def _among_nulls(values: list[Any], column: pl.Series) -> list[Any]:
    """The values, with None where the column has a null."""
    dense = iter(values)
    return [next(dense) if there else None for there in column.is_not_null().to_list()]


def _cut(items: list[Any], lists: pl.Series) -> list[list[Any]]:
    """The items of all lists as a list for each."""
    ends = np.cumsum(lists.list.len().to_numpy(), dtype=np.int64).tolist()
    return [items[start:end] for start, end in pairwise([0, *ends])]


def _is_plain(node: Node) -> bool:
    """Whether a column gives the objects by itself, nulls too."""
    node = nullable(node) or node
    return node.logical != "uuid" and node.kind not in ("record", "array", "map", "union")


def _single(column: pl.Series) -> list[Any]:
    dtype = column.dtype
    if not isinstance(dtype, pl.Datetime) or dtype.time_zone is None:
        return column.to_list()
    naive = column.dt.replace_time_zone(None).to_list()
    return [None if one is None else one.replace(tzinfo=timezone.utc) for one in naive]


def builder(node: Node, kind: mi.Type) -> Build | None:
    """Makes instances of a type from a column of the schema that belongs to it. None: only msgspec can.

    The type takes all values of the schema, and changes none.
    """
    if isinstance(kind, mi.UnionType):
        inner, others = nullable(node), [one for one in kind.types if not isinstance(one, mi.NoneType)]
        made = None if inner is None or len(others) != 1 else builder(inner, others[0])
        if made is None:
            return None
        return lambda column: (
            _among_nulls(made(column.drop_nulls()), column) if column.null_count() else made(column)
        )
    if isinstance(kind, mi.DataclassType | mi.StructType):
        return _instances(node, kind)
    if isinstance(kind, mi.EnumType):
        members = {member.value: member for member in kind.cls}
        return lambda column: [members[one] for one in column.to_list()]
    if isinstance(kind, mi.ListType):
        item = builder(node.parts[0], kind.item_type) if node.kind == "array" else None
        if item is None:
            return None
        return lambda column: _cut(item(pl.Series(column.to_arrow().flatten())), column)
    if isinstance(kind, _SINGLE) and node.kind not in ("record", "array", "map", "union"):
        return lambda column: objects(column, node)
    return None


_SINGLE = (
    mi.BoolType, mi.IntType, mi.FloatType, mi.StrType, mi.BytesType, mi.DateTimeType, mi.DateType, mi.TimeType,
    mi.DecimalType, mi.UUIDType,
)  # fmt: skip


def _instances(node: Node, kind: mi.DataclassType | mi.StructType) -> Build | None:
    if node.kind != "record" or not kind.fields or getattr(kind, "tag", None) is not None:
        return None
    given = {one.name: one.node for one in node.fields}
    if [one.encode_name for one in kind.fields] != list(given):  # all of them, in the order of the arguments
        return None
    if not _takes_arguments(kind):
        return None
    parts = [builder(given[one.encode_name], one.type) for one in kind.fields]
    steps = [part for part in parts if part is not None]
    if len(steps) < len(parts):
        return None

    def build(column: pl.Series) -> list[Any]:
        columns = column.struct.unnest().get_columns()
        return list(map(kind.cls, *(step(one) for step, one in zip(steps, columns, strict=True))))

    return build


def _takes_arguments(kind: mi.DataclassType | mi.StructType) -> bool:
    """Whether the class is called with its fields, one after the other."""
    names = tuple(one.name for one in kind.fields)
    if isinstance(kind, mi.StructType):
        return tuple(kind.cls.__struct_fields__) == names == tuple(kind.cls.__match_args__)
    made = getattr(kind.cls, "__dataclass_fields__", None)
    params = getattr(kind.cls, "__dataclass_params__", None)
    if made is None or params is None or not params.init or "__init__" not in vars(kind.cls):
        return False
    return tuple(made) == names == getattr(kind.cls, "__match_args__", None) and all(
        one.init for one in made.values()
    )
