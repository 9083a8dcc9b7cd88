"""A topic with a history gives what the whole topic gives, wherever the two are cut.

> results(table up to the seam, topic from the seam on) = results(the whole topic)

Random records, with deletes and times that go back; the table has them in random files, some of them twice; the topic
has lost a random part of what the table has. Random batches, a restart after some of them, and a crash before a commit.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.application.loop import Loop
from crossstream.columns.flat import Format
from crossstream.filetopics import FileTopics
from crossstream.topics import OffsetRange, all_partitions
from tests.lakehouse.histories.topic_and_lake import (
    PARTITIONS,
    Lake,
    Order,
    Record,
    rows_of,
    write_topic,
)
from tests.lakehouse.sources.test_join_law import crashing
from tests.laws.effort import cases

KEYS = "abcdef"
_value = st.none() | st.tuples(st.sampled_from("xyz"), st.integers(0, 9))


@st.composite
def orders(draw: st.DrawFn) -> list[Record]:
    """Each key is in one partition; times move on, and back a little."""
    found, now = [], 1_700_000_000_000
    for key, value, step in draw(
        st.lists(st.tuples(st.sampled_from(KEYS), _value, st.integers(-300, 1_000)), min_size=1, max_size=14)
    ):
        now += step
        found.append(Record(KEYS.index(key) % PARTITIONS, key, value, now))
    return found


people = st.lists(
    st.tuples(st.sampled_from("xyz"), st.integers(0, 9), st.integers(-1_000, 9_000)), max_size=4
).map(
    lambda rows: [
        Record(0, key, (key, amount), 1_700_000_000_000 + at)
        for key, amount, at in sorted(rows, key=lambda row: row[2])
    ]
)


@st.composite
def cuts(draw: st.DrawFn, records: Sequence[Record]) -> tuple[dict[int, int], dict[int, int]]:
    """By partition where the table ends, and where the topic begins."""
    ends = {
        one: draw(st.integers(0, sum(record.partition == one for record in records)))
        for one in range(PARTITIONS)
    }
    return ends, {one: draw(st.integers(0, end)) for one, end in ends.items()}


def table_topology(history: Any) -> cs.Topology:
    builder = cs.StreamsBuilder()
    left = builder.table("orders", value=Order, store="orders", history=history)
    right = builder.table("customers", value=Order)
    left.join(right, foreign_key="customer", on_merge=cs.prefixed("customer_"), store="offers")
    left.group_by("customer").agg(total=cs.agg.sum("amount"), store="totals")
    return builder.build()


def stream_topology(history: Any) -> cs.Topology:
    builder = cs.StreamsBuilder()
    stream = builder.stream("orders", value=Order, history=history)
    customers = builder.table("customers", value=Order)
    there = stream.filter(lambda _, order: order is not None)
    named = there.select_key(lambda _, order: order.customer).join(
        customers, lambda order, customer: {"amount": order.amount, "of": customer.amount}
    )
    named.to("named", value=dict)
    stream.to("copies")
    windows = cs.TimeWindows(size="2 seconds", grace="1 second")
    there.group_by_key().windowed_by(windows).count(store="counts")
    return builder.build()


STORES = {table_topology: ("orders", "offers", "totals"), stream_topology: ("counts",)}


def run(
    topology: cs.Topology,
    stores: Sequence[str],
    folder: Path,
    topics: Path,
    stops: Sequence[int | None],
    crash: int | None = None,
) -> dict[str, Any]:
    """Runs to the end, with a restart after each stop; what the stores and the topics have then.

    ``crash``: after so many batches one ends before its commit, and the application starts again.
    """
    for most in stops:
        config = cs.StreamsConfig(
            application_id="shop",
            state_dir=folder / "state",
            topics_dir=topics,
            engine="local",
            max_records_per_batch=most,
            single_task_rows=0,
        )
        if crash is not None:
            with pytest.MonkeyPatch.context() as patch, suppress(cs.CrossStreamError):
                patch.setattr(Loop, "_commit", crashing(crash))
                with cs.SparkStreams(topology, config) as app:
                    app.process_available()
            crash = None
        with cs.SparkStreams(topology, config) as app:
            app.process_available()
            found = {name: sorted(app.store(name).all(), key=repr) for name in stores}
    return found | {name: read(topics, name) for name in ("named", "copies")}


def read(folder: Path, topic: str) -> list[Any]:
    """The records of a topic by key, in the order of each; the topic may not be there."""
    log, reader = FileTopics(str(folder)).log(), FileTopics(str(folder)).reader()
    counts = log.topics()
    if topic not in counts:
        return []
    found: dict[Any, list[Any]] = {}
    for tp in all_partitions([topic], counts):
        span = OffsetRange(topic, tp.partition, 0, log.end_offsets([tp])[tp])
        for batch in reader.read(span, 1_000):
            for row in batch.to_pylist():
                value = None if row["value"] is None else serdes.json().deserialize(row["value"])
                found.setdefault(row["key"], []).append((value, row["timestamp"]))
    return sorted(found.items())


@pytest.mark.parametrize("form", ["delta", "iceberg"])
@pytest.mark.parametrize("raw", [False, True], ids=["columns", "bytes"])
@pytest.mark.parametrize("topology", [table_topology, stream_topology], ids=["table", "stream"])
@given(data=st.data())
@cases(0.25)
def test_a_history_and_its_topic_are_the_whole_topic(
    form: Format, raw: bool, topology: Any, data: st.DataObject
) -> None:
    records = data.draw(orders())
    customers = data.draw(people)
    ends, begins = data.draw(cuts(records))
    most = st.none() | st.integers(1, 9)
    stops = data.draw(st.lists(most, min_size=1, max_size=3))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lake = Lake(folder, form, raw, by_partition=data.draw(st.booleans()))
        lake.create()
        rows = [row for row in rows_of(records, raw=raw) if row["offset"] < ends[row["partition"]]]
        rows += data.draw(st.lists(st.sampled_from(rows), max_size=3)) if rows else []
        rows = data.draw(st.permutations(rows))
        parts = data.draw(st.lists(st.integers(0, len(rows)), max_size=3).map(sorted))
        for start, stop in zip([0, *parts], [*parts, len(rows)], strict=True):
            if start < stop:
                lake.append(rows[start:stop])
        for topics, lost in ((folder / "whole", None), (folder / "cut", begins)):
            write_topic(topics, records, lost)
            write_topic(topics, customers, topic="customers")
        stores = STORES[topology]
        expected = run(topology(None), stores, folder / "one", folder / "whole", [None])
        crash = data.draw(st.none() | st.integers(0, 3))
        found = run(topology(lake.history()), stores, folder / "two", folder / "cut", stops, crash)
        assert found == expected
