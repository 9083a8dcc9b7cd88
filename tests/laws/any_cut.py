"""Any cut gives the same, for every operator: however records are cut into batches, what comes out is right.

`ROWS` has a row, or several, for each folder of `src/crossstream/operators`; `tests/runtime/test_any_cut.py` tries them
all. A row says which cases there are, and what is checked of one that is run in a `Way`: cut anywhere, on any number of
state partitions, with few bits of the hashes, handed over as objects or as bytes.

    against(...)    what is right says a reference in plain Python
    itself(...)     what is right says the operator, one record in a batch, in one partition

A new operator gets the law by one row: `itself(lambda stream: stream.my_operator(…))`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

import crossstream as cs
from crossstream.durations import LONGEST
from tests.conformance.compare import assert_same_by_input, assert_same_records, assert_same_table
from tests.conformance.runner import Ran, per_batch, read
from tests.laws import stream_runs
from tests.laws.engine import (
    Way,
    as_taken,
    check_by_record,
    check_in_batches,
    check_records,
    run_engine,
    ways,
)
from tests.laws.shapes import IN, REKEYED, SHAPES, TEXT, WINDOWS, Shape, expiring, grouped, placed, versioned
from tests.laws.strategies import (
    Case,
    Inputs,
    case,
    chain_cases,
    foreign_key_cases,
    records,
    stream_cases,
    stream_global_cases,
    stream_table_cases,
    table_cases,
)
from tests.laws.wide import sent_again_while_partners_go, wide_cases
from tests.operators.debezium import change_events, snapshots
from tests.operators.star_join import many
from tests.reference import Output, fold, run

Check = Callable[[Any, Way], object]


@dataclass(frozen=True, slots=True)
class Row:
    """``share``: of the usual number of cases. ``examples``: cases that are always tried, each in its way."""

    cases: st.SearchStrategy[Any]
    check: Check
    ways: st.SearchStrategy[Way]
    examples: Sequence[tuple[Any, Way]] = ()
    share: float = 1.0


Rows = Mapping[str, Row]


# -- against a reference ---------------------------------------------------------------------------------


def against(
    cases: st.SearchStrategy[Any],
    by_record: Check,
    in_batches: Check,
    expressed: st.SearchStrategy[Any] | None = None,
    examples: Sequence[tuple[Any, Way]] = (),
    name: str = "",
) -> Rows:
    """Single records give what the reference gives, exactly; any cut gives its records or its tables.

    ``expressed``: cases whose functions are expressions. ``examples``: of single records.
    """
    rows = {
        "one record at a time": Row(cases, by_record, ways(by_record=True), examples),
        "any cut": Row(cases, in_batches, ways()),
    }
    if expressed is not None:
        rows["expressions"] = Row(expressed, in_batches, ways(functions=["expressions"]))
    return {f"{name}, {row}" if name else row: one for row, one in rows.items()}


def check_same_records(case: Case, way: Way) -> None:
    """M after every batch, with headers and drops: nothing brings the records of several source partitions together."""
    ran, ends, expected = run_engine(case, way), way.ends(len(case["inputs"])), run(as_taken(case, way))
    for got, want in zip(per_batch(ran.outputs, ends), per_batch(expected.outputs, ends), strict=True):
        assert_same_records(got, want)
    assert ran.dropped == expected.dropped.total(), (ran.reasons, expected.dropped)


def in_chunks(check: Callable[[Case, Way, int | None], object]) -> Check:
    """Of a case with the number of rows that a join makes at a time."""
    return lambda given, way: check(given[0], way, given[1])


def chunked(cases: st.SearchStrategy[Case]) -> st.SearchStrategy[tuple[Case, int | None]]:
    return st.tuples(cases, st.sampled_from([None, 1, 2, 5]))


def with_global(case: Case) -> Case:
    """The foreign-key join with its right table as a global one, which keeps no versions."""
    return {**case, "params": {**case["params"], "right_versioned_ms": None, "global": True}}


def of_foreign_keys(
    name: str, kinds: Sequence[str], change: Callable[[Case], Case] = lambda case: case
) -> Rows:
    """Joins by foreign key of these kinds; also with many rows in a batch."""
    wide, again = wide_cases(kinds).map(change), (change(sent_again_while_partners_go(20)), Way(every=40))
    examples = [again] if "inner" in kinds else []
    return {
        **against(
            foreign_key_cases(kinds).map(change),
            check_by_record,
            check_in_batches,
            foreign_key_cases(kinds, versioned=False).map(change),
            name=name,
        ),
        f"{name}, many rows in a batch": Row(wide, check_in_batches, ways(), examples, 0.3),
    }


def vast(case: Case) -> Case:
    """The same with the longest windows, and timestamps as far apart: an eighth of the longest for a millisecond."""
    window = {name: length * (LONGEST // 8) for name, length in case["params"]["window"].items()}
    inputs = [{**item, "ts": min(item["ts"] * (LONGEST // 8), 2 * LONGEST - 1)} for item in case["inputs"]]
    return {**case, "params": {**case["params"], "window": window}, "inputs": inputs}


ANY_STREAMS = (
    stream_cases()
    | stream_cases(eager=True)
    | stream_cases(self_join=True)
    | stream_cases(self_join=True, eager=True)
)
WAITING_STREAMS = stream_cases(("left", "outer")) | stream_cases(("left", "outer"), self_join=True)
OF_STREAMS = in_chunks(stream_runs.check_by_record), in_chunks(stream_runs.check_in_batches)
WAITED = [
    {"side": "left", "key": "a", "value": "x0", "ts": 0},
    {"side": "left", "key": "a", "value": "x1", "ts": 1},
]
"""The second record lets the first one go, which keeps its own headers."""
WAITED_FOR = (case("stream-table", "left", WAITED, table_versioned_ms=4, stream_grace_ms=1), Way())


# -- against itself --------------------------------------------------------------------------------------

Source = Callable[[cs.StreamsBuilder], Any]
"""What an operator is tried on: a builder's input, such as the stream of the topic "left"."""


