"""Rows of joins that asked for a partner: each is counted once, as one that found it or one that did not.

Of streams the counts are those of one record at a time, in every batching, and so are those of tables where every
change is made: their results have versions. Other tables ask for the net changes of a batch; and in a join of many a
right row is found by each left row that refers to it at any moment of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import cases
from tests.laws.engine import Way, as_taken, ways
from tests.laws.strategies import FOREIGN_KEYS, KEYS, Inputs, left_rows, records

TEXT, JSON = serdes.string(), serdes.json()
WINDOWS = cs.JoinWindows.of(4, grace=2)
EVERY: Any = {"materialized": cs.Materialized(store="joined", value=JSON, history_retention=1000)}
Counts = tuple[int, int]

lefts = (st.sampled_from([None, *KEYS]), left_rows)
alike = (st.sampled_from([None, *KEYS]), st.none() | st.sampled_from(["x", "y"]))
referred = (st.sampled_from([None, *FOREIGN_KEYS]), st.none() | st.sampled_from(["x", "y"]))


def reference(value: str | None) -> str | None:
    found = (value or "-").partition(";")[0]
    return None if found == "-" else found


def pair(left: Any, right: Any) -> Any:
    return [left, right]


class Sides:
    def __init__(self) -> None:
        self.builder = cs.StreamsBuilder()

    def stream(self, side: str = "left") -> Any:
        return self.builder.stream(side, cs.Consumed(key=TEXT, value=TEXT))

    def table(self, side: str = "left") -> Any:
        return self.builder.table(side, cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(store=side))

    def whole(self) -> Any:
        return self.builder.global_table("right", cs.Consumed(key=TEXT, value=TEXT))


def by_reference(join: Any, other: Any) -> Any:
    return join(other, pair, key_selector=lambda key, value: reference(value))


STREAMS: dict[str, Callable[[Sides], Any]] = {
    "stream-table": lambda s: s.stream().join(s.table("right"), pair),
    "stream-table, left": lambda s: s.stream().left_join(s.table("right"), pair),
    "stream-global": lambda s: by_reference(s.stream().join, s.whole()),
    "stream-global, left": lambda s: by_reference(s.stream().left_join, s.whole()),
    "stream-stream": lambda s: s.stream().join(s.stream("right"), pair, WINDOWS),
    "stream-stream, left": lambda s: s.stream().left_join(s.stream("right"), pair, WINDOWS),
    "stream-stream, outer": lambda s: s.stream().outer_join(s.stream("right"), pair, WINDOWS),
    "stream with itself": lambda s: (lambda one: one.left_join(one, pair, WINDOWS))(s.stream()),
}
TABLES: dict[str, Callable[..., Any]] = {
    "table-table": lambda s, **more: s.table().join(s.table("right"), pair, **more),
    "table-table, outer": lambda s, **more: s.table().outer_join(s.table("right"), pair, **more),
    "foreign key": lambda s, **more: s.table().join(s.table("right"), pair, foreign_key=reference, **more),
    "foreign key, left": lambda s, **more: s.table().left_join(
        s.table("right"), pair, foreign_key=reference, **more
    ),
    "foreign key, outer": lambda s, **more: s.table().outer_join(
        s.table("right"), pair, foreign_key=reference, keyed_by=cs.LeftOrRight, **more
    ),
    "table-global": lambda s, **more: s.table().join(s.whole(), pair, foreign_key=reference, **more),
    "many": lambda s, **more: s.table().join_many({"r": (s.table("right"), reference)}, pair, **more),
    "many, left": lambda s, **more: s.table().left_join_many(
        {"r": (s.table("right"), reference)}, pair, **more
    ),
}
BY_KEY = ("stream-table", "stream-stream", "table-table")


def inputs_of(kind: str) -> st.SearchStrategy[Inputs]:
    right = alike if kind.startswith(BY_KEY) else referred
    left = alike if kind.startswith("stream-stream") else lefts
    return records({"left": left, "right": right}, min_size=4)


def asked(topology: cs.Topology, given_: Inputs, way: Way) -> Counts:
    """Rows that found a partner, and rows that found none."""
    read = {name for node in topology for name in getattr(node, "topics", ())}
    with way.driver(topology) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in read}
        for _ in way.pipe(driver, topics, given_):
            pass
        metrics = driver.metrics()
    assert metrics["matched"].keys() == metrics["unmatched"].keys()
    assert len(metrics["matched"]) <= 1
    return sum(metrics["matched"].values()), sum(metrics["unmatched"].values())


def one_by_one(topology: cs.Topology, given_: Inputs, way: Way) -> tuple[Inputs, Way]:
    """The records in the order in which the way takes them: at one time those of tables before those of streams."""
    sources = sorted((node for node in topology if not node.parents), key=lambda node: node.shape == "stream")
    sides = [*(topic for node in sources for topic in node.topics), "left", "right"]
    return as_taken({"inputs": given_}, way, sides)["inputs"], replace(way, every=1, commits=frozenset())


def check_any_cut(build: Callable[[Sides], Any], given_: Inputs, way: Way) -> None:
    def topology() -> cs.Topology:
        sides = Sides()
        build(sides)
        return sides.builder.build()

    way = replace(way, places=(0,))
    assert asked(topology(), given_, way) == asked(topology(), *one_by_one(topology(), given_, way))


class Tables:
    """What record after record asks for, and whether it is there: the slow and obvious way."""

    def __init__(self, kind: str) -> None:
        self.by_key, self.is_global = kind.startswith(BY_KEY), kind == "table-global"
        self.rows: dict[str, dict[str, str]] = {"left": {}, "right": {}}
        self.found: list[bool] = []

    def take(self, side: str, key: str | None, value: str | None) -> None:
        if key is None:
            return
        self.rows[side].pop(key, None)
        if value is None:
            return
        self.rows[side][key] = value
        if self.by_key:
            self.found.append(key in self.rows["right" if side == "left" else "left"])
        elif side == "left" and reference(value) is not None:
            self.found.append(reference(value) in self.rows["right"])
        elif side == "right":
            is_referred = key in map(reference, self.rows["left"].values())
            if is_referred or not self.is_global:
                self.found.append(is_referred)


@pytest.mark.parametrize("kind", sorted(STREAMS))
@cases(0.3)
@given(data=st.data(), way=ways())
def test_of_streams_in_any_batching(kind: str, data: st.DataObject, way: Way) -> None:
    check_any_cut(STREAMS[kind], data.draw(inputs_of(kind)), way)


@pytest.mark.parametrize("kind", [kind for kind in sorted(TABLES) if "many" not in kind])
@cases(0.3)
@given(data=st.data(), way=ways())
def test_of_tables_whose_every_change_is_made(kind: str, data: st.DataObject, way: Way) -> None:
    check_any_cut(lambda sides: TABLES[kind](sides, **EVERY), data.draw(inputs_of(kind)), way)


@pytest.mark.parametrize("kind", sorted(TABLES))
@cases(0.3)
@given(data=st.data(), way=ways(by_record=True), every=st.booleans())
def test_of_tables_by_record(kind: str, data: st.DataObject, way: Way, every: bool) -> None:
    """Each row that comes asks. A row of a global table asks in each partition, and counts where it is found."""
    sides, given_ = Sides(), data.draw(inputs_of(kind))
    TABLES[kind](sides, **(EVERY if every else {}))
    way = replace(way, partitions=1, places=(0,)) if kind == "table-global" else way
    tables = Tables(kind)
    for item in given_:
        tables.take(item["side"], item["key"], item["value"])
    wanted = sum(tables.found), len(tables.found) - sum(tables.found)
    assert asked(sides.builder.build(), given_, way) == wanted


@pytest.mark.parametrize("every", [False, True])
def test_of_a_row_that_refers_to_itself(every: bool) -> None:
    """One record is both rows: each finds the other."""
    sides = Sides()
    table = sides.table()
    table.join(table, pair, foreign_key=reference, **(EVERY if every else {}))
    given_ = [{"side": "left", "key": "a", "value": "a;x", "ts": 0}]
    assert asked(sides.builder.build(), given_, Way()) == (2, 0)


@pytest.mark.parametrize(
    "kind", [kind for kind in sorted(STREAMS) if "left" in kind or "stream-stream" in kind]
)
@cases(0.3)
@given(data=st.data(), way=ways())
def test_of_streams_by_their_results(kind: str, data: st.DataObject, way: Way) -> None:
    """What found a partner gave a result with one; of a pair of records that is the one that came second."""
    sides, given_ = Sides(), data.draw(inputs_of(kind))
    way = replace(way, places=(0,))
    numbered, counted, ordered = [], 0, as_taken({"inputs": given_}, way)["inputs"]
    for item in given_:
        value = item["value"]
        place = next(place for place, other in enumerate(ordered) if other is item)
        is_left = item["side"] == "left" and not kind.startswith("stream-stream")
        if item["value"] is not None and (item["side"] == "left" or kind.startswith("stream-stream")):
            counted += reference(value) is not None if "global" in kind else item["key"] is not None
        numbered.append({**item, "value": value if value is None else f"{value if is_left else 'x'};{place}"})
    STREAMS[kind](sides).to("results", cs.Produced(key=TEXT, value=JSON))
    topology = sides.builder.build()
    read = {name for node in topology for name in getattr(node, "topics", ())}
    with way.driver(topology) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in read}
        for _ in way.pipe(driver, topics, numbered):
            pass
        pairs = [
            one for one in driver.create_output_topic("results", TEXT, JSON).read_values() if None not in one
        ]
        metrics = driver.metrics()
    places = [[int(value.rpartition(";")[2]) for value in one] for one in pairs]
    of_streams = kind.startswith("stream-stream")
    found = {max(one) if of_streams else one[0] for one in places}
    matched, unmatched = (sum(metrics[name].values()) for name in ("matched", "unmatched"))
    assert matched == len(found)
    assert "itself" in kind or matched + unmatched == counted
