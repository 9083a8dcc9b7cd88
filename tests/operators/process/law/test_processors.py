"""What a processor forwards and keeps does not depend on how the input is cut into batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import cases, law
from tests.operators.suppress.law.test_suppression import (
    CONSUMED,
    NUMBER,
    TEXT,
    by_task,
    some_batches,
    some_partitions,
    tasks,
)

JSON = serdes.json()
Rows = Sequence[tuple[Any, Any, int]]

some_records = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.integers(0, 50)), max_size=25
)


def ran(
    build: Callable[[cs.KStream], cs.KStream],
    records: Rows,
    every: int,
    partitions: int,
    store: str | None = None,
    read: Callable[[cs.TopologyTestDriver], Any] = lambda driver: None,
) -> tuple[list[tuple[Any, Any, int]], Any]:
    """The records of the topic `out`, and what ``read`` finds at the end."""
    builder = cs.StreamsBuilder()
    build(builder.stream("in", CONSUMED)).to("out", cs.Produced(key=TEXT, value=JSON))
    with cs.TopologyTestDriver(builder.build(), partitions, every) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        for name, value, ts in records:
            topic.pipe_input(name, value, timestamp=ts, partition=0)
        driver.commit()
        out = driver.create_output_topic("out", TEXT, JSON).read_records()
        return [(record.key, record.value, record.timestamp) for record in out], read(driver)


class Sums:
    """The sum of each key, and every 10 ms how many keys there are."""

    def init(self, context: cs.ProcessorContext) -> None:
        self.context, self.sums = context, context.store("sums")
        context.schedule(10, "stream-time", self.report)

    def process(self, record: cs.Record) -> None:
        total = self.sums.get(record.key) or {"sum": 0}
        total["sum"] += record.value
        if record.value == 9:
            self.sums.delete(record.key)
        else:
            self.sums.put(record.key, total)
        self.context.forward(record.key, total)
        total["sum"] = -1  # what was put and forwarded stays

    def report(self, now: int) -> None:
        self.context.forward("keys", [key for key, _ in self.sums.all()])


def sums(records: Rows, place: Callable[[str], int]) -> tuple[list[tuple[Any, Any, int]], dict[str, Any]]:
    """The same as plain Python: one stream time, and in each state partition a timer from its first record on."""
    held: dict[int, dict[str, int]] = {}
    out: list[tuple[Any, Any, int]] = []
    clock, due = -1, 0
    for key, value, ts in records:
        clock = max(clock, ts)
        mine = held.setdefault(place(key), {})
        total = mine.get(key, 0) + value
        mine[key] = total
        if value == 9:
            del mine[key]
        out.append((key, {"sum": total}, ts))
        if due <= clock:
            out += [("keys", sorted(one), clock) for one in held.values()]
            due = clock // 10 * 10 + 10
    return out, {key: {"sum": total} for one in held.values() for key, total in one.items()}


@law
@given(some_records, some_batches, some_partitions)
def test_a_processor_with_a_store_and_a_timer(records, every, partitions):
    store = cs.KeyValueStore("sums", key=TEXT, value=JSON)
    expected, left = sums(records, tasks(partitions))
    found, kept = ran(
        lambda stream: stream.process(Sums, [store]),
        records,
        every,
        partitions,
        read=lambda driver: dict(driver.get_key_value_store("sums").all()),
    )
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert kept == left
    if partitions == 1:
        assert found == expected


class Recent:
    """What the last 8 ms had of a key, and which value it had 5 ms ago."""

    def init(self, context: cs.ProcessorContext) -> None:
        self.context = context
        self.window, self.versions = context.store("window"), context.store("versions")

    def process(self, record: cs.Record) -> None:
        self.window.put(record.key, record.value)
        taken = self.versions.put(record.key, None if record.value == 9 else record.value, record.timestamp)
        at = max(record.timestamp - 5, 0)
        self.context.forward(
            record.key,
            [
                self.window.fetch(record.key, record.timestamp - 8, record.timestamp),
                taken,
                self.versions.get(record.key),
                self.versions.get(record.key, at),
            ],
        )


def recent(records: Rows, retention: int, history: int) -> list[tuple[Any, Any, int]]:
    out = []
    window: dict[tuple[str, int], int] = {}
    versions: dict[str, dict[int, int | None]] = {}
    newest = {"window": -1, "versions": -1}
    for key, value, ts in records:
        newest = {name: max(one, ts) for name, one in newest.items()}
        if ts > newest["window"] - retention:
            window[key, ts] = value
        taken = ts >= newest["versions"] - history
        if taken:
            versions.setdefault(key, {})[ts] = None if value == 9 else value
        low = max(ts - 8, newest["window"] - retention + 1)
        seen = sorted([at, one] for (name, at), one in window.items() if name == key and low <= at <= ts)
        held = sorted(versions.get(key, {}).items())
        at = max(ts - 5, 0)
        older = [one for one in held if one[0] <= at]
        valid = older[-1][1] if older else None
        if at < newest["versions"] - history and older and older[-1] != held[-1]:
            valid = None
        out.append((key, [seen, taken, held[-1][1] if held else None, valid], ts))
    return out


@law
@given(some_records, some_batches, some_partitions, st.integers(1, 30), st.integers(0, 30))
def test_windows_and_versions(records, every, partitions, retention, history):
    stores = [
        cs.WindowStore("window", key=TEXT, value=NUMBER, retention=retention),
        cs.VersionedStore("versions", key=TEXT, value=NUMBER, history_retention=history),
    ]
    place = tasks(partitions)
    expected = {n: recent(rows, retention, history) for n, rows in by_task(records, place).items()}
    found, _ = ran(lambda stream: stream.process_values(Recent, stores), records, every, partitions)
    assert by_task([(k, [[list(x) for x in v[0]], *v[1:]], ts) for k, v, ts in found], place) == expected


class Neighbours:
    """Ranges and prefixes, with what the record itself has put."""

    def init(self, context: cs.ProcessorContext) -> None:
        self.context, self.held = context, context.store("held")

    def process(self, record: cs.Record) -> None:
        self.held.put(f"{record.key}{record.value}", record.value)
        if record.value % 3 == 0:
            self.held.delete(f"{record.key}{(record.value + 1) % 10}")
        rows = [list(self.held.prefix(record.key)), list(self.held.range(f"{record.key}3", "c"))]
        self.context.forward(record.key, rows)


def neighbours(records: Rows) -> list[tuple[Any, Any, int]]:
    held: dict[str, int] = {}
    out = []
    for key, value, ts in records:
        held[f"{key}{value}"] = value
        if value % 3 == 0:
            held.pop(f"{key}{(value + 1) % 10}", None)
        rows = sorted(held.items())
        prefix = [list(row) for row in rows if row[0].startswith(key)]
        between = [list(row) for row in rows if f"{key}3" <= row[0] <= "c"]
        out.append((key, [prefix, between], ts))
    return out


@cases(0.5)
@given(some_records, some_batches)
def test_ranges_see_what_the_batch_has_put(records, every):
    store = cs.KeyValueStore("held", key=TEXT, value=NUMBER)
    found, _ = ran(lambda stream: stream.process(Neighbours, [store]), records, every, 1)
    assert [(k, [[list(x) for x in part] for part in v], ts) for k, v, ts in found] == neighbours(records)


def doubled(batch: pa.RecordBatch, context: cs.ProcessorContext) -> pa.RecordBatch:
    store = context.store("last")
    for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
        store.put(key, value)
    return pa.RecordBatch.from_arrays(
        [batch["key"], pc.multiply(batch["value"], 2), batch["timestamp"]],
        names=["key", "value", "timestamp"],
    )


@cases(0.5)
@given(some_records, some_batches, some_partitions)
def test_functions_of_record_batches(records, every, partitions):
    schema = pa.schema({"key": pa.string(), "value": pa.int64(), "timestamp": pa.int64()})
    store = cs.KeyValueStore("last", key=TEXT, value=NUMBER)
    found, kept = ran(
        lambda stream: stream.transform_batches(doubled, schema, stores=[store]),
        records,
        every,
        partitions,
        read=lambda driver: dict(driver.get_key_value_store("last").all()),
    )
    place = tasks(partitions)
    assert by_task(found, place) == by_task([(k, v * 2, ts) for k, v, ts in records], place)
    assert kept == {key: value for key, value, _ in records}