def itself(
    *shapes: Shape,
    source: Source = lambda builder: builder.stream("left", IN),
    share: float = 1.0,
    ordered: bool = True,
) -> Row:
    """Each shape makes something of the source.

    Of a stream all records of each key must be the same after every batch, in order if it is ``ordered``; of a table
    its rows. A shape that writes to the topic "out" on its own returns None.
    """
    sides: dict[str, tuple[Any, Any]] = {"left": (KEYS, VALUES), "right": (KEYS, VALUES)}
    cases = st.tuples(st.sampled_from(shapes), records(sides, max_size=24))
    return Row(cases, lambda case, way: check_with_itself(*case, source, way, ordered), ways(), share=share)


KEYS, VALUES = st.sampled_from("abcd"), st.sampled_from("12345")


def check_with_itself(shape: Shape, inputs: Inputs, source: Source, way: Way, ordered: bool) -> None:
    """Records of a topic are in one partition: then stream time is that of all of them (decision 0038)."""
    way = replace(way, places=(0,))
    taken = as_taken({"inputs": inputs}, way, ("left", "right"))["inputs"]
    (got, is_table), (want, _) = made(shape, source, inputs, way), made(shape, source, taken, Way())
    ends = way.ends(len(inputs))
    found, expected = per_batch(got.outputs, ends), per_batch(want.outputs, ends)
    if is_table:
        for count in range(1, len(ends) + 1):
            rows = fold(one for batch in expected[:count] for one in batch)
            emitted = [one for batch in found[:count] for one in batch]
            assert_same_table(emitted, {key: value for key, (value, _) in rows.items()})
    elif ordered:
        assert_same_by_input(found, expected)
    else:
        for some, wanted in zip(found, expected, strict=True):
            assert_same_records(some, wanted)
    assert got.reasons == want.reasons


