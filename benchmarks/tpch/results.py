"""The result of a query, as the records of a topic make it: the last value of each key."""

from __future__ import annotations

import time
from collections.abc import Callable

import polars as pl
from confluent_kafka import Consumer, TopicPartition

from benchmarks.generate import ends_of
from benchmarks.tpch.sql import SQL, in_order

REST_SECONDS = 2.0
"""Without a new result for so long, a side is thought to be done, and the results are compared."""


class Fold:
    """The last value of each key. ``key``: the column that the key is, where values do not have it."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.values: dict[bytes, bytes] = {}

    def take(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def rows(self, schema: pl.Schema) -> pl.DataFrame:
        """The rows in the order of `in_order`, with these columns."""
        texts = pl.Series("value", list(self.values.values()), dtype=pl.Binary).cast(pl.String)
        found = texts.str.json_decode(pl.Struct(dict(schema))).struct.unnest()
        if found[self.key].null_count():
            number = schema[self.key].is_integer()
            keys = [int.from_bytes(key, "big") if number else key.decode() for key in self.values]
            found = found.with_columns(pl.Series(self.key, keys, dtype=schema[self.key]))
        return in_order(found)


class Results:
    """The topic of the results of a run. It is read only while no results come: that takes nothing from a side."""

    def __init__(self, servers: str, topic: str, query: str, partitions: int) -> None:
        common = {"bootstrap.servers": servers, "group.id": "bench", "isolation.level": "read_committed"}
        self.asking = Consumer(common)
        self.reading = Consumer({**common, "enable.auto.commit": False, "check.crcs": False})
        self.places = [TopicPartition(topic, number, 0) for number in range(partitions)]
        self.reading.assign(self.places)
        self.fold = Fold(SQL[query].first_key)
        self.query = query
        self.read, self.records = 0, 0
        self.newest = 0

    def close(self) -> None:
        self.asking.close()
        self.reading.close()

    def settle(
        self,
        wanted: pl.DataFrame,
        check: Callable[[], None],
        at_rest: Callable[[], None] = lambda: None,
        patience: float = 900,
    ) -> float:
        """Waits until the result is the wanted one; when the broker appended the last record of it, in seconds.

        ``at_rest`` is called before each look at the results. Raises `RuntimeError` with the difference if the result
        is not the wanted one in time.
        """
        stop = time.monotonic() + patience
        while True:
            ends = self._rest(check, stop)
            at_rest()
            self._read_to(ends)
            if len(self.fold.values) == len(wanted):
                found = self.fold.rows(wanted.schema)
                if found.equals(wanted):
                    return self.newest / 1000
            if time.monotonic() > stop:
                raise RuntimeError(f"{self.query}: {self._difference(wanted)}")

    def _ends(self) -> int:
        return sum(ends_of(self.asking, self.places))

    def _rest(self, check: Callable[[], None], stop: float) -> int:
        """How many results there are, when some came and then none for a while."""
        ends, since = self._ends(), time.monotonic()
        while (ends == self.read or time.monotonic() - since < REST_SECONDS) and time.monotonic() < stop:
            time.sleep(0.1)
            check()
            now = self._ends()
            if now != ends:
                ends, since = now, time.monotonic()
        return ends

    def _read_to(self, ends: int) -> None:
        quiet = 0
        while self.read < ends and quiet < 10:  # ends of transactions count, and do not come
            messages = [m for m in self.reading.consume(10_000, 0.2) if m.error() is None]
            quiet = 0 if messages else quiet + 1
            self.read += len(messages)
            self.records += len(messages)
            for message in messages:
                self.fold.take(message.key() or b"", message.value())
                self.newest = max(self.newest, message.timestamp()[1])
        self.read = ends

    def _difference(self, wanted: pl.DataFrame) -> str:
        found = self.fold.rows(wanted.schema)
        lacks = wanted.join(found, on=wanted.columns, how="anti", nulls_equal=True)
        return f"{len(found)} rows, not the {len(wanted)} wanted; {len(lacks)} are not there: {lacks.head(3).rows()}"
