"""Stores answer what the tables they hold answer: look-ups, ranges, prefixes; past versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import law
from tests.laws.engine import Way, as_taken, ways
from tests.laws.strategies import KEYS, VALUES, Inputs, records
from tests.reference.tables import VersionedTable

TEXT = serdes.string()
names = st.text(alphabet="ab€", max_size=3)
inputs = records({"left": (names, st.none() | st.sampled_from(VALUES))})
versions = records({"left": (st.sampled_from(KEYS), st.none() | st.sampled_from(VALUES))})


def piped(given_: Inputs, way: Way, history: int | None = None) -> cs.TopologyTestDriver:
    builder = cs.StreamsBuilder()
    kept = cs.Materialized(store="rows", history_retention=history)
    builder.table("left", cs.Consumed(key=TEXT, value=TEXT), kept)
    driver = way.driver(builder.build())
    topics = {"left": driver.create_input_topic("left", TEXT, TEXT)}
    for _ in way.pipe(driver, topics, given_):
        pass
    return driver


@law
@given(inputs, ways(), names, names)
def test_key_value_stores(given_: Inputs, way: Way, low: str, high: str) -> None:
    store = piped(given_, way).get_key_value_store("rows")
    last = {item["key"]: (item["value"], item["ts"]) for item in as_taken({"inputs": given_}, way)["inputs"]}
    rows = {key: last[key][0] for key in sorted(last, key=str.encode) if last[key][0] is not None}
    assert list(store.all()) == list(rows.items())
    assert [store.get(key) for key in last] == [value for value, _ in last.values()]
    assert store.get_many([*last, low, high]) == {**rows, **{k: rows[k] for k in (low, high) if k in rows}}
    between = [(key, value) for key, value in rows.items() if low.encode() <= key.encode() <= high.encode()]
    assert list(store.range(low, high)) == between
    assert list(store.range(None, high)) == [r for r in rows.items() if r[0].encode() <= high.encode()]
    assert list(store.range(low)) == [r for r in rows.items() if low.encode() <= r[0].encode()]
    assert list(store.prefix(low)) == [row for row in rows.items() if row[0].startswith(low)]
    assert store.approximate_count() >= len(rows)
    columns = store.to_arrow().to_pydict()
    assert list(zip(*columns.values(), strict=True)) == [(key, *last[key]) for key in rows]
    assert store.to_polars().rows() == [(key, *last[key]) for key in rows]


@law
@given(versions, ways(), st.sampled_from([0, 4, 1000]))
def test_versioned_stores(given_: Inputs, way: Way, history: int) -> None:
    way = replace(way, places=(0,))
    store = piped(given_, way, history).get_versioned_store("rows")
    table = VersionedTable(history)
    for item in as_taken({"inputs": given_}, way)["inputs"]:
        table.put(item["key"], item["value"], item["ts"])

    def at(key: str, time: int | None) -> Any:
        row = table.get(key, time)
        return None if row is None else row.value

    for key in KEYS:
        assert store.get(key) == at(key, None)
        for time in range(max((item["ts"] for item in given_), default=0) + 2):
            assert store.get(key, as_of_time=time) == at(key, time), (key, time)
    assert dict(store.all()) == {key: at(key, None) for key in KEYS if at(key, None) is not None}