def made(shape: Shape, source: Source, inputs: Inputs, way: Way) -> tuple[Ran, bool]:
    """What the shape gives after each input, and whether it is a table."""
    builder = cs.StreamsBuilder()
    result = shape(source(builder))
    is_table = isinstance(result, cs.KTable)
    if result is not None:
        stream = result.to_stream() if is_table else result
        shown = stream.map(lambda key, value: (repr(key), None if value is None else repr(value)))
        shown.to("out", key=TEXT, value=TEXT)
    topology = builder.build()
    sides = {topic for node in topology for topic in getattr(node, "topics", ())}
    outputs: list[list[Output]] = []
    with way.driver(topology, processing_errors="skip") as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in sides}
        results = driver.create_output_topic("out", TEXT, TEXT)
        for _ in way.pipe(driver, topics, inputs):
            outputs.append(read(results))
        metrics = driver.metrics()
    return Ran(outputs, None, metrics["dropped-records-total"], metrics["dropped"]), is_table


def behind(name: str, ordered: bool = True) -> Row:
    """A shape of `SHAPES`, behind each change of keys there is."""
    return itself(*rekeyed(SHAPES[name]), share=0.5, ordered=ordered)


def rekeyed(shape: Shape) -> list[Shape]:
    return [lambda stream, before=before: shape(before(stream)) for before in REKEYED.values()]  # type: ignore[misc]


def windows(kind: str) -> Shape:
    return lambda stream: grouped(stream).windowed_by(WINDOWS[kind]).count()


def of_a_table(stream: Any) -> Any:
    """Groups of the rows of a table, by value."""
    by_value = placed(stream).to_table().group_by(lambda k, v: (v, k), cs.Grouped(key=TEXT, value=TEXT))
    return by_value.aggregate(list, lambda seen, k: sorted([*seen, k]), lambda seen, k: without(seen, k))


def without(seen: list[str], one: str) -> list[str] | None:
    left = list(seen)
    left.remove(one)
    return left or None


def branched(stream: Any) -> Any:
    branches = stream.split().branch(lambda k, v: v > "3", "many").default_branch("few")
    return branches["many"].map_values(lambda v: v + "!").merge(branches["few"].map(lambda k, v: (v, k)))


def to_a_topic_of_each(stream: Any) -> None:
    stream.to(lambda key, value: "other" if value == "2" else "out", cs.Produced(key=TEXT, value=TEXT))


def timed(builder: cs.StreamsBuilder) -> Any:
    """A stream whose records have other times than in their topic; some are negative, and are left out."""
    at = cs.Consumed(key=TEXT, value=TEXT, timestamp_extractor=lambda k, v, t: t + 3 - int(v))
    return builder.stream("left", at)


def table(builder: cs.StreamsBuilder) -> Any:
    return builder.table("left", IN)


def kept(builder: cs.StreamsBuilder) -> Any:
    return builder.table("left", IN, cs.Materialized(store="kept", history_retention=1000))


def expiring_table(builder: cs.StreamsBuilder) -> Any:
    return builder.table("left", IN, cs.Materialized(store="kept", ttl="5 ms"))


def limited(table: Any) -> Any:
    return table.suppress(cs.Suppressed.until_time_limit(5)).to_stream()


