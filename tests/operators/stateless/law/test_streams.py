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
from tests.laws.pipelines import (
    JSON,
    MOVE,
    OPERATORS,
    TEXT,
    Operator,
    built,
    by_row,
    one_by_one,
    pipelines,
    result_of,
)
from tests.laws.strategies import KEYS, Inputs, records, with_headers
from tests.reference.chain import headers_of

names = st.none() | st.sampled_from(KEYS) | st.sampled_from(KEYS)
values = st.none() | st.fixed_dictionaries({"n": st.integers(0, 5), "name": names})
TWO = with_headers([{"side": "left", "key": "a", "value": None, "ts": ts} for ts in (0, 1)])
RENAMED = [{**item, "key": key, "value": {"n": 2, "name": "c"}} for item, key in zip(TWO, "ab", strict=True)]
RE_KEYED = next(one for one in OPERATORS if one.name == "map")
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
        write(built(operators, parting), to)
    wanted = [
        cs.TestRecord(key, value, item["ts"], headers_of(item))
        for item in as_taken({"inputs": given_}, way)["inputs"]
        for parted in result_of(pipeline, item["key"], item["value"])
        for operators in (one, other)
        for key, value in result_of(operators, *parted)
    ]
    assert_same_by_key(written(builder, given_, way), wanted)


@law
@given(one_by_one, one_by_one, one_by_one, st.sampled_from(["merge", "out", "chosen"]), inputs, ways())
@example([RE_KEYED], [], [], "out", TWO, Way(partitions=5, every=2))
@example([RE_KEYED], [], [], "merge", TWO, Way(partitions=5, every=2))
@example([RE_KEYED], [], [RE_KEYED], "out", RENAMED, Way(partitions=5, every=2))
@example([RE_KEYED], [], [RE_KEYED], "merge", RENAMED, Way(partitions=5, every=2))
def test_ways_of_which_one_moves_keep_the_order_of_a_key(
    stays: list[Operator],
    before: list[Operator],
    after: list[Operator],
    meeting: str,
    given_: Inputs,
    way: Way,
) -> None:
    """What moves to the partition of another key comes after what does not."""
    builder = cs.StreamsBuilder()
    stream = builder.stream("left", cs.Consumed(key=TEXT, value=JSON))
    moves = [*before, MOVE, *after]
    ends = built(moves, stream), built(stays, stream)
    if meeting == "merge":
        write(ends[0].merge(ends[1]), "out")
    else:
        write(ends[0], "out")
        write(ends[1], meeting)
    wanted = [
        cs.TestRecord(key, value, item["ts"], headers_of(item))
        for item in as_taken({"inputs": given_}, way)["inputs"]
        for operators in (stays, moves)
        for key, value in result_of(operators, item["key"], item["value"])
    ]
    assert_same_by_key(written(builder, given_, way), wanted)


def write(stream: cs.KStream, topic: str) -> None:
    """To a topic by its name, or to one that is "chosen" by a function: the same one."""
    stream.to(topic if topic == "out" else lambda key, value: "out", cs.Produced(key=TEXT, value=JSON))


def written(builder: cs.StreamsBuilder, given_: Inputs, way: Way) -> list[cs.TestRecord]:
    found: list[cs.TestRecord] = []
    with way.driver(builder.build()) as driver:
        out = driver.create_output_topic("out", TEXT, JSON)
        for _, ended in way.pipe(driver, {"left": driver.create_input_topic("left", TEXT, JSON)}, given_):
            if ended:
                found += out.read_records()
    return found


def assert_same_by_key(found: Sequence[cs.TestRecord], wanted: Sequence[cs.TestRecord]) -> None:
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
