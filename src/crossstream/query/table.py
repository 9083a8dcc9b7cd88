"""A store as a table: which columns it has, and the rows of a state partition in them.

    the key      its fields, if it is a struct, else the column ``key``
    a window     ``start`` and ``end``
    the value    its fields, or the column ``value``
    its time     ``timestamp``; of all versions of a key ``valid_from`` and ``valid_to``

Key and value stay one column where two columns would have one name; a column of times gets an underscore before its
name. Types are those that Spark has. A value without a declared type is JSON text, or bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.columns.flat import TIME, NoSuchColumn, table_type
from crossstream.columns.values import Values
from crossstream.error_codes import refuse
from crossstream.planning.plan import StoreDef
from crossstream.query.committed import CommittedStore, OpenPartition, PartAt
from crossstream.query.key_filter import Look
from crossstream.query.shown import Shown
from crossstream.serdes import Serde
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.errors import naming_store
from crossstream.serdes.windowed import NO_END
from crossstream.storage.columns import Columns, cut_all
from crossstream.storage.root import Place

Part: TypeAlias = Literal["key", "value", "ts", "start", "end", "until"]

_TIMES: Mapping[Part, str] = {"ts": "timestamp", "start": "start", "end": "end", "until": "valid_to"}
_BEYOND = NO_END // 1000
"""Times from here on (ms) are none in microseconds: of a window without an end, or a version that holds."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. ``part``: of the rows of the store; ``field``: of a struct, None: the whole of it."""

    name: str
    type: pa.DataType
    part: Part
    field: str | None = None


@dataclass(frozen=True, slots=True)
class StoreTable:
    """A queryable store as a table of a state folder. ``columns``: those that it has unless others are asked for."""

    committed: CommittedStore
    shown: Shown
    columns: tuple[Column, ...]

    @classmethod
    def open(
        cls,
        state_dir: Place,
        name: str,
        serdes: Mapping[str, Serde] | None = None,
        registry: Any = None,
        *,
        versions: bool = False,
    ) -> StoreTable:
        """``versions``: of a versioned store all of them. Raises as `open_store`; CS-711 for another kind of store."""
        committed = CommittedStore.open(state_dir, name, serdes, registry)
        if versions and committed.store.history is None:
            step = "leave the option out; or materialise the table with history_retention"
            raise refuse("CS-711", f"{name} keeps no versions", step, store=name)
        shown = Shown.of(committed.store, versions=versions)
        return cls(committed, shown, _columns(committed.store, shown))

    @property
    def name(self) -> str:
        return self.committed.store.public or ""

    def column(self, name: str) -> Column:
        """A column by its name; also ``key`` and ``value`` as a whole. Raises `StateError` CS-711."""
        store = self.committed.store
        whole = (_whole("key", store.key), _whole("value", store.value))
        for column in chain(self.columns, whole):
            if column.name == name:
                return column
        step = f"it has: {', '.join(column.name for column in self.columns)}; and key and value as a whole"
        raise refuse("CS-711", f"the store {self.name} has no column {name!r}", step, store=self.name)

    def rows(self, opened: OpenPartition, part: PartAt, look: Look) -> Columns:
        """Rows of a state partition that are looked for, as bytes and numbers. Raises as `OpenPartition.version`."""
        version = opened.version(part, opened.manifest(part), look.may_be_in)
        return self.shown.rows(version, look.live(version))

    def arrays(self, rows: Columns, columns: Sequence[Column]) -> list[pa.Array]:
        """Columns of rows, in the types of the table. Raises `SerdeError` for bytes that the serdes cannot read."""
        store = self.committed.store
        made: dict[Column, pa.Array] = {}
        with naming_store(self.name):
            for part, serde in (("key", store.key), ("value", store.value)):
                made.update(_decoded(rows[part], serde, [one for one in columns if one.part == part]))
        for column in columns:
            if column not in made:
                made[column] = _times(np.asarray(rows[column.part]))
        return [made[column] for column in columns]


def pieces(rows: Columns, size: int) -> list[Columns]:
    """Rows in pieces of at most ``size``."""
    count = len(rows["key"])
    return [cut_all(rows, start, min(start + size, count)) for start in range(0, count, size)]


def _columns(store: StoreDef, shown: Shown) -> tuple[Column, ...]:
    times: list[Part] = ["ts"] if not shown.versions else ["ts", "until"]
    windows: list[Part] = []
    if shown.by_time is not None and shown.by_time.content != "records":
        windows = ["start", "end"]
    keys = (_spread("key", store.key), (_whole("key", store.key),))
    values = (_spread("value", store.value), (_whole("value", store.value),))
    key, value = next(
        (key, value) for key in keys for value in values if _are_unique([*key, *value]) or value is values[1]
    )
    taken = {column.name.lower() for column in (*key, *value)}
    named = {
        one: "valid_from" if one == "ts" and shown.versions else _TIMES[one] for one in (*windows, *times)
    }
    of_time = {one: Column(f"_{name}" if name in taken else name, TIME, one) for one, name in named.items()}
    return (*key, *(of_time[one] for one in windows), *value, *(of_time[one] for one in times))


def _are_unique(columns: Sequence[Column]) -> bool:
    return len({column.name.lower() for column in columns}) == len(columns)


def _spread(part: Literal["key", "value"], serde: EngineSerde) -> tuple[Column, ...]:
    kind = serde.columns
    if not isinstance(kind, pl.Struct) or not kind.fields:
        return (_whole(part, serde),)
    return tuple(
        Column(field.name, _spark_type(field.dtype, field.name), part, field.name) for field in kind.fields
    )


def _whole(part: Literal["key", "value"], serde: EngineSerde) -> Column:
    return Column(part, _whole_type(part, serde), part)


def _whole_type(part: str, serde: EngineSerde) -> pa.DataType:
    if serde.columns is not None:
        return _spark_type(serde.columns, part)
    return pa.string() if serde.is_text else pa.binary()


def _spark_type(dtype: Any, name: str) -> pa.DataType:
    try:
        return table_type("spark", pl.Series([], dtype=dtype).to_arrow().type, name)
    except NoSuchColumn as error:
        step = "choose other columns: option('columns', 'a,b'); the column value has the bytes as BINARY"
        raise refuse("CS-711", str(error), step) from None


def _decoded(
    wire: pa.LargeBinaryArray, serde: EngineSerde, columns: Sequence[Column]
) -> dict[Column, pa.Array]:
    """Columns of keys or values: their bytes, the whole, or fields."""
    made = {
        column: wire.cast(column.type)
        for column in columns
        if serde.columns is None or column.type == pa.large_binary()
    }
    fields = [column for column in columns if column.field is not None]
    whole = [column for column in columns if column.field is None and column not in made]
    if not (fields or whole):
        return made
    names = None if whole else {str(column.field) for column in fields}
    series = Values(serde, wire=wire).series(names)
    for column in fields:
        made[column] = _as(series.struct.field(str(column.field)).to_arrow(), column.type)
    for column in whole:
        made[column] = _as(series.to_arrow(), column.type)
    return made


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return array if array.type == kind else array.cast(kind)


def _times(ms: np.ndarray) -> pa.Array:
    beyond = ms >= _BEYOND
    return pa.array(np.where(beyond, 0, ms) * 1000, mask=beyond).cast(pa.timestamp("us")).cast(TIME)