ROWS: Mapping[str, Rows] = {
    "source": {
        "a stream": itself(lambda stream: stream),
        "times of an extractor": itself(lambda stream: stream, source=timed),
        "a table": itself(lambda table: table, source=table),
        "a table with versions": itself(lambda table: table, source=kept),
    },
    "sink": {
        "a topic of each record": itself(to_a_topic_of_each),
        "what is written": itself(lambda stream: stream.to("out")),
    },
    "stateless": {
        "row by row": itself(
            lambda stream: stream.filter(lambda v: v > "2").map_values(lambda v: v * 2),
            lambda stream: stream.flat_map(lambda k, v: [(v, k), (k, v)]),
            lambda stream: stream.flat_map_values(lambda v: list(v * 2)).select_key(lambda k, v: v),
            lambda stream: stream.peek(lambda k, v: None).filter_not(lambda k, v: k == "a"),
            lambda stream: REKEYED["refused behind"](stream),
            branched,
        ),
    },
    "table": {
        "of a stream": itself(lambda stream: stream.to_table()),
        "with versions": itself(*rekeyed(versioned), share=0.5),
        "derived": itself(
            lambda table: table.filter(lambda v: v > "2"),
            lambda table: table.map_values(lambda v: v + "!", materialized=cs.Materialized(store="made")),
            source=table,
        ),
    },
    "expire": {
        "of a topic": itself(
            lambda table: table,
            lambda table: table.filter(lambda v: v > "2"),
            lambda table: limited(table),
            source=expiring_table,
        ),
        "of a stream": itself(*rekeyed(expiring), share=0.5),
        "looked up": behind("look-up of rows that expire"),
        "in groups": itself(lambda stream: of_a_table(expiring(stream).to_stream())),
    },
    "aggregate": {
        "of a stream": itself(
            lambda stream: grouped(stream).count(),
            lambda stream: grouped(stream).reduce(lambda one, other: one + other),
            lambda stream: grouped(stream).aggregate(list, lambda seen, value: [*seen, value]),
            lambda stream: grouped(stream).agg(most=cs.agg.max("value"), all=cs.agg.count()),
        ),
        "of a table": itself(of_a_table, lambda stream: of_a_table(versioned(stream).to_stream())),
    },
    "windowed": {
        **{f"{kind}, update": itself(windows(kind), share=0.5) for kind in WINDOWS},
        **{f"{kind}, close": behind(f"{kind}, close") for kind in WINDOWS},
        "of windows": behind("windows of windows"),
    },
    "suppress": {
        **{f"{kind} windows": behind(f"{kind}, suppressed") for kind in WINDOWS},
        "time limit": behind("time limit"),
        "time limit behind a filter": behind("time limit behind a filter"),
        "of tables": itself(
            limited,
            lambda table: limited(table.map_values(lambda v: v * 2)),
            lambda table: limited(table.filter(lambda v: v > "2")),
            source=table,
        ),
    },
    "deduplicate": {
        "by key": behind("deduplicate"),
        "by value": behind(
            "deduplicate by value", ordered=False
        ),  # each value is in the partition of its own
    },
    "process": {
        name: behind(name) for name in ("processor", "processors", "windows behind a function of batches")
    },
    "stream_join": {
        **against(chunked(ANY_STREAMS), *OF_STREAMS, chunked(stream_cases(max_size=30))),
        "late records of joins that wait": Row(chunked(WAITING_STREAMS), OF_STREAMS[1], ways()),
        **against(chunked(ANY_STREAMS.map(vast)), *OF_STREAMS, name="the longest windows"),
    },
    "stream_table_join": {
        **against(
            stream_table_cases(),
            check_by_record,
            check_records,
            stream_table_cases(nulls=False),
            [WAITED_FOR],
        ),
        "a key changes many times in a batch": Row(stream_table_cases(busy=True), check_records, ways()),
    },
    "table_join": {
        **against(table_cases(), check_by_record, check_in_batches, table_cases(versioned=False)),
        **against(chain_cases(), check_by_record, check_in_batches, name="chains"),
    },
    "foreign_key_join": {
        **of_foreign_keys("inner and left", ("inner", "left")),
        **of_foreign_keys("right and outer", ("right", "outer")),
    },
    "global_join": {
        **against(
            stream_global_cases(),
            check_by_record,
            check_same_records,
            stream_global_cases(),
            name="of a stream",
        ),
        "of a stream, many changes of a row": Row(
            stream_global_cases(busy=True), check_same_records, ways(), share=0.5
        ),
        **of_foreign_keys("of a table", ("inner", "left"), with_global),
    },
    "star_join": {
        **against(
            many.many_cases(),
            many.check_by_record,
            many.check_any_batches,
            many.many_cases(versioned=False),
            [(many.BEHIND_ITSELF, Way())],
        ),
        "many rows in a batch": Row(many.many_cases(max_size=60), many.check_any_batches, ways(), share=0.3),
    },
    "debezium": {
        **against(change_events.event_cases, change_events.check, change_events.check),
        **against(snapshots.some_lives, snapshots.check, snapshots.check, name="snapshots"),
    },
}
