"""Reading a store: look-ups, scans and whole tables, over committed versions of its partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.columns.hashing import hash_keys, partition_of
from crossstream.columns.values import Values
from crossstream.durations import to_timestamp
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, SerdeError
from crossstream.notebook import html_note, html_table, html_title
from crossstream.planning.plan import Plan, StoreDef
from crossstream.query.by_time import ByTime
from crossstream.query.shown import Shown
from crossstream.serdes import calls
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.errors import UNDECODABLE, naming_store
from crossstream.serdes.windowed import Windowed
from crossstream.storage.columns import concat_all, take, take_all
from crossstream.storage.store import Version
from crossstream.tables.rows import latest_versions, lookup, version_at

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 10
"""So many rows a notebook shows."""
_PIECE = 1_024
"""So many rows are decoded at once."""
_EARLIEST, _LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class StoreReader:
    """A read-only view of a key-value store, a versioned one, or one of records, windows or sessions (``by_time``).

    ``versions``: gives one version for each state partition. Keys are ordered by their serialised bytes, as in
    Kafka. Every call of a live reader sees the newest committed batch; one opened ``as_of`` a batch stays there.
    Source: semantics 3.7.

    >>> import crossstream as cs
    >>> text, builder = cs.serdes.string(), cs.StreamsBuilder()
    >>> names = builder.table("names", cs.Consumed(key=text, value=text), cs.Materialized(store="names"))
    >>> names.to_stream().to("out")
    >>> with cs.TopologyTestDriver(builder.build()) as driver:
    ...     driver.create_input_topic("names", text, text).pipe_records([("a", "Ada", 5), ("b", "Bob", 7)])
    ...     store = driver.get_key_value_store("names")
    ...     store.get("a"), store.get_many(["a", "c"]), list(store.range("b")), store.approximate_count()
    ('Ada', {'a': 'Ada'}, [('b', 'Bob')], 2)
    """

    name: str
    key: EngineSerde
    value: EngineSerde
    versions: Callable[[], Sequence[Version]]
    history: int | None = None
    bits: int = 64
    hashed: bool = True
    by_time: ByTime | None = None

    @property
    def kind(self) -> str:
        """``key-value``, ``versioned``, ``window`` or ``session``."""
        if self.by_time is not None:
            return "session" if self.by_time.content == "sessions" else "window"
        return "key-value" if self.history is None else "versioned"

    def get(self, key: Any, as_of_time: int | datetime | None = None) -> Any:
        """The value of ``key``, None if there is no such row. Of windows and sessions the key is a `Windowed`.

        ``as_of_time`` (ms since the epoch, or datetime): of a versioned store, the value valid at that time.
        """
        if self._aggregates and isinstance(key, Windowed):
            found = self._of_key(key.key, key.start, key.end if self.kind == "session" else key.start)
            bounds = zip(found["start"].tolist(), found["end"].tolist(), strict=True)
            with self._located(key=key):
                values = dict(zip(bounds, Values(self.value, wire=found["value"]).objects(), strict=True))
            return values.get((key.start, key.end))
        with self._located(key=key):
            return self._values([self._bytes(key)], as_of_time)[0]

    def fetch(
        self,
        key: Any,
        time_from: int | datetime | None = None,
        time_to: int | datetime | None = None,
    ) -> list[tuple[Any, Any]]:
        """Of a store by time, what it has of a key, oldest first:

            records     (timestamp, value) of those from ``time_from`` to ``time_to``
            windows     (start, value) of those that begin from ``time_from`` to ``time_to``
            sessions    ((start, end), value) of those that have a time from ``time_from`` to ``time_to``

        Times: ms since the epoch, or datetime, both inclusive; None: no bound. Windows and sessions that the store has
        retired do not show, as in Kafka: those that began, or ended, the retention before the newest one.
        """
        by_time = self.by_time
        if by_time is None:
            raise self._unfit("keeps one row for each key, not records by time", "ask for it by get(key)")
        low = _EARLIEST if time_from is None else to_timestamp(time_from, "time_from")
        high = _LATEST if time_to is None else to_timestamp(time_to, "time_to")
        rows = self._of_key(key, low, high)
        with self._located(key=key):
            values = Values(self.value, wire=rows["value"]).objects()
        if by_time.content == "sessions":
            return list(
                zip(zip(rows["start"].tolist(), rows["end"].tolist(), strict=True), values, strict=True)
            )
        return list(
            zip(rows["ts" if by_time.content == "records" else "start"].tolist(), values, strict=True)
        )

    def get_many(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """The values of several keys; keys without a row are left out.

        Raises `StateError` CS-711 for keys that no dict takes, such as dicts, or takes for one, such as 1 and True;
        CS-711 for what is no iterable of keys, or is text or bytes: that is one key.
        """
        wanted = list(self._iterated(keys))
        wire = list(map(self._bytes, wanted))
        step = "ask for one after the other: [store.get(key) for key in keys]"
        check_dict_keys(wanted, wire, step, store=self.name)
        with self._located():
            return {k: v for k, v in zip(wanted, self._values(wire, None), strict=True) if v is not None}

    def range(self, from_key: Any = None, to_key: Any = None) -> Iterator[tuple[Any, Any]]:
        """Rows with ``from_key <= key <= to_key`` in byte order of the serialised key; None: no bound."""
        low = None if from_key is None else self._bytes(from_key)
        high = None if to_key is None else self._bytes(to_key)
        return self._rows(lambda key: (low is None or key >= low) and (high is None or key <= high))

    def prefix(self, prefix: Any) -> Iterator[tuple[Any, Any]]:
        """Rows whose serialised key begins with the serialised ``prefix`` (str and bytes keys)."""
        start = self._bytes(prefix)
        return self._rows(lambda key: key.startswith(start))

    def all(self) -> Iterator[tuple[Any, Any]]:
        """All rows in byte order of the serialised key, then by time.

        Of a store of records the keys are (key, timestamp), of windows and sessions `Windowed`.
        """
        return self._rows(lambda key: True)

    def approximate_count(self) -> int:
        """An upper bound of the number of rows (deleted ones may still be counted)."""
        return sum(version.rows for version in self.versions())

    def count(self) -> int:
        """The number of rows; reads every key of the store."""
        return len(self._live()["key"])

    def to_arrow(self) -> pa.Table:
        """All rows as a table with the columns key, value and timestamp (ms), of windows also start and end (ms).

        Values that no one type of Arrow holds (several kinds in one place, a number of more than 64 bits), or not the
        one that a declared type has as a column (a datetime without a zone, if it is not ``Meta(tz=False)``), are all
        their serialised bytes.
        """
        columns = self._live()
        key = Values(self.key, wire=columns["key"])
        value = Values(self.value, wire=columns["value"])
        with self._located():
            bounds = {
                name: pa.array(columns[name], pa.int64()) for name in ("start", "end") if name in columns
            }
            timestamps = pa.array(columns["ts"], pa.int64())
            made = [_arrow(key), *bounds.values(), _arrow(value), timestamps]
        return pa.table(made, names=["key", *bounds, "value", "timestamp"])

    def to_polars(self) -> pl.DataFrame:
        """All rows as a Polars frame; structured values become struct columns."""
        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame; structured values become dicts."""
        return self.to_arrow().to_pandas()

    def _repr_html_(self) -> str:
        """In a notebook: the first rows."""
        rows = self._live()
        count = len(rows["key"])
        first = {name: take(column, np.arange(min(count, SHOWN))) for name, column in rows.items()}
        facts = [f"{self.kind} store", f"key: {self.key.name}", f"{count:,} rows"]
        table = html_table(("key", "value"), self._decoded(first))
        return html_title(self.name, facts) + table + (html_note("…") if count > SHOWN else "")

    # -- inside ----------------------------------------------------------------------------------------

    def _iterated(self, keys: Iterable[Any]) -> Iterator[Any]:
        try:
            if isinstance(keys, str | bytes):
                raise TypeError  # one key, and not one for each character
            return iter(keys)
        except TypeError:
            what = (
                f"get_many takes several keys, and {type(keys).__name__} is no list or other iterable of them"
            )
            step = "pass a list: get_many([key]); for one key there is get(key)"
            raise refuse("CS-711", what, step, store=self.name) from None

    def _bytes(self, key: Any) -> bytes:
        data = calls.serialize(self.key, key)
        if data is None:
            step = "ask for another key: records without one make no row"
            raise refuse("CS-711", "a key cannot be None", step, store=self.name)
        return data

    def _unfit(self, what: str, step: str) -> CrossStreamError:
        return refuse("CS-711", f"{self.name} {what}", step, store=self.name)

    def _values(self, keys: list[bytes], as_of_time: int | datetime | None) -> list[Any]:
        if self.by_time is not None:
            raise self._unfit(
                f"keeps {self.by_time.content} by time, any number for each key", "ask for them by fetch(key)"
            )
        if as_of_time is not None and self.history is None:
            step = "materialise the table with history_retention to ask for past values"
            raise self._unfit("keeps no versions", step)
        versions = self.versions()
        wire = pa.array(keys, pa.large_binary())
        hashes = hash_keys(wire, self.bits)
        order = np.argsort(hashes, kind="stable")
        pids = partition_of(hashes, len(versions)) if self.hashed else None
        found: list[Any] = [None] * len(keys)
        for pid, version in enumerate(versions):
            mine = order if pids is None else order[pids[order] == pid]
            if len(mine):
                values = self._lookup(version, hashes[mine], take(wire, mine), as_of_time)
                for row, value in zip(mine.tolist(), values, strict=True):
                    found[row] = value if value is not None else found[row]
        return found

    def _lookup(
        self, version: Version, hashes: np.ndarray, keys: Any, at: int | datetime | None
    ) -> list[Any]:
        view, serde = version.snapshot(), self.value
        if self.history is None:
            return lookup(view, hashes, keys, serde).values.objects()
        if at is None:
            return latest_versions(view, hashes, keys, serde).values.objects()
        times = np.full(len(hashes), to_timestamp(at))
        if version.stream_time - self.history > times[0]:
            latest = latest_versions(view, hashes, keys, serde)
            early = latest.ts <= times
            return latest.values.take(np.where(early & latest.present, np.arange(len(hashes)), -1)).objects()
        return version_at(view, hashes, keys, times, serde).values.objects()

    def _live(self) -> dict[str, Any]:
        """Key, value and ts of all rows, ordered by key bytes."""
        if self.by_time is not None:
            return self.by_time.all(self.versions())
        shown = Shown(history=self.history)
        parts = [shown.rows(version, version.snapshot().live()) for version in self.versions()]
        columns = concat_all(parts)
        order = pl.Series(pl.from_arrow(columns["key"])).arg_sort().to_numpy()
        return take_all(columns, order.astype(np.int64))

    def _rows(self, wanted: Callable[[bytes], bool]) -> Iterator[tuple[Any, Any]]:
        columns = self._live()
        keep = np.fromiter((wanted(key) for key in columns["key"].to_pylist()), bool, len(columns["key"]))
        rows = np.flatnonzero(keep)
        pieces = np.split(rows, range(_PIECE, len(rows), _PIECE))
        return (
            row
            for piece in pieces
            for row in self._decoded({name: take(column, piece) for name, column in columns.items()})
        )

    def _decoded(self, rows: dict[str, Any]) -> list[tuple[Any, Any]]:
        """Rows as pairs of a key, with its time, and a value."""
        with self._located():
            keys = calls.decode_objects(self.key, rows["key"])
            values = calls.decode_objects(self.value, rows["value"])
        if self._aggregates:
            keys = list(map(Windowed, keys, rows["start"].tolist(), rows["end"].tolist()))
        elif self.by_time is not None:
            keys = list(zip(keys, rows["ts"].tolist(), strict=True))
        return list(zip(keys, values, strict=True))

    @property
    def _aggregates(self) -> bool:
        """Whether it has windows or sessions."""
        return self.by_time is not None and self.by_time.content != "records"

    def _of_key(self, key: Any, low: int, high: int) -> dict[str, Any]:
        assert self.by_time is not None
        wire = pa.array([self._bytes(key)], pa.large_binary())
        hashes, versions = hash_keys(wire, self.bits), self.versions()
        home = int(partition_of(hashes, len(versions))[0])
        return self.by_time.of_key(versions[home], hashes, wire, low, high)

    def _located(self, **where: Any) -> AbstractContextManager[None]:
        return naming_store(self.name, **where)


