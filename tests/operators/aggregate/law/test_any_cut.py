"""Whatever the batches and partitions, a table of aggregates is the one that single records give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import cases
from tests.operators.aggregate.model import Record, Streams, Tables, Windows

TEXT, NUMBER, JSON = serdes.string(), serdes.int64(), serdes.json()
CONSUMED = cs.Consumed(key=TEXT, value=NUMBER)
KEYS = ("a", "b", "c", "d")

records = st.lists(
    st.tuples(st.sampled_from((*KEYS, None)), st.none() | st.integers(-3, 9), st.integers(0, 60)), max_size=30
)
ways = st.fixed_dictionaries(
    {
        "commit_every": st.sampled_from([1, 2, 3, 7, 100]),
        "partitions": st.integers(1, 3),
        "hash_bits": st.sampled_from([3, 64]),
    }
)


def add(total: int, value: int) -> int | None:
    """Some sums delete the group."""
    return None if (total + value) % 5 == 0 else total + value


def listed(seen: list[int], value: int) -> list[int]:
    seen.append(value)  # in place: the engine has to keep what it gave before
    return seen


def without(seen: list[int], value: int) -> list[int] | None:
    left = list(seen)
    left.remove(value)
    return left or None


AGGREGATES: dict[str, tuple[Callable[[Any], Any], Callable[[], Streams]]] = {
    "count": (
        lambda grouped: grouped.count(materialized=stored(NUMBER)),
        lambda: Streams(lambda n, _: n + 1, lambda: 0),
    ),
    "reduce": (lambda grouped: grouped.reduce(add, materialized=stored(NUMBER)), lambda: Streams(add)),
    "aggregate": (
        lambda grouped: grouped.aggregate(list, listed, materialized=stored(JSON)),
        lambda: Streams(lambda seen, value: [*seen, value], list),
    ),
}


def stored(value: Any) -> cs.Materialized:
    return cs.Materialized(store="groups", value=value)


def run(
    topology: cs.Topology, given_: list[Record], way: dict[str, Any], key: Any, value: Any
) -> tuple[list[Record], Any, Any]:
    """The results, the rows of the store, and what was dropped."""
    one_partition = {**way, "partitions": 1} if way["partitions"] > 1 and key is not TEXT else way
    with cs.TopologyTestDriver(topology, **one_partition) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        for record in given_:
            topic.pipe_input(*record)
        driver.commit()
        found = driver.create_output_topic("out", key, value).read_records()
        rows = None
        if key is TEXT:
            store = driver.get_key_value_store("groups").to_arrow().to_pylist()
            rows = {row["key"]: row["timestamp"] for row in store}
        return [(one.key, one.value, one.timestamp) for one in found], rows, driver.metrics()["dropped"]


def last(results: list[Record]) -> dict[Any, tuple[Any, int]]:
    return {key: (value, ts) for key, value, ts in results}


@pytest.mark.parametrize("operator", AGGREGATES)
@cases()
@given(records, ways)
def test_groups_of_a_stream(operator: str, given_: list[Record], way: dict[str, Any]) -> None:
    make, model_of = AGGREGATES[operator]
    builder = cs.StreamsBuilder()
    table = make(builder.stream("in", CONSUMED).group_by_key())
    value = NUMBER if operator != "aggregate" else JSON
    table.to_stream().to("out", cs.Produced(key=TEXT, value=value))
    if way["partitions"] > 1:  # records of partitions go by their times
        given_ = [(key, item, 10 * place) for place, (key, item, _) in enumerate(given_)]
    model = model_of()
    expected = [result for record in given_ for result in model.take(record)]
    results, rows, dropped = run(builder.build(), given_, way, TEXT, value)
    assert last(results) == last(expected)
    assert rows == {key: ts for key, (_, ts) in model.rows.items()}
    assert sum(dropped.values()) == model.dropped
    if way["commit_every"] == 1 and way["partitions"] == 1:
        assert results == expected


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("operator", AGGREGATES)
@cases()
@given(records, ways, st.sampled_from([(10, 10, 0), (10, 5, 3), (7, 3, 20)]))
def test_groups_in_windows(
    operator: str, final: bool, given_: list[Record], way: dict[str, Any], windows: tuple[int, int, int]
) -> None:
    """With ``emit="close"`` the records, too, are those that single records give."""
    size, advance, grace = windows
    given_ = [record for record in given_ if record[1] is not None]
    builder = cs.StreamsBuilder()
    options = cs.TimeWindows(size=size, advance=advance, grace=grace)
    grouped = (
        builder.stream("in", CONSUMED)
        .group_by_key()
        .windowed_by(options, emit="close" if final else "update")
    )
    value = NUMBER if operator != "aggregate" else JSON
    AGGREGATES[operator][0](grouped).to_stream().to(
        "out", cs.Produced(key=serdes.windowed(TEXT, size), value=value)
    )
    model = Windows(size, advance, grace, AGGREGATES[operator][1](), final)
    expected = [
        ((key, start, start + size), value, ts)
        for record in given_
        for (key, start), value, ts in model.take(record)
    ]
    results, _, dropped = run(builder.build(), given_, way, serdes.windowed(TEXT, size), value)
    assert last(results) == last(expected)
    assert dropped.get("in.count: late", 0) + sum(
        n for name, n in dropped.items() if "count: late" not in name
    ) == (model.late + model.of.dropped)
    if final or way["commit_every"] == 1:
        assert results == expected


@pytest.mark.parametrize("operator", ["count", "reduce", "aggregate"])
@cases()
@given(records, ways)
def test_groups_of_a_table(operator: str, given_: list[Record], way: dict[str, Any]) -> None:
    def group(key: str, value: int) -> tuple[str | None, int]:
        return (None if value < 0 else KEYS[value % 3]), value

    if way["partitions"] > 1:
        given_ = [(key, item, 10 * place) for place, (key, item, _) in enumerate(given_)]
    builder = cs.StreamsBuilder()
    grouped = builder.table("in", CONSUMED).group_by(group, cs.Grouped(key=TEXT, value=NUMBER))
    if operator == "count":
        table, value = grouped.count(materialized=stored(NUMBER)), NUMBER
        model = Tables(group, lambda n, _: n + 1, lambda n, _: n - 1, lambda: 0)
    elif operator == "reduce":
        table, value = (
            grouped.reduce(add, lambda total, item: total - item, materialized=stored(NUMBER)),
            NUMBER,
        )
        model = Tables(group, add, lambda total, item: total - item)
    else:
        table, value = grouped.aggregate(list, listed, without, materialized=stored(JSON)), JSON
        model = Tables(group, lambda seen, item: [*seen, item], without, list)
    table.to_stream().to("out", cs.Produced(key=TEXT, value=value))
    try:
        for record in given_:
            model.take(record)
    except ValueError:  # a group that was deleted meanwhile lacks the old row
        return
    results, rows, _ = run(builder.build(), given_, way, TEXT, value)
    assert {key: row for key, row in last(results).items() if row[0] is not None} == model.rows
    assert rows == {key: ts for key, (_, ts) in model.rows.items()}
