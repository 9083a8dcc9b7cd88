"""Law: the records that `why` names make the row when they alone are piped, and without any of them it changes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from tests.laws.effort import cases
from tests.recompute.world import BOTH, JSON, TEXT, Item, World, piped

OUT = cs.Materialized(store="out", key=TEXT, value=JSON)
Build = Callable[[cs.StreamsBuilder], Any]


def n(value: Any) -> Any:
    return None if value is None else value["n"]


def both(left: Any, right: Any) -> Any:
    return {"n": n(left), "m": n(right), "ref": (left or right)["ref"]}


@dataclass
class Numbered:
    n: int
    ref: str


def foreign(kind: str) -> Build:
    def build(b: cs.StreamsBuilder) -> Any:
        left, right = b.table("left", BOTH), b.table("right", BOTH)
        join = left.join if kind == "inner" else left.left_join
        return join(right, both, foreign_key=lambda value: value["ref"], materialized=OUT)

    return build


def primary(kind: str) -> Build:
    def build(b: cs.StreamsBuilder) -> Any:
        left, right = b.table("left", BOTH), b.table("right", BOTH)
        return getattr(left, kind)(right, both, materialized=OUT)

    return build


def chain(b: cs.StreamsBuilder) -> Any:
    left, right, third = (b.table(name, BOTH) for name in ("left", "right", "third"))
    first = left.filter(lambda value: value["n"] > 1).join(right, both, foreign_key=lambda v: v["ref"])
    return first.left_join(third, both, foreign_key=lambda v: v["ref"], materialized=OUT)


def grouped(b: cs.StreamsBuilder) -> Any:
    events = b.stream("left", BOTH).filter(lambda value: value is not None)
    return events.group_by(lambda value: value["ref"], cs.Grouped(key=TEXT, value=JSON)).count(
        materialized=OUT
    )


def largest(b: cs.StreamsBuilder) -> Any:
    events = b.stream("left", BOTH).map_values(lambda value: n(value) or 0)
    return events.group_by_key(cs.Grouped(key=TEXT, value=JSON)).reduce(max, materialized=OUT)


def hopping(b: cs.StreamsBuilder) -> Any:
    events = b.stream("left", BOTH).group_by(lambda value: value["ref"], cs.Grouped(key=TEXT, value=JSON))
    windows = cs.TimeWindows(size=6, advance=2, grace=1)
    return events.windowed_by(windows).aggregate(
        lambda: 0, lambda key, total, value: total + value["n"], materialized=OUT
    )


def built_in(b: cs.StreamsBuilder) -> Any:
    events = b.stream("left", cs.Consumed(key=TEXT, value=cs.serdes.json(Numbered)))
    groups = events.group_by_key(cs.Grouped(key=TEXT, value=cs.serdes.json(Numbered)))
    return groups.agg(
        largest=cs.agg.max("n"), total=cs.agg.sum("n"), materialized=cs.Materialized(store="out")
    )


def rows_counted(b: cs.StreamsBuilder) -> Any:
    table = b.table("left", BOTH).filter(lambda value: value["n"] > 0)
    groups = table.group_by(lambda key, value: (value["ref"], value), cs.Grouped(key=TEXT, value=JSON))
    return groups.count(materialized=OUT)


def regrouped(b: cs.StreamsBuilder) -> Any:
    table = b.table("left", BOTH)
    groups = table.group_by(lambda key, value: (value["ref"], value["n"]), cs.Grouped(key=TEXT, value=JSON))
    return groups.aggregate(
        lambda: 0, lambda total, value: total + value, lambda total, value: total - value, materialized=OUT
    )


def joined_then_grouped(b: cs.StreamsBuilder) -> Any:
    left, right = b.table("left", BOTH), b.table("right", BOTH)
    joined = left.join(right, both, foreign_key=lambda value: value["ref"])
    groups = joined.group_by(lambda key, value: (str(value["m"]), value), cs.Grouped(key=TEXT, value=JSON))
    return groups.count(materialized=OUT)


def looked_up(b: cs.StreamsBuilder) -> Any:
    events, right = b.stream("left", BOTH), b.table("right", BOTH)
    return events.left_join(right, both).to_table(materialized=OUT)


def looked_up_globally(b: cs.StreamsBuilder) -> Any:
    events, right = b.stream("left", BOTH), b.global_table("right", BOTH)
    joined = events.join(right, both, key_selector=lambda key, value: value and value["ref"])
    return joined.to_table(materialized=OUT)


def pairs(b: cs.StreamsBuilder) -> Any:
    left, right = b.stream("left", BOTH), b.stream("right", BOTH)
    windows = cs.JoinWindows.of(4, grace=2)
    joined = left.left_join(right, both, windows, cs.StreamJoined(key=TEXT, value=JSON, other_value=JSON))
    return joined.to_table(materialized=OUT)


def windowed(b: cs.StreamsBuilder) -> Any:
    events = b.stream("left", BOTH).group_by_key(cs.Grouped(key=TEXT, value=JSON))
    return events.windowed_by(cs.TimeWindows(size=5, grace=3)).count(materialized=OUT)


def sessions(b: cs.StreamsBuilder) -> Any:
    events = b.stream("left", BOTH).group_by_key(cs.Grouped(key=TEXT, value=JSON))
    return events.windowed_by(cs.SessionWindows(gap=3, grace=3)).count(materialized=OUT)


def once(b: cs.StreamsBuilder) -> Any:
    events = b.stream("left", BOTH).deduplicate(6)
    return events.group_by_key(cs.Grouped(key=TEXT, value=JSON)).count(materialized=OUT)


def many(b: cs.StreamsBuilder) -> Any:
    left, right, third = (b.table(name, BOTH) for name in ("left", "right", "third"))
    return left.left_join_many(
        {"one": (right, lambda value: value["ref"]), "two": (third, lambda value: str(value["n"]))},
        lambda value, others: {"n": value["n"], "one": n(others["one"]), "two": n(others["two"])},
        materialized=OUT,
    )


def outer_foreign(b: cs.StreamsBuilder) -> Any:
    left, right = b.table("left", BOTH), b.table("right", BOTH)
    return left.outer_join(
        right,
        lambda value, other: [n(value), n(other)],
        foreign_key=lambda value: value["ref"],
        keyed_by=cs.LeftOrRight,
        materialized=cs.Materialized(store="out"),
    )


TOPOLOGIES: dict[str, Build] = {
    "foreign inner": foreign("inner"),
    "foreign left": foreign("left"),
    "foreign outer": outer_foreign,
    **{f"primary {kind}": primary(kind) for kind in ("join", "left_join", "outer_join")},
    "chain": chain,
    "many": many,
    "grouped": grouped,
    "hopping": hopping,
    "built in": built_in,
    "rows counted": rows_counted,
    "largest": largest,
    "regrouped": regrouped,
    "joined then grouped": joined_then_grouped,
    "looked up": looked_up,
    "looked up globally": looked_up_globally,
    "pairs": pairs,
    "windowed": windowed,
    "sessions": sessions,
    "once": once,
}
STREAMS = {
    "grouped",
    "hopping",
    "built in",
    "largest",
    "looked up",
    "looked up globally",
    "pairs",
    "windowed",
    "sessions",
    "once",
}

keys = st.sampled_from(["1", "2", "3"])
values = st.fixed_dictionaries({"n": st.integers(0, 3), "ref": keys})


@st.composite
def batches(draw: st.DrawFn, streams: bool, topics: list[str]) -> list[list[Item]]:
    """Records in one to three batches, with late ones, and deletes where there are tables only."""
    clock, found = 0, []
    for _ in range(draw(st.integers(1, 3))):
        batch: list[Item] = []
        for _ in range(draw(st.integers(1, 8))):
            clock += draw(st.integers(0, 4))
            value = draw(values if streams else st.none() | values | values)
            late = draw(st.just(0) | st.integers(0, 6))
            batch.append((draw(st.sampled_from(topics)), draw(keys), value, max(0, clock - late)))
        found.append(batch)
    return found


def row(driver: cs.TopologyTestDriver, store: str, key: Any) -> Any:
    found: Any = None
    for kind in ("key_value", "window", "session"):
        with suppress(cs.StateError):  # it is a store of another kind
            found = getattr(driver, f"get_{kind}_store")(store)
    assert found is not None
    return found.get(key)


def check(name: str, parts: list[list[Item]]) -> None:
    builder = cs.StreamsBuilder()
    TOPOLOGIES[name](builder)
    topology = builder.build()
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), topology)
        world.process(*parts)
        rows = dict(cs.open_store(world.state, "out").all())
        for key, value in rows.items():
            found = world.why("out", key)
            assert found.value == value
            assert found.exact, (found.notes, str(found))
            assert found.records
            assert row(piped(topology, 2, found.records), "out", key) == value, str(found)
            for left_out in range(len(found.records)):
                fewer = [record for number, record in enumerate(found.records) if number != left_out]
                assert row(piped(topology, 2, fewer), "out", key) != value, (left_out, str(found))
        for key in {"1", "2", "3"} - rows.keys() if name != "foreign outer" else ():
            if name not in ("windowed", "sessions", "hopping"):
                found = world.why("out", key)
                assert found.value is None
                assert found.ended, str(found)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_the_records_make_the_row(name: str) -> None:
    streams = name in STREAMS
    builder = cs.StreamsBuilder()
    TOPOLOGIES[name](builder)
    topics = sorted({topic for node in builder.build() for topic in getattr(node, "topics", ())})

    @cases(0.05)
    @given(batches(streams, topics))
    def law(parts: list[list[Item]]) -> None:
        check(name, parts)

    law()