def decoded_value(store: StoreReader, wire: pa.LargeBinaryArray) -> Any:
    """The value of a row of a store. Raises `SerdeError` for one that its serde cannot read."""
    with store._located():
        return calls.decode_objects(store.value, wire)[0]


def store_named(plan: Plan, name: str) -> StoreDef | None:
    """The queryable store of this name."""
    return next((store for store in plan.stores.values() if store.public == name), None)


def reader_of(store: StoreDef, versions: Callable[[], Sequence[Version]], bits: int = 64) -> StoreReader:
    """A reader of a queryable store; ``versions`` as in `StoreReader`."""
    return StoreReader(
        store.public or "",
        store.key,
        store.value,
        versions,
        store.history,
        bits,
        hashed=not store.anywhere,
        by_time=ByTime.of(store.layout, store.window_size),
    )


def _arrow(values: Values) -> pa.Array:
    """The values as a column; their bytes where no one type holds them. Raises `SerdeError` for what no serde reads."""
    serde = values.serde
    try:
        if serde is not None and serde.dtype is None:
            return pa.array(values.objects())
        return values.series().to_arrow()
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return values.wire()
    except SerdeError as error:
        if error.code != UNDECODABLE:
            raise
        values.objects()  # may hold more than a column: an int of 65 bits, a time without a zone
        return values.wire()


def check_dict_keys(keys: Sequence[Any], marks: Sequence[object], step: str, **where: object) -> None:
    """Raises `StateError` CS-711 where a dict of these keys would not have them all.

    ``marks``: what differs between keys that Python takes for equal. ``step``: what to do instead.

    >>> check_dict_keys(["a", 1], [b"a", b"1"], "ask for one after the other")
    """
    seen: dict[Any, tuple[Any, object]] = {}
    for key, mark in zip(keys, marks, strict=True):
        try:
            first, other = seen.setdefault(key, (key, mark))
        except TypeError:
            what = f"a key is a {type(key).__name__}, which cannot be a key of the dict to be returned"
            raise refuse("CS-711", what, step, **where, key=key) from None
        if other != mark:
            what = f"the keys {first!r} and {key!r} would be one key of the dict to be returned"
            raise refuse("CS-711", what, step, **where, key=key)
