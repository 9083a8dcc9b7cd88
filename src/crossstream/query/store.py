"""Reading a store: look-ups, scans and whole tables, over committed versions of its partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from crossstream.columns.hashing import hash_keys, partition_of
from crossstream.columns.values import Values
from crossstream.durations import to_timestamp
from crossstream.errors import SerdeError, StateError
from crossstream.operators.table.kernel import latest_versions, lookup, version_at
from crossstream.serdes import Serde
from crossstream.serdes import serde as calls
from crossstream.serdes.refusals import UNDECODABLE, unreadable_row
from crossstream.storage.columns import Column, Columns, concat_all, take, take_all
from crossstream.storage.sorted_run import Run, merge
from crossstream.storage.store import Version

_EARLIEST, _LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class StoreReader:
    """A read-only view of a key-value store, a versioned one, or one of records by time (``windowed``).

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
    key: Serde
    value: Serde
    versions: Callable[[], Sequence[Version]]
    history: int | None = None
    bits: int = 64
    windowed: bool = False

    @property
    def kind(self) -> str:
        """``key-value``, ``versioned`` or ``window``."""
        if self.windowed:
            return "window"
        return "key-value" if self.history is None else "versioned"

    def get(self, key: Any, as_of_time: int | datetime | None = None) -> Any:
        """The value of ``key``, None if there is no such row.

        ``as_of_time`` (ms since the epoch, or datetime): of a versioned store, the value valid at that time.
        """
        with self._located(key=key):
            return self._values([self._bytes(key)], as_of_time)[0]

    def fetch(
        self,
        key: Any,
        time_from: int | datetime | None = None,
        time_to: int | datetime | None = None,
    ) -> list[tuple[int, Any]]:
        """Of a store of records: (timestamp, value) of those with this key, by timestamp, then arrival.

        From ``time_from`` to ``time_to`` (ms since the epoch, or datetime), both inclusive; None: no bound.
        """
        if not self.windowed:
            raise self._unfit("keeps one row for each key, not records by time", "ask for it by get(key)")
        low = _EARLIEST if time_from is None else to_timestamp(time_from, "time_from")
        high = _LATEST if time_to is None else to_timestamp(time_to, "time_to")
        wire = pa.array([self._bytes(key)], pa.large_binary())
        hashes, versions = hash_keys(wire, self.bits), self.versions()
        home = int(partition_of(hashes, len(versions))[0])
        rows = records_of(versions[home], hashes, wire, low, high)
        with self._located(key=key):
            values = Values(self.value, wire=rows["value"]).objects()
        return list(zip(rows["ts"].tolist(), values, strict=True))

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
        """All rows in byte order of the serialised key; of a store of records the keys are (key, timestamp)."""
        return self._rows(lambda key: True)

    def approximate_count(self) -> int:
        """An upper bound of the number of rows (deleted ones may still be counted)."""
        return sum(version.rows for version in self.versions())

    def to_arrow(self) -> pa.Table:
        """All rows as a table with the columns key, value and timestamp (ms).

        Values that no one type of Arrow holds (several kinds in one place, a number of more than 64 bits), or not the
        one that a declared type has as a column (a datetime without a zone, if it is not ``Meta(tz=False)``), are all
        their serialised bytes.
        """
        columns = self._live()
        key = Values(self.key, wire=columns["key"])
        value = Values(self.value, wire=columns["value"])
        with self._located():
            return pa.table(
                {"key": _arrow(key), "value": _arrow(value), "timestamp": pa.array(columns["ts"], pa.int64())}
            )

    def to_polars(self) -> pl.DataFrame:
        """All rows as a Polars frame; structured values become struct columns."""
        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame; structured values become dicts."""
        return self.to_arrow().to_pandas()

    # -- inside ----------------------------------------------------------------------------------------

    def _iterated(self, keys: Iterable[Any]) -> Iterator[Any]:
        try:
            if isinstance(keys, str | bytes):
                raise TypeError  # one key, and not one for each character
            return iter(keys)
        except TypeError:
            raise StateError(
                f"get_many takes several keys, and {type(keys).__name__} is no list or other iterable of them",
                code="CS-711",
                where={"store": self.name},
                next="pass a list: get_many([key]); for one key there is get(key)",
            ) from None

    def _bytes(self, key: Any) -> bytes:
        data = calls.serialize(self.key, key)
        if data is None:
            raise StateError(
                "a key cannot be None",
                code="CS-711",
                where={"store": self.name},
                next="ask for another key: records without one make no row",
            )
        return data

    def _unfit(self, what: str, step: str) -> StateError:
        return StateError(f"{self.name} {what}", code="CS-711", where={"store": self.name}, next=step)

    def _values(self, keys: list[bytes], as_of_time: int | datetime | None) -> list[Any]:
        if self.windowed:
            raise self._unfit("keeps records by time, any number for each key", "ask for them by fetch(key)")
        if as_of_time is not None and self.history is None:
            step = "materialise the table with history_retention to ask for past values"
            raise self._unfit("keeps no versions", step)
        versions = self.versions()
        wire = pa.array(keys, pa.large_binary())
        hashes = hash_keys(wire, self.bits)
        order = np.argsort(hashes, kind="stable")
        pids = partition_of(hashes, len(versions))
        found: list[Any] = [None] * len(keys)
        for pid, version in enumerate(versions):
            mine = order[pids[order] == pid]
            if len(mine):
                values = self._lookup(version, hashes[mine], take(wire, mine), as_of_time)
                for row, value in zip(mine.tolist(), values, strict=True):
                    found[row] = value
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
        if self.windowed:
            return all_records(self.versions())
        parts = [self._live_rows(version) for version in self.versions()]
        columns = concat_all(parts)
        order = pl.Series(pl.from_arrow(columns["key"])).arg_sort().to_numpy()
        return take_all(columns, order.astype(np.int64))

    def _live_rows(self, version: Version) -> dict[str, Any]:
        live = version.snapshot().live()
        if self.history is None:
            return {name: live[name] for name in ("key", "value", "ts")}
        h, s = live["h"], live["s"]
        keys = live["key"].dictionary_encode().indices.to_numpy(zero_copy_only=False)
        order = np.lexsort((s, keys))
        last = np.append(keys[order][1:] != keys[order][:-1], True) if len(h) else np.empty(0, bool)
        rows = order[last]
        rows = rows[np.asarray(live["value"].take(pa.array(rows)).is_valid())] if len(rows) else rows
        return {"key": take(live["key"], rows), "value": take(live["value"], rows), "ts": s[rows]}

    def _rows(self, wanted: Callable[[bytes], bool]) -> Iterator[tuple[Any, Any]]:
        columns = self._live()
        keep = np.fromiter((wanted(key) for key in columns["key"].to_pylist()), bool, len(columns["key"]))
        rows = np.flatnonzero(keep)
        with self._located():
            keys = calls.decode_objects(self.key, take(columns["key"], rows))
            if self.windowed:
                keys = list(zip(keys, columns["ts"][rows].tolist(), strict=True))
            values = calls.decode_objects(self.value, take(columns["value"], rows))
        return iter(list(zip(keys, values, strict=True)))

    @contextmanager
    def _located(self, **where: Any) -> Iterator[None]:
        """Makes an error of bytes in the state that the serdes cannot read."""
        try:
            yield
        except SerdeError as error:
            if error.code != UNDECODABLE:
                raise
            raise unreadable_row(error.what, self.name, **where) from error.__cause__


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
            raise StateError(what, code="CS-711", where={**where, "key": key}, next=step) from None
        if other != mark:
            what = f"the keys {first!r} and {key!r} would be one key of the dict to be returned"
            raise StateError(what, code="CS-711", where={**where, "key": key}, next=step)


Records = dict[str, Any]
"""Columns key, value, ts."""


def records_of(version: Version, hashes: np.ndarray, key: Column, low: int, high: int) -> Records:
    """The records of one key from ``low`` to ``high``, by timestamp, then arrival."""
    bounds = np.array([max(low, version.horizon)]), np.array([high])
    parts: list[Columns] = []
    for run in version.snapshot().segments():
        _, rows = run.match_range(hashes, key, *bounds)
        parts.append(take_all(run.columns, rows))
    found = merge([Run(part) for part in parts], drop_gone=True)
    return _named(found.columns, np.lexsort((found["n"], found["s"])))


def all_records(versions: Sequence[Version]) -> Records:
    """All records of a store, by the bytes of the key, then timestamp, then arrival."""
    live = [version.snapshot().live().columns for version in versions]
    columns = concat_all(
        [take_all(c, np.flatnonzero(c["s"] >= v.horizon)) for c, v in zip(live, versions, strict=True)]
    )
    keys = pl.Series("key", columns["key"])
    order = pl.DataFrame({"key": keys, "s": columns["s"], "n": columns["n"]}).select(
        pl.arg_sort_by("key", "s", "n")
    )
    return _named(columns, order.to_series().to_numpy().astype(np.int64))


def _named(columns: Columns, order: np.ndarray) -> Records:
    rows = take_all(columns, order)
    return {"key": rows["key"], "value": rows["value"], "ts": rows["s"]}
