"""Columns or objects to Avro payloads: every type gives a few columns of bytes, which are joined row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.errors import SerdeError
from crossstream.serdes import arrays, errors
from crossstream.serdes.avro.rows import varint
from crossstream.serdes.avro.schema import Node, column_type, nullable
from crossstream.serdes.avro.types import checked, wire_type
from crossstream.serdes.json import shapes as json_shapes
from crossstream.serdes.json.columns import beyond_the_calendar, conform
from crossstream.serdes.json.plain import NATIVE
from crossstream.serdes.json.shapes import NoColumn

CHUNK = 16_384

_FEW_PARTS = 32
"""Columns of bytes that are joined at once."""


class Target(NamedTuple):
    """What is written, for messages: the name of the serde, and the path to the field."""

    serde: str
    path: str = ""

    def below(self, name: str) -> Target:
        return Target(self.serde, errors.below(self.path, name))


def written(node: Node, values: pl.Series | Sequence[Any], serde: str) -> pa.LargeBinaryArray:
    """The payloads of a column or of objects, none of them null. Raises `SerdeError`."""
    target = Target(serde)
    return _in_chunks(len(values), lambda start, end: _parts(node, values[start:end], target))


def _in_chunks(rows: int, parts: Callable[[int, int], list[pa.LargeBinaryArray]]) -> pa.LargeBinaryArray:
    ends = [(start, min(start + CHUNK, rows)) for start in range(0, rows, CHUNK)]
    made = [joined(parts(start, end), end - start) for start, end in ends]
    return pa.concat_arrays(made) if made else arrays.null_rows(0)


def joined(parts: list[pa.LargeBinaryArray], rows: int) -> pa.LargeBinaryArray:
    """The bytes of each row, one after the other."""
    if not parts:
        return arrays.binary_array(np.zeros(rows + 1, np.int64), b"")
    while len(parts) > 1:
        groups = [parts[at : at + _FEW_PARTS] for at in range(0, len(parts), _FEW_PARTS)]
        parts = [arrays.joined(*group) for group in groups]
    return parts[0]


def _parts(node: Node, values: pl.Series | Sequence[Any], target: Target) -> list[pa.LargeBinaryArray]:
    if node.kind == "union":
        return _union(node, values, target)
    if isinstance(values, pl.Series) and values.null_count():
        raise errors.null_field(target.serde, target.path or "value")
    if node.kind == "record":
        return _record(node, values, target)
    if node.kind in ("array", "map"):
        return _items(node, values, target)
    if node.kind == "null":
        return []
    series = values if isinstance(values, pl.Series) else _series(node, values, target)
    return _single(node, series, target)


def _record(node: Node, values: pl.Series | Sequence[Any], target: Target) -> list[pa.LargeBinaryArray]:
    if isinstance(values, pl.Series):
        columns: Sequence[Any] = values.struct.unnest().get_columns() if node.fields else []
    else:
        if node.recursive:  # where no wire type looks
            values = checked(node, values, target.serde)
        if values and isinstance(values[0], msgspec.Struct):
            columns = [list(map(attrgetter(f"f{at}"), values)) for at in range(len(node.fields))]
        else:
            columns = [list(map(itemgetter(one.name), values)) for one in node.fields]
    return [
        part
        for one, column in zip(node.fields, columns, strict=True)
        for part in _parts(one.node, column, target.below(one.name))
    ]


def _union(node: Node, values: pl.Series | Sequence[Any], target: Target) -> list[pa.LargeBinaryArray]:
    rows = len(values)
    null = next((at for at, part in enumerate(node.parts) if part.kind == "null"), None)
    if isinstance(values, pl.Series) and not values.null_count():  # of one type, or null and one
        at = next((at for at, part in enumerate(node.parts) if part.kind != "null"), 0)
        return [_same(varint(at), rows), *_parts(node.parts[at], values, target)]
    branch = _branches(node, values, null, target)
    made = [varints(branch)]
    for at, part in enumerate(node.parts):
        mask = branch == at
        if part.kind == "null" or not mask.any():
            continue
        if isinstance(values, pl.Series):
            dense: Any = values.filter(pl.Series(mask))
        else:
            dense = [values[row] for row in np.flatnonzero(mask).tolist()]
            if part.logical == "decimal":
                dense = list(map(_as_decimal, dense))
            if len(node.parts) > 2 or null is None:
                dense = checked(part, dense, target.serde)
        made += [spread(one, mask) for one in _parts(part, dense, target)]
    return made


def _branches(node: Node, values: pl.Series | Sequence[Any], null: int | None, target: Target) -> Any:
    """The number of the branch of each value."""
    if isinstance(values, pl.Series):
        if null is None:
            raise errors.null_field(target.serde, target.path or "value")
        other = next((at for at, part in enumerate(node.parts) if part.kind != "null"), null)
        return np.where(values.is_null().to_numpy(), null, other)
    if nullable(node) is not None or len(node.parts) == 1:
        other = next((at for at, part in enumerate(node.parts) if part.kind != "null"), 0)
        return np.array([other if value is not None or null is None else null for value in values], np.int64)
    return np.array([_branch_of(node, value, target) for value in values], np.int64)


_RANKS: dict[type, dict[str, int]] = {
    int: {"int": 0, "long": 0},
    float: {"double": 0, "float": 1},
    Decimal: {"decimal": 0},
    str: {"string": 0, "enum": 0},
    bytes: {"bytes": 0, "fixed": 0},
    UUID: {"uuid": 0},
}
"""The branches of a Python type, by their logical or plain type; others come after them, in the order of the schema."""


def _branch_of(node: Node, value: Any, target: Target) -> int:
    ranks = _RANKS.get(type(value), {})
    names = [part.logical or part.kind for part in node.parts]
    for at in sorted(range(len(names)), key=lambda at: (ranks.get(names[at], 2), at)):
        if _holds(node.parts[at], value):
            return at
    kinds = ", ".join(part.name or part.kind for part in node.parts)
    raise errors.misfit(target.serde, value, f"{target.path or 'the value'} is a union of {kinds}")


def _holds(part: Node, value: Any) -> bool:
    """Whether a branch takes the value, of an integer and a decimal all digits."""
    try:
        if part.logical == "decimal":
            _check_digits(part)(_as_decimal(value))
            return True
        made = msgspec.convert(value, wire_type(part), builtin_types=NATIVE)
    except (msgspec.MsgspecError, TypeError, ValueError):
        return False
    return type(value) not in (int, Decimal) or bool(made == value)


def _as_decimal(value: Any) -> Decimal:
    if type(value) not in (int, Decimal):
        raise TypeError(f"{type(value).__name__} is no decimal")
    return Decimal(value)


@lru_cache(maxsize=1024)
def _check_digits(node: Node) -> json_shapes.Narrow:
    """Raises ValueError for a decimal of more digits than the type has."""
    narrow = json_shapes.decimal(node.precision, node.scale).narrow
    assert narrow is not None
    return narrow


def _items(node: Node, values: pl.Series | Sequence[Any], target: Target) -> list[pa.LargeBinaryArray]:
    entry: list[tuple[Node, Any, Target]]
    inside = Target(target.serde, f"{target.path}[]")
    if isinstance(values, pl.Series):
        counts = values.list.len().to_numpy().astype(np.int64)
        inner = pl.Series(values.to_arrow().flatten())
        if node.kind == "map":
            keys = inner.struct.field("key")
            entry = [(Node("string"), keys, inside), (node.parts[0], inner.struct.field("value"), inside)]
            _refuse_doubles(counts, keys, target)
        else:
            entry = [(node.parts[0], inner, inside)]
    else:
        counts = np.fromiter(map(len, values), np.int64, len(values))
        if node.kind == "map":
            texts = [key for value in values for key in value]
            items = [item for value in values for item in value.values()]
            entry = [(Node("string"), texts, inside), (node.parts[0], items, inside)]
        else:
            entry = [(node.parts[0], list(chain.from_iterable(values)), inside)]
    total = int(counts.sum())
    parts = [part for kind, column, place in entry for part in _parts(kind, column, place)]
    content = joined(parts, total)
    lists = arrays.binary_array(arrays.offsets(content)[arrays.ends_of(counts)], arrays.content(content))
    there = counts > 0
    return [spread(varints(counts[there]), there), lists, _same(b"\x00", len(counts))]


def _refuse_doubles(counts: Any, keys: pl.Series, target: Target) -> None:
    rows = pl.Series(np.repeat(np.arange(len(counts)), counts))
    frame = pl.DataFrame({"row": rows, "key": keys})
    if len(frame) and frame.is_duplicated().any():
        reason = f"a key of the map {target.path or 'value'} occurs twice"
        raise errors.no_bytes_for(target.serde, keys, reason, "keep one entry for each key")


# -- single values ----------------------------------------------------------------------------------------


def _single(node: Node, series: pl.Series, target: Target) -> list[pa.LargeBinaryArray]:
    kind, logical = node.kind, node.logical
    if beyond_the_calendar(series):
        raise errors.beyond_the_calendar(target.serde)
    if logical == "decimal":
        return _decimal(node, series, target)
    if kind in ("int", "long"):
        physical = series.to_physical().cast(pl.Int64).to_numpy()
        if logical.startswith("time-"):
            physical = physical // (1_000_000 if logical == "time-millis" else 1000)
        return [varints(physical)]
    if kind == "boolean":
        return [arrays.from_fixed_rows(series.to_numpy().astype(np.uint8), 1, None)]
    if kind in ("float", "double"):
        dtype, width = (np.float32, 4) if kind == "float" else (np.float64, 8)
        numbers = np.ascontiguousarray(series.to_numpy(), dtype)
        odd = np.isnan(numbers)
        if odd.any():  # one NaN, because keys are equal by their bytes
            numbers = np.where(odd, dtype(np.nan), numbers)
        return [arrays.from_fixed_rows(numbers.view(np.uint8), width, None)]
    if kind == "enum":
        index = series.replace_strict(
            list(node.symbols), list(range(len(node.symbols))), default=None, return_dtype=pl.Int64
        )
        if index.null_count():
            wrong = series.filter(index.is_null())[0]
            reason = f"{target.path or 'the value'} is not a symbol of {node.name}"
            next = f"give one of {', '.join(node.symbols)}"
            raise errors.no_bytes_for(target.serde, wrong, reason, next)
        return [varints(index.to_numpy())]
    if kind == "fixed":
        return [_fixed(node, series, target)]
    rows = arrays.text_bytes(series) if series.dtype == pl.String else _binary(series)
    return [varints(np.diff(arrays.offsets(rows))), rows]


def _binary(series: pl.Series) -> pa.LargeBinaryArray:
    return series.to_arrow().cast(arrays.LARGE_BINARY)


def _fixed(node: Node, series: pl.Series, target: Target) -> pa.LargeBinaryArray:
    if node.logical == "uuid":
        series = series.str.replace_all("-", "").str.decode("hex", strict=False)
    rows = _binary(series)
    if rows.null_count or (np.diff(arrays.offsets(rows)) != node.size).any():
        raise errors.no_bytes_for(
            target.serde,
            series,
            f"{target.path or 'the value'} is not of {node.size} bytes",
            f"give {node.name} values of {node.size} bytes",
        )
    return rows


def _decimal(node: Node, series: pl.Series, target: Target) -> list[pa.LargeBinaryArray]:
    array = series.to_arrow()
    little = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * 16 :][: len(array) * 16].reshape(
        -1, 16
    )
    big = little[:, ::-1]
    sign = np.where(big[:, 0] >= 0x80, 0xFF, 0).astype(np.uint8)
    spare = np.cumprod((big[:, :-1] == sign[:, None]) & ((big[:, 1:] >= 0x80) == (sign[:, None] > 0)), axis=1)
    size = 16 - spare.sum(axis=1, dtype=np.int64)
    if node.kind == "fixed":
        if (size > node.size).any():
            raise errors.no_bytes_for(
                target.serde, series, f"a decimal needs more than {node.size} bytes", "widen the fixed type"
            )
        wide = np.repeat(sign[:, None], max(node.size, 16), axis=1)
        wide[:, -16:] = big
        rows = np.ascontiguousarray(wide[:, wide.shape[1] - node.size :])
        return [arrays.from_fixed_rows(rows.ravel(), node.size, None)]
    content = big[np.arange(16) >= (16 - size)[:, None]]
    return [varints(size), arrays.binary_array(arrays.ends_of(size), content)]


def _series(node: Node, values: Sequence[Any], target: Target) -> pl.Series:
    """A column of objects of a type without parts."""
    if node.logical == "uuid":
        values = [str(value) for value in values]
    elif node.logical == "decimal":
        for value in values:
            try:
                _check_digits(node)(value)
            except ValueError as error:
                raise errors.no_bytes_for(
                    target.serde, value, str(error), "round it, or widen the schema"
                ) from error
    dtype = column_type(node)
    if isinstance(dtype, NoColumn):
        raise errors.no_bytes_for(target.serde, values, dtype.reason, "declare fewer digits in the schema")
    if node.kind == "float":
        made = pl.Series(values, dtype=pl.Float64)
        return _narrow_floats(made, target)
    try:
        return pl.Series(pa.array(values, pl.Series([], dtype=dtype).to_arrow().type))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise errors.misfit(target.serde, values[0], f"{target.path}: {error}") from error


def _narrow_floats(wide: pl.Series, target: Target) -> pl.Series:
    narrow = wide.cast(pl.Float32)
    if (narrow.is_infinite() & wide.is_finite()).any():
        reason = f"{target.path or 'the value'}: a finite number is beyond the range of Float32"
        raise errors.no_bytes_for(target.serde, wide, reason, "use the type double in the schema")
    return narrow


# -- columns of bytes -------------------------------------------------------------------------------------


def varints(values: Any) -> pa.LargeBinaryArray:
    """Numbers as Avro writes them: zigzag, seven bits to a byte."""
    coded = ((values << 1) ^ (values >> 63)).view(np.uint64)
    most = int(coded.max(initial=0))
    if most < 0x80:
        return arrays.binary_array(np.arange(len(coded) + 1), coded.astype(np.uint8))
    width = (most.bit_length() + 6) // 7
    made = np.empty((len(coded), width), np.uint8)
    size = np.ones(len(coded), np.int64)
    for at in range(width):
        group = coded >> np.uint64(7 * at)
        more = group >= 0x80
        made[:, at] = (group & np.uint64(0x7F)).astype(np.uint8) | (more.astype(np.uint8) << 7)
        size += more
    content = made[np.arange(width) < size[:, None]]
    return arrays.binary_array(arrays.ends_of(size), content)


def _same(data: bytes, rows: int) -> pa.LargeBinaryArray:
    return arrays.binary_array(np.arange(rows + 1) * len(data), data * rows)


def spread(rows: pa.LargeBinaryArray, mask: Any) -> pa.LargeBinaryArray:
    """The rows where the mask is true, and empty ones in between."""
    sizes = np.zeros(len(mask), np.int64)
    positions = arrays.offsets(rows)
    sizes[mask] = np.diff(positions)
    return arrays.binary_array(arrays.ends_of(sizes) + positions[0], arrays.content(rows))


def written_attributes(
    node: Node, values: Sequence[Any], names: Sequence[str], serde: str
) -> pa.LargeBinaryArray | None:
    """The payloads of objects with these attributes for the fields of a flat record; None: `checked` says why not."""
    wire = wire_type(node)
    try:
        columns = [list(map(attrgetter(name), values)) for name in names]
        for at, column in enumerate(columns):
            kind: Any = wire.__annotations__[f"f{at}"]
            msgspec.convert(column, list[kind], builtin_types=NATIVE)
    except (msgspec.MsgspecError, TypeError, ValueError, AttributeError):
        return None
    targets = [Target(serde, one.name) for one in node.fields]

    def parts(start: int, end: int) -> list[pa.LargeBinaryArray]:
        given = zip(node.fields, columns, targets, strict=True)
        return [part for one, column, to in given for part in _parts(one.node, column[start:end], to)]

    return _in_chunks(len(values), parts)


def fitted(node: Node, values: pl.Series, serde: str) -> pl.Series:
    """A column in exactly the type of the schema. Raises `SerdeError`."""
    dtype = column_type(node)
    if isinstance(dtype, NoColumn):
        raise errors.no_column(serde, dtype.reason)
    if values.dtype == dtype:
        return values
    try:
        shape = json_shapes.shape_of(dtype)
    except SerdeError as error:
        raise errors.wrong_column(serde, values.dtype, str(dtype), f"cast it to {dtype}") from error
    return conform(values, shape, serde)
