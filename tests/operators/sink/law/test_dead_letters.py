"""Dead letters do not depend on the cut: their keys, values, timestamps and headers are those of one record at a time.

They are compared as bytes. Left values are text, or what a function made of it; right ones are JSON with blanks, which
nobody who writes them anew would put there. Results of table joins have versions: so every change is made.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import cases
from tests.laws.engine import Way, as_taken, ways
from tests.laws.strategies import Inputs, records, with_headers
from tests.reference.chain import headers_of

TEXT, JSON, BYTES = serdes.string(), serdes.json(), serdes.bytes()
BATCH, WINDOWS = Way(every=1000), cs.JoinWindows.of(4, grace=2)
EVERY: Any = {"materialized": cs.Materialized(store="joined", value=JSON, history_retention=1000)}
Letter = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]

keys = st.sampled_from([None, "a", "a", "a", "b", "b"])
either_keys = st.sampled_from([None, "a", "a", "a", "b", "1", "1", "1", "2"])
lefts = st.sampled_from([None, "1;x", "1;x", "1;y", "1;z", "1;z", "2;x", "2;z", "-;x", "-;z"])
rights = st.sampled_from([None, *(json.dumps({"name": name, "of": [1, 2]}) for name in "xyyz")])
left_inputs = records({"left": (keys, lefts)}, min_size=4).map(with_headers)
inputs = records({"left": (keys, lefts), "right": (either_keys, rights)}, min_size=8).map(with_headers)


class Sides:
    """The inputs of a topology, and whether the left values are what a function made."""

    def __init__(self, made: bool) -> None:
        self.builder, self.made = cs.StreamsBuilder(), made

    def stream(self, side: str = "left") -> Any:
        return self._as_asked(self.builder.stream(side, self._consumed(side)), side)

    def table(self, side: str = "left", **options: Any) -> Any:
        materialized = cs.Materialized(store=side, **options)
        return self._as_asked(self.builder.table(side, self._consumed(side), materialized), side)

    def whole(self) -> Any:
        return self.builder.global_table("right", self._consumed("right"))

    def _consumed(self, side: str) -> cs.Consumed:
        return cs.Consumed(key=TEXT, value=TEXT if side == "left" else JSON)

    def _as_asked(self, source: Any, side: str) -> Any:
        return source.map_values(wrapped) if self.made and side == "left" else source


def wrapped(value: str | None) -> Any:
    return None if value is None else {"text": value}


def text_of(value: Any) -> str:
    return str(value["text"]) if isinstance(value, dict) else str(value or "-")


def reference(value: Any) -> str | None:
    """The foreign key; there is none to be had of some values."""
    found = text_of(value)
    if found == "2;z":
        raise ValueError("no foreign key")
    return None if found[0] == "-" else found[0]


def join(left: Any, right: Any) -> Any:
    """Fails for most values on the left, for one on the right, and for lack of either."""
    if left is None or right is None or text_of(left)[-1] in "xy" or "x" in str(right):
        raise ValueError("no result")
    return {"joined": text_of(left)}


def fails(key: Any, value: Any) -> bool:
    if text_of(value)[-1] in "xy":
        raise ValueError("no answer")
    return True


def keep(key: Any, value: Any) -> Any:
    """The record as it is, where that can be had."""
    fails(key, value)
    return key, value


def passed(source: Any) -> Any:
    return source.filter(lambda value: "1" in text_of(value))


def rest(source: Any) -> Any:
    return source.filter_not(lambda value: "1" in text_of(value))


MERGES: dict[str, Callable[[Any], Any]] = {
    "none": lambda s: s,
    "of keys": lambda s: rest(s).merge(passed(s).select_key(lambda key, value: key)),
    "of values": lambda s: passed(s).map_values(lambda value: value).merge(rest(s)),
    "of both": lambda s: rest(s).merge(passed(s).map(lambda key, value: (key, value))),
    "of three": lambda s: rest(s).merge(passed(s).select_key(lambda key, value: key), passed(s)),
    "over a re-keying": lambda s: rest(s).merge(
        passed(s).map(lambda key, value: (key, value)).repartition(cs.Repartitioned(key=TEXT))
    ),
}
FAILING: dict[str, Callable[[Any], Any]] = {
    "filter": lambda s: s.filter(fails),
    "map_values": lambda s: s.map_values(fails),
    "map": lambda s: s.map(keep),
    "select_key": lambda s: s.select_key(fails),
    "flat_map": lambda s: s.flat_map(lambda key, value: [keep(key, value)]),
    "flat_map_values": lambda s: s.flat_map_values(lambda key, value: [fails(key, value)]),
    "peek": lambda s: s.peek(fails),
    "split": lambda s: s.split().branch(fails, "one").no_default_branch()["one"],
    "to": lambda s: s.to(lambda key, value: f"o{fails(key, value)}", cs.Produced(key=TEXT, value=JSON)),
    "table": lambda s: s.to_table(materialized=cs.Materialized(key=TEXT, history_retention=1000)).filter(
        fails, materialized=cs.Materialized(store="kept", history_retention=1000)
    ),
}
JOINS: dict[str, Callable[[Sides], Any]] = {
    "stream-table": lambda s: s.stream().join(s.table("right"), join),
    "stream-table, left": lambda s: s.stream().left_join(s.table("right"), join),
    "stream-table, with grace": lambda s: s.stream().left_join(
        s.table("right", history_retention=1000), join, cs.Joined(grace=4)
    ),
    "stream-global": lambda s: s.stream().join(s.whole(), join, key_selector=reference),
    "stream-global, left": lambda s: s.stream().left_join(s.whole(), join, key_selector=reference),
    "stream-stream": lambda s: s.stream().join(s.stream("right"), join, WINDOWS),
    "stream-stream, left": lambda s: s.stream().left_join(s.stream("right"), join, WINDOWS),
    "stream-stream, outer": lambda s: s.stream().outer_join(s.stream("right"), join, WINDOWS),
    "stream-stream, eager": lambda s: s.stream().outer_join(
        s.stream("right"), join, cs.JoinWindows.of(4, eager=True)
    ),
    "stream with itself": lambda s: (lambda one: one.left_join(one, join, WINDOWS))(s.stream()),
    "table-table": lambda s: s.table().join(s.table("right"), join, **EVERY),
    "table-table, left": lambda s: s.table().left_join(s.table("right"), join, **EVERY),
    "table-table, outer": lambda s: s.table().outer_join(s.table("right"), join, **EVERY),
    "foreign key": lambda s: s.table().join(s.table("right"), join, foreign_key=reference, **EVERY),
    "foreign key, left": lambda s: s.table().left_join(
        s.table("right"), join, foreign_key=reference, **EVERY
    ),
    "foreign key, right": lambda s: s.table().right_join(
        s.table("right"), join, foreign_key=reference, keyed_by=cs.LeftOrRight, **EVERY
    ),
    "foreign key, outer": lambda s: s.table().outer_join(
        s.table("right"), join, foreign_key=reference, keyed_by=cs.LeftOrRight, **EVERY
    ),
    "table-global": lambda s: s.table().left_join(s.whole(), join, foreign_key=reference, **EVERY),
    "many": lambda s: s.table().join_many({"r": (s.table("right"), reference)}, join_many, **EVERY),
    "many, left": lambda s: s.table().left_join_many(
        {"r": (s.table("right"), reference)}, join_many, **EVERY
    ),
}


def join_many(left: Any, rows: dict[str, Any]) -> Any:
    return join(left, rows["r"])


def letters(sides: Sides, given_: Inputs, way: Way) -> Counter[Letter]:
    """What the topology leaves in the dead letters, as bytes."""
    topology = sides.builder.build()
    read = {name for node in topology for name in getattr(node, "topics", ())}
    with way.driver(topology, processing_errors=cs.DeadLetter("dead")) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in read}
        for _ in way.pipe(driver, topics, given_):
            pass
        found = driver.create_output_topic("dead", BYTES, BYTES).read_records()
    return Counter((one.key, one.value, one.timestamp, tuple(one.headers)) for one in found)


def check(sides: Callable[[], Sides], given_: Inputs, way: Way) -> None:
    """Records of a topic are in one partition, so that they are the same at the same offsets."""
    way = replace(way, places=(0,))
    one_by_one = as_taken({"inputs": given_}, way)["inputs"]
    wanted = letters(sides(), one_by_one, replace(way, every=1, commits=frozenset()))
    assert letters(sides(), given_, way) == wanted
    numbers = {number: item for item in given_ for number in [headers_of(item)[0]]}
    assert all(letter[1] is not None for letter in wanted if numbers[letter[3][0]]["value"] is not None)


def item(side: str, key: str | None, value: str | None, ts: int) -> dict[str, Any]:
    return {"side": side, "key": key, "value": value, "ts": ts}


MIXED = with_headers([item("left", "a", "1;z", 0), item("left", "a", "2;x", 1)])


@cases(2)
@given(st.sampled_from(sorted(MERGES)), st.sampled_from(sorted(FAILING)), st.booleans(), left_inputs, ways())
@example("of keys", "filter", False, MIXED, BATCH)
@example("of values", "filter", False, MIXED, BATCH)
def test_of_row_wise_operators(merge: str, failing: str, made: bool, given_: Inputs, way: Way) -> None:
    def sides() -> Sides:
        found = Sides(made)
        FAILING[failing](MERGES[merge](found.stream()))
        return found

    check(sides, given_, way)


@cases(4)
@given(st.sampled_from(sorted(JOINS)), st.booleans(), inputs, ways())
@example("stream-table, left", False, with_headers([item("left", "a", "1;x", 5)]), BATCH)
def test_of_joins(kind: str, made: bool, given_: Inputs, way: Way) -> None:
    def sides() -> Sides:
        found = Sides(made)
        JOINS[kind](found)
        return found

    check(sides, given_, way)
