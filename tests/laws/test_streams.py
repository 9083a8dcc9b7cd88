"""Row-wise stream operators: a pipeline does to a stream what its functions do to each record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from tests.laws.effort import law
from tests.laws.engine import Way, as_taken, ways
from tests.laws.pipelines import JSON, TEXT, Operator, built, by_row, pipelines, result_of
from tests.laws.strategies import KEYS, Inputs, records, with_headers
from tests.reference.chain import headers_of

names = st.none() | st.sampled_from(KEYS) | st.sampled_from(KEYS)
values = st.none() | st.fixed_dictionaries({"n": st.integers(0, 5), "name": names})
TWO = with_headers([{"side": "left", "key": "a", "value": None, "ts": ts} for ts in (0, 1)])
inputs = records({"left": (names, values)}).map(with_headers)


@law
@given(pipelines, inputs, ways(by_record=True))
def test_one_record_at_a_time(pipeline: list[Operator], given_: Inputs, way: Way) -> None:
    found, _ = run(pipeline, given_, way)
    got, wanted = [shown(records) for records in found], [expected(pipeline, [item]) for item in given_]
    assert got == wanted


@law
@given(pipelines, inputs, ways())
def test_no_cut_into_batches_changes_the_records(pipeline: list[Operator], given_: Inputs, way: Way) -> None:
    found, _ = run(pipeline, given_, way)
    start = 0
    for end, records_ in zip(way.ends(len(given_)), found, strict=True):
        assert Counter(shown(records_)) == Counter(expected(pipeline, given_[start:end]))
        start = end


@law
@given(pipelines, inputs, ways())
def test_the_last_record_of_a_key_is_its_row(pipeline: list[Operator], given_: Inputs, way: Way) -> None:
    _, table = run(pipeline, given_, way)
    rows: dict[str, Any] = {}
    for item in as_taken({"inputs": given_}, way)["inputs"]:
        for key, value in result_of(pipeline, item["key"], item["value"]):
            if key is not None:
                rows[key] = value
    assert table == {key: value for key, value in rows.items() if value is not None}


topics = st.sampled_from(["out", "out", "chosen"])
"""Of a sink: by name, or by a function of the record."""


@law
@given(pipelines, by_row, by_row, topics, topics, inputs, ways())
@example([], [], [], "out", "chosen", TWO, Way(every=2))
def test_sinks_of_one_topic_keep_the_order_of_a_key(
    pipeline: list[Operator],
    one: list[Operator],
    other: list[Operator],
    to_one: str,
    to_other: str,
    given_: Inputs,
    way: Way,
) -> None:
    builder = cs.StreamsBuilder()
    parting = built(pipeline, builder.stream("left", cs.Consumed(key=TEXT, value=JSON)))
    for operators, to in ((one, to_one), (other, to_other)):
        topic = to if to == "out" else lambda key, value: "out"
        built(operators, parting).to(topic, cs.Produced(key=TEXT, value=JSON))
    found: list[cs.TestRecord] = []
    with way.driver(builder.build()) as driver:
        out = driver.create_output_topic("out", TEXT, JSON)
        for _, ended in way.pipe(driver, {"left": driver.create_input_topic("left", TEXT, JSON)}, given_):
            if ended:
                found += out.read_records()
    wanted = [
        cs.TestRecord(key, value, item["ts"], headers_of(item))
        for item in as_taken({"inputs": given_}, way)["inputs"]
        for parted in result_of(pipeline, item["key"], item["value"])
        for operators in (one, other)
        for key, value in result_of(operators, *parted)
    ]
    for key in [*KEYS, None]:
        ours, theirs = ([r for r in records_ if r.key == key] for records_ in (found, wanted))
        assert shown(ours) == shown(theirs)


def run(
    pipeline: list[Operator], given_: Inputs, way: Way
) -> tuple[list[list[cs.TestRecord]], dict[str, Any]]:
    """The records of each batch, and the table that the stream ends as."""
    builder = cs.StreamsBuilder()
    stream = built(pipeline, builder.stream("left", cs.Consumed(key=TEXT, value=JSON)))
    stream.to("out", cs.Produced(key=TEXT, value=JSON))
    stream.to_table(materialized=cs.Materialized(store="table", key=TEXT, value=JSON))
    found: list[list[cs.TestRecord]] = []
    with way.driver(builder.build()) as driver:
        topics = {"left": driver.create_input_topic("left", TEXT, JSON)}
        out = driver.create_output_topic("out", TEXT, JSON)
        for _, ended in way.pipe(driver, topics, given_):
            if ended:
                found.append(out.read_records())
        store = driver.get_key_value_store("table")
        rows = dict(store.all())
        assert store.get_many([*KEYS, "none"]) == rows
    return found, rows


def expected(pipeline: list[Operator], items: Inputs) -> list[str]:
    made = [
        cs.TestRecord(key, value, item["ts"], headers_of(item))
        for item in items
        for key, value in result_of(pipeline, item["key"], item["value"])
    ]
    return shown(made)


def shown(records_: Sequence[cs.TestRecord]) -> list[str]:
    return [repr(record) for record in records_]
