"""The stores of a processor within a batch: what was kept before, and on top of it what the batch has put.

Values are kept as bytes from the moment they are put, and each `get` gives an object of its own: an object that the
processor changes later changes no store. Plain values (numbers, text) are decoded once. All rows under the keys of a
batch are looked up together, when the first of them is asked for; those of other keys when they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from crossstream.columns.hashing import hash_keys
from crossstream.durations import to_timestamp
from crossstream.error_codes import refuse
from crossstream.serdes import calls
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import take
from crossstream.storage.sorted_run import stable_order
from crossstream.task.runner import OpenStore

Undo = list[tuple[dict[Any, Any], Any, Any]]
"""What has to be put back if a record fails: a dict, a key, and what it held; `NOTHING` for no such key."""

NOTHING: Any = object()
_PLAIN = (str, int, float, bytes, bool)
_ALL = 1 << 62


class View(ABC):
    """What all kinds of stores have. ``now``: the timestamp for what is put without one."""

    def __init__(self, store: OpenStore, bits: int, now: Callable[[], int]) -> None:
        self.store = store
        self.undo: Undo | None = None
        self._bits = bits
        self._now = now
        self._key_serde: EngineSerde = store.definition.key
        self._value_serde: EngineSerde = store.definition.value
        dtype = self._value_serde.dtype
        self._is_plain = dtype is not None and not dtype.is_nested()
        self._own: tuple[Any, bytes | None] = (NOTHING, None)
        self._asked: frozenset[bytes] = frozenset()
        self._kept: dict[bytes, Any] = {}

    def begin(self, keys: Iterable[bytes | None]) -> None:
        """The serialised keys of the batch, which are probably asked for."""
        self._asked = frozenset(key for key in keys if key is not None)

    def at(self, key: Any, data: bytes | None) -> None:
        """The key of the record in hand, and its bytes."""
        self._own = (key, data)

    def _bytes(self, key: Any) -> bytes:
        if key is self._own[0] and self._own[1] is not None:
            return self._own[1]
        data = None if key is None else calls.serialize(self._key_serde, key)
        if data is None:
            step = "ask for another key: records without one make no row"
            raise refuse("CS-711", "a key cannot be None", step, store=self.store.definition.name)
        return data

    def _encoded(self, value: Any) -> bytes | None:
        return None if value is None else calls.serialize(self._value_serde, value)

    def _decoded(self, data: bytes | None) -> Any:
        return None if data is None else calls.deserialize(self._value_serde, data)

    def _set(self, held: dict[Any, Any], key: Any, value: Any) -> None:
        if self.undo is not None:
            self.undo.append((held, key, held.get(key, NOTHING)))
        held[key] = value

    def _before(self, key: bytes) -> Any:
        """What the store had under a key before the batch."""
        if key not in self._kept:
            self._look_up(list(self._asked) if key in self._asked else [key])
        return self._kept[key]

    @abstractmethod
    def _look_up(self, keys: list[bytes]) -> None:
        """Keeps what the store had under these keys before the batch."""

    def _sorted(self, keys: list[bytes]) -> tuple[np.ndarray, pa.Array, np.ndarray]:
        """Hashes in order, the keys in that order, and their places."""
        wire = pa.array(keys, pa.large_binary())
        hashes = hash_keys(wire, self._bits)
        order = stable_order(hashes)
        return hashes[order], take(wire, order), order


class KeyValueView(View):
    """A key-value store of a processor. `None` is no value: to put it deletes the row."""

    def __init__(self, store: OpenStore, bits: int, now: Callable[[], int]) -> None:
        super().__init__(store, bits, now)
        self._fresh: dict[bytes, tuple[bytes | None, int]] = {}
        self._objects: dict[bytes, Any] = {}
        self._rows: tuple[list[bytes], list[bytes]] | None = None

    def get(self, key: Any) -> Any:
        """The value of a key; None if there is none."""
        data = self._bytes(key)
        if data in self._objects:
            return self._objects[data]
        found = self._fresh.get(data)
        value = self._decoded(self._before(data) if found is None else found[0])
        if self._is_plain:
            self._objects[data] = value
        return value

    def put(self, key: Any, value: Any) -> None:
        """Sets the value of a key."""
        data, encoded = self._bytes(key), self._encoded(value)
        self._set(self._fresh, data, (encoded, self._now()))
        if self._is_plain:
            plain = value is None or type(value) in _PLAIN
            self._set(self._objects, data, value if plain else self._decoded(encoded))

    def delete(self, key: Any) -> Any:
        """Deletes a key, and returns the value that it had."""
        value = self.get(key)
        self.put(key, None)
        return value

    def range(self, from_key: Any = None, to_key: Any = None) -> Iterator[tuple[Any, Any]]:
        """Rows with ``from_key <= key <= to_key`` in byte order of the serialised key; None: no bound."""
        low = b"" if from_key is None else self._bytes(from_key)
        high = None if to_key is None else self._bytes(to_key)
        return self._between(low, lambda key: high is None or key <= high)

    def prefix(self, prefix: Any) -> Iterator[tuple[Any, Any]]:
        """Rows whose serialised key begins with the serialised ``prefix``, in byte order."""
        start = self._bytes(prefix)
        return self._between(start, lambda key: key.startswith(start))

    def all(self) -> Iterator[tuple[Any, Any]]:
        """All rows in byte order of the serialised key."""
        return self._between(b"", lambda key: True)

    def _between(self, low: bytes, belongs: Callable[[bytes], bool]) -> Iterator[tuple[Any, Any]]:
        if self._rows is None:
            live = self.store.view.live()
            keys = live["key"].to_pylist()
            order = sorted(range(len(keys)), key=keys.__getitem__)
            values = live["value"].to_pylist()
            self._rows = [keys[row] for row in order], [values[row] for row in order]
        keys, values = self._rows
        found: dict[bytes, bytes | None] = {}
        for place in range(bisect_left(keys, low), len(keys)):
            if not belongs(keys[place]):
                break
            found[keys[place]] = values[place]
        found.update({key: one[0] for key, one in self._fresh.items() if key >= low and belongs(key)})
        rows = sorted((key, value) for key, value in found.items() if value is not None)
        return iter([(calls.deserialize(self._key_serde, key), self._decoded(value)) for key, value in rows])

    def _look_up(self, keys: list[bytes]) -> None:
        hashes, wire, order = self._sorted(keys)
        found = self.store.view.lookup(hashes, wire).gather("value").to_pylist()
        self._kept.update({keys[place]: value for place, value in zip(order.tolist(), found, strict=True)})

    def keep(self) -> None:
        """Puts what the batch has put into the store."""
        if not self._fresh:
            return
        wire = pa.array(list(self._fresh), pa.large_binary())
        values, times = zip(*self._fresh.values(), strict=True)
        self.store.view.put(
            {
                "h": hash_keys(wire, self._bits),
                "key": wire,
                "value": pa.array(values, pa.large_binary()),
                "ts": np.array(times, np.int64),
                "gone": np.array([value is None for value in values], np.uint8),
            }
        )


class TimedView(View):
    """Rows of a key by time. ``length``: for how long (ms) they are kept."""

    length: int

    def __init__(self, store: OpenStore, bits: int, now: Callable[[], int], length: int) -> None:
        super().__init__(store, bits, now)
        self.length = length
        self._fresh: dict[bytes, dict[int, bytes | None]] = {}
        self._newest = {"time": store.stream_time}

    def _time(self, time: int | datetime | None) -> int:
        return self._now() if time is None else to_timestamp(time)

    def _put(self, key: Any, value: Any, time: int) -> None:
        data = self._bytes(key)
        self._set(self._fresh.setdefault(data, {}), time, self._encoded(value))

    def _advance(self, time: int) -> int:
        """The largest timestamp that was put, with this one."""
        newest = max(self._newest["time"], time)
        if newest != self._newest["time"]:
            self._set(self._newest, "time", newest)
        return newest

    def _rows(self, data: bytes) -> dict[int, bytes | None]:
        """Of a key, value by time."""
        return {**self._before(data), **self._fresh.get(data, {})}

    def _look_up(self, keys: list[bytes]) -> None:
        hashes, wire, order = self._sorted(keys)
        self._kept.update({key: {} for key in keys})
        for queries, columns in self.store.view.scan(hashes, wire, _ALL):
            values = columns["value"].to_pylist()
            for query, time, value in zip(queries.tolist(), columns["s"].tolist(), values, strict=True):
                if time >= self.store.horizon:
                    self._kept[keys[order[query]]][time] = value

    def _columns(self) -> dict[str, Any] | None:
        rows = [(key, time, value) for key, held in self._fresh.items() for time, value in held.items()]
        self.store.stream_time = self._newest["time"]
        if not rows:
            return None
        keys, times, values = zip(*rows, strict=True)
        wire = pa.array(keys, pa.large_binary())
        return {
            "h": hash_keys(wire, self._bits),
            "s": np.array(times, np.int64),
            "key": wire,
            "value": pa.array(values, pa.large_binary()),
            "gone": np.zeros(len(rows), np.uint8),
        }


class WindowView(TimedView):
    """A window store of a processor: a value for each key and timestamp. Older rows than its retention expire."""

    def put(self, key: Any, value: Any, timestamp: int | datetime | None = None) -> None:
        """Sets the value of a key at a time; without one at that of the record. None deletes it."""
        time = self._time(timestamp)
        if time > self._advance(time) - self.length:
            self._put(key, value, time)

    def delete(self, key: Any, timestamp: int | datetime | None = None) -> None:
        """Deletes the value of a key at a time."""
        self.put(key, None, timestamp)

    def get(self, key: Any, timestamp: int | datetime | None = None) -> Any:
        """The value of a key at a time, without one at that of the record."""
        time = self._time(timestamp)
        return self._decoded(self._rows(self._bytes(key)).get(time)) if time >= self._oldest() else None

    def fetch(
        self, key: Any, time_from: int | datetime | None = None, time_to: int | datetime | None = None
    ) -> list[tuple[int, Any]]:
        """(timestamp, value) of a key, by timestamp; both bounds inclusive, None: no bound."""
        low = self._oldest() if time_from is None else max(self._oldest(), to_timestamp(time_from))
        high = _ALL if time_to is None else to_timestamp(time_to)
        rows = sorted(self._rows(self._bytes(key)).items())
        return [
            (time, self._decoded(value)) for time, value in rows if low <= time <= high and value is not None
        ]

    def _oldest(self) -> int:
        return self._newest["time"] - self.length + 1

    def keep(self) -> None:
        """Puts what the batch has put into the store; what has expired is gone."""
        columns = self._columns()
        if columns is not None:
            missing = np.asarray(columns["value"].is_null())
            self.store.view.put({**columns, "ts": columns["s"], "gone": missing.astype(np.uint8)})
        self.store.horizon = max(self.store.horizon, self._oldest())


class VersionedView(TimedView):
    """A versioned store of a processor: a value is valid from its timestamp until the next one of its key."""

    def put(self, key: Any, value: Any, timestamp: int | datetime | None = None) -> bool:
        """Sets the value of a key from a time on. False: it is older than the history that is kept, and left out."""
        time = self._time(timestamp)
        taken = time >= self._advance(time) - self.length
        if taken:
            self._put(key, value, time)
        return taken

    def delete(self, key: Any, timestamp: int | datetime | None = None) -> bool:
        """Deletes a key from a time on; returns as `put`."""
        return self.put(key, None, timestamp)

    def get(self, key: Any, as_of_time: int | datetime | None = None) -> Any:
        """The latest value of a key; with ``as_of_time`` the value valid then, None if the history ends before."""
        rows = sorted(self._rows(self._bytes(key)).items())
        time = _ALL if as_of_time is None else to_timestamp(as_of_time)
        place = bisect_right(rows, time, key=lambda row: row[0]) - 1
        if place < 0 or (place < len(rows) - 1 and time < self._newest["time"] - self.length):
            return None
        return self._decoded(rows[place][1])

    def fetch(
        self, key: Any, time_from: int | datetime | None = None, time_to: int | datetime | None = None
    ) -> list[tuple[int, Any]]:
        """(timestamp, value) of the versions of a key that begin between two times; None: a delete, or no bound."""
        low = 0 if time_from is None else to_timestamp(time_from)
        high = _ALL if time_to is None else to_timestamp(time_to)
        rows = sorted(self._rows(self._bytes(key)).items())
        return [(time, self._decoded(value)) for time, value in rows if low <= time <= high]

    def keep(self) -> None:
        """Puts what the batch has put into the store."""
        columns = self._columns()
        if columns is not None:
            self.store.view.put(columns)


ProcessorView = KeyValueView | WindowView | VersionedView
