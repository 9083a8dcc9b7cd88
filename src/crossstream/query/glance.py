"""A look at rows of a store that takes bounded memory, however large their values are: for the page.

Rows are found, merged and ordered with places instead of values, eight bytes that say where a value lies. Values are
read of the rows that are shown, as long as there is room for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import xxhash

from crossstream.query.store import StoreReader, decoded_value
from crossstream.query.text import rows_of, rows_of_key, to_json, to_plain
from crossstream.serdes.primitives import Bytes
from crossstream.storage.compaction import Part, Segment
from crossstream.storage.sorted_run import Run
from crossstream.storage.store import Version

ANSWER_BYTES = 4 << 20
"""Bytes of keys and values of an answer."""
_SHOWN = 100
"""Characters of a key for which there is no room."""

_COLUMNS = ("h", "s", "key", "key2", "n", "value", "ts", "start", "gone")
"""What readers of stores look at."""

Wire: TypeAlias = Any
"""One value as it is stored: a `pyarrow.LargeBinaryArray`."""
Row: TypeAlias = tuple[Any, Wire]


def found(store: StoreReader, operation: str, texts: Sequence[str]) -> Iterator[Row]:
    """All rows, or a range or prefix of the keys, as `rows_of` has them; their values are not read."""
    values: list[pa.LargeBinaryArray] = []
    light = _light(store, values)
    return ((key, _at(values, place)) for key, place in rows_of(light, operation, texts))


def found_of_key(store: StoreReader, key: Any, most: int) -> Iterator[Row]:
    """The row of a key, or its records, windows or sessions. ``most``: rows of a store that is looked at as a whole."""
    values: list[pa.LargeBinaryArray] = []
    if store.by_time is not None and store.approximate_count() <= most:
        return ((place, _at(values, one)) for place, one in rows_of_key(_light(store, values), key))
    raw = rows_of_key(replace(store, value=Bytes()), key)
    return ((place, pa.array([value], pa.large_binary())) for place, value in raw)


@dataclass(slots=True)
class Room:
    """What an answer has room for: ``left``, in bytes. What does not fit is shown by its size."""

    left: int = ANSWER_BYTES

    def shown(self, store: StoreReader, rows: Iterable[Row], most: int) -> tuple[list[list[Any]], bool]:
        """At most so many rows as plain data, and whether there are more."""
        first = list(islice(rows, most + 1))
        return [[self._key(key), self._value(store, wire)] for key, wire in first[:most]], len(first) > most

    def _key(self, key: Any) -> Any:
        text = to_json(key)
        if self._takes(len(text)):
            return to_plain(key)
        return f"{text[:_SHOWN]}… ({len(text):,} characters)"

    def _value(self, store: StoreReader, wire: Wire) -> Any:
        size = _size(wire)
        return (
            to_plain(decoded_value(store, wire)) if self._takes(size) else f"({size:,} bytes, not shown here)"
        )

    def _takes(self, size: int) -> bool:
        fits = size <= self.left
        self.left -= size if fits else 0
        return fits


def digest(rows: Iterable[Row]) -> list[bytes]:
    """The same for the same rows."""
    return [xxhash.xxh3_128_digest(to_json(key).encode() + b"\0" + _content(wire)) for key, wire in rows]


def _content(wire: Wire) -> bytes:
    return b"-" if wire[0].as_py() is None else b"+" + xxhash.xxh3_128_digest(wire[0].as_buffer())


def _size(wire: Wire) -> int:
    return 0 if not wire[0].is_valid else int(wire[0].as_buffer().size)


def _at(values: Sequence[pa.LargeBinaryArray], place: bytes | None) -> Wire:
    if place is None:
        return pa.nulls(1, pa.large_binary())
    segment, row = divmod(int.from_bytes(place, "little"), 1 << 32)
    return values[segment].slice(row, 1)


def _light(store: StoreReader, values: list[pa.LargeBinaryArray]) -> StoreReader:
    """The store with places as values; ``values`` gets what they are places in."""
    versions = [_version(version, values) for version in store.versions()]
    return replace(store, value=Bytes(), versions=lambda: versions)


def _version(version: Version, values: list[pa.LargeBinaryArray]) -> Version:
    layout = version.layout
    kept = tuple(one for one in layout.values if one[0] in _COLUMNS)
    parts = tuple(
        Part(tuple(Segment(_run(segment.run, values)) for segment in part.segments)) for part in version.parts
    )
    return replace(version, layout=replace(layout, values=kept), parts=parts)


def _run(run: Run, values: list[pa.LargeBinaryArray]) -> Run:
    value, rows = run["value"], run.rows
    places = np.arange(rows, dtype=np.int64) + (len(values) << 32)
    values.append(value)
    valid = None if not value.null_count else pa.array(value.is_valid()).buffers()[1]
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int64) * 8)
    made = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), rows, [valid, offsets, pa.py_buffer(places)], value.null_count
    )
    columns = {name: column for name, column in run.columns.items() if name in _COLUMNS}
    return Run({**columns, "value": made}, rows, run.bounds)
