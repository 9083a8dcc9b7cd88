"""Keys of windowed results, with Kafka's bytes: the key, and the window.

    time window     <bytes of the key> <start, 8 bytes>                 the size of all windows is known
    session         <bytes of the key> <end, 8 bytes> <start, 8 bytes>

Numbers are big-endian, as ``TimeWindowedSerializer`` and ``SessionWindowedSerializer`` write them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.serdes import arrays, errors
from crossstream.serdes.contract import ByColumns, EngineSerde
from crossstream.serdes.description import Described
from crossstream.serdes.keys import Composite

NO_END = (1 << 63) - 1
"""The end of a window that has none: Kafka's ``Long.MAX_VALUE``."""


class Windowed(NamedTuple):
    """The key of a windowed result: the key of its records, and the window, in ms since the epoch.

    A time window has the records with ``start <= timestamp < end``; a session or a sliding window those with
    ``start <= timestamp <= end``. Equal to the plain tuple ``(key, start, end)``.

    >>> Windowed("ada", 0, 60_000)
    Windowed(key='ada', start=0, end=60000)
    """

    key: Any
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class WindowedSerde(Composite, ByColumns):
    """`Windowed` keys. ``size``: of every window in ms, None for sessions, whose ends are written too."""

    inner: EngineSerde
    size: int | None = None

    @property
    def name(self) -> str:
        return (
            f"session_windowed[{self.inner.name}]"
            if self.size is None
            else f"windowed[{self.inner.name}, {self.size}]"
        )

    @property
    def dtype(self) -> pl.DataType | None:
        inner = self.inner.dtype
        return None if inner is None else pl.Struct({"key": inner, "start": pl.Int64, "end": pl.Int64})

    @property
    def inner_serdes(self) -> tuple[EngineSerde, ...]:
        return (self.inner,)

    @property
    def window_size(self) -> int | None:
        return self.size

    @property
    def has_windows(self) -> bool:
        return True

    def made_of(self, *inner: EngineSerde) -> WindowedSerde:
        (one,) = inner
        return replace(self, inner=one)

    def described(self) -> Described:
        return Described(self.name, "windowed", sides=(self.inner.described(),), size=self.size)

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, tuple | list) or len(value) != 3:
            raise errors.wrong_type(self.name, value, "Windowed(key, start, end)", "make one: cs.Windowed(…)")
        key, start, end = value
        if self.size is not None and end != self._end(start):
            step = f"a window from {start} ends at {self._end(start)}"
            raise errors.wrong_type(self.name, value, f"a window of {self.size} ms", step)
        data = self.inner.serialize(key)
        if data is None:
            raise errors.wrong_type(self.name, value, "a Windowed with a key", "set the key")
        if self.size is not None:
            return data + int(start).to_bytes(8, "big", signed=True)
        return data + int(end).to_bytes(8, "big", signed=True) + int(start).to_bytes(8, "big", signed=True)

    def _end(self, start: int) -> int:
        assert self.size is not None
        return min(start + self.size, NO_END)

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        return arrays.binary_rows([self.serialize(value) for value in values])

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        there = arrays.validity(data)
        keys, starts, ends = self.split(data if there is None else data.drop_null())
        found = map(Windowed, self.inner.decode_objects(keys), starts.tolist(), ends.tolist())
        return list(found) if there is None else [next(found) if row else None for row in there.tolist()]

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        names = ("key", "start", "end")
        if not isinstance(values.dtype, pl.Struct) or {f.name for f in values.dtype.fields} != set(names):
            wanted = "structs with the fields key, start and end"
            raise errors.wrong_column(
                self.name, values.dtype, wanted, "make one with pl.struct(key=…, start=…, end=…)"
            )
        there = values.is_not_null()
        key, start, end = (values.filter(there).struct.field(name) for name in names)
        if start.null_count() or end.null_count() or key.null_count():
            raise errors.wrong_type(self.name, None, "windows with key, start and end", "set all three")
        starts, ends = (column.cast(pl.Int64).to_numpy() for column in (start, end))
        made = self.joined(self.inner.encode_series(key), starts, ends)
        return arrays.with_nulls(made, there.to_numpy())

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        there = arrays.validity(data)
        keys, starts, ends = self.split(data if there is None else data.drop_null())
        inner = self.inner.decode_series(keys).alias("key")
        struct = pl.DataFrame([inner, pl.Series("start", starts), pl.Series("end", ends)]).to_struct("key")
        return struct if there is None else arrays.series_with_nulls(struct, there)

    def joined(self, keys: pa.LargeBinaryArray, starts: np.ndarray, ends: np.ndarray) -> pa.LargeBinaryArray:
        """Serialised keys of these windows. ``keys``: serialised inner keys, none of them null."""
        numbers = [starts] if self.size is not None else [ends, starts]
        tails = np.column_stack(numbers).astype(">i8")
        return arrays.joined(
            keys, arrays.from_fixed_rows(tails.view(np.uint8).ravel(), 8 * len(numbers), None)
        )

    def split(self, data: pa.LargeBinaryArray) -> tuple[pa.LargeBinaryArray, np.ndarray, np.ndarray]:
        """The inner keys, the starts and the ends of serialised keys, none of them null. Raises `SerdeError`."""
        width = 8 if self.size is not None else 16
        positions = arrays.offsets(data)
        lengths = np.diff(positions)
        if (lengths < width).any():
            raise errors.undecodable(self.name, f"it is shorter than the {width} bytes of a window")
        rows = arrays.content(data)
        places = (positions[1:, None] - width + np.arange(width)).ravel()
        numbers = rows[places].view(">i8").astype(np.int64).reshape(len(data), width // 8)
        kept = np.ones(int(positions[-1] - positions[0]), bool)
        kept[places - positions[0]] = False
        keys = arrays.binary_array(
            arrays.ends_of(lengths - width), rows[int(positions[0]) : int(positions[-1])][kept]
        )
        starts = numbers[:, -1]
        if self.size is None:
            return keys, starts, numbers[:, 0]
        return keys, starts, np.where(starts > NO_END - self.size, NO_END, starts + self.size)
