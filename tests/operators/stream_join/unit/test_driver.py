"""Joins of streams in the driver: what the conformance cases do not show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes

TEXT, JSON = serdes.string(), serdes.json()
CONSUMED, PRODUCED = cs.Consumed(key=TEXT, value=TEXT), cs.Produced(key=TEXT, value=TEXT)
TEN = cs.JoinWindows.of(10)


def both(left: str | None, right: str | None) -> str:
    return f"{left},{right}"


class Run:
    """A topology over the streams l and r, and what it writes to out."""

    def __init__(self, build: Callable[[Any, Any], Any], **options: Any) -> None:
        builder = cs.StreamsBuilder()
        build(builder.stream("l", CONSUMED), builder.stream("r", CONSUMED)).to("out", PRODUCED)
        self.driver = cs.TopologyTestDriver(builder.build(), **options)
        self.topics = {
            name: self.driver.create_input_topic(name, TEXT, TEXT)
            for name in "lr"
            if self.driver._readers(name)
        }
        self.out = self.driver.create_output_topic("out", TEXT, TEXT)

    def give(self, *records: tuple[str, str | None, str | None, int]) -> list[tuple[Any, Any, int]]:
        for topic, key, value, ts in records:
            self.topics[topic].pipe_input(key, value, ts)
        self.driver.commit()
        return [(r.key, r.value, r.timestamp) for r in self.out.read_records()]

    def dropped(self) -> dict[str, int]:
        dropped: dict[str, int] = self.driver.metrics()["dropped"]
        return dropped


def test_joiner_with_key_and_expressions() -> None:
    keyed = Run(lambda s, r: s.join(r, cs.keyed(lambda key, a, b: f"{key}:{a}{b}"), TEN))
    assert keyed.give(("l", "k", "a", 1), ("r", "k", "b", 2)) == [("k", "k:ab", 2)]
    wide = Run(lambda s, r: s.left_join(r, pl.concat_str("key", "left", pl.col("right").fill_null("-")), TEN))
    records = [("l", "k", "a", 1), ("r", "k", "b", 2), ("l", "m", "c", 3), ("r", "x", "-", 99)]
    assert wide.give(*records) == [("k", "kab", 2), ("m", "mc-", 3)]


def test_a_joiner_may_return_nothing() -> None:
    run = Run(lambda s, r: s.join(r, lambda a, b: None, TEN))
    assert run.give(("l", "k", "a", 1), ("r", "k", "b", 2)) == [("k", None, 2)]


def test_keys_changed_before_an_inner_join() -> None:
    """A null key that re-keying would have to move is not a drop in Kafka's sense (8.19)."""
    run = Run(lambda s, r: s.select_key(lambda v: None if v == "-" else v[0]).join(r, both, TEN))
    assert run.give(("l", "x", "kl", 1), ("l", "x", "-", 1), ("r", "k", "kr", 2), ("r", None, "-", 2)) == [
        ("k", "kl,kr", 2)
    ]
    name = "l.select_key.join(r)"
    assert run.dropped() == {f"{name}: null-key-repartition": 1, f"{name}: null-key": 1}
    assert run.driver.metrics()["dropped-records-total"] == 1


def test_keys_changed_before_a_left_join() -> None:
    """KIP-962: null keys pass, of the left side they come out alone at once."""

    def build(left: Any, right: Any) -> Any:
        by_value = [one.select_key(lambda v: None if v == "-" else v[0]) for one in (left, right)]
        return by_value[0].left_join(by_value[1], both, TEN, cs.StreamJoined(key=TEXT))

    run = Run(build)
    assert run.give(("l", "x", "-", 1), ("r", "x", "-", 2), ("l", "x", "kl", 3), ("r", "x", "kr", 3)) == [
        (None, "-,None", 1),
        ("k", "kl,kr", 3),
    ]
    assert run.dropped() == {"l.select_key.left_join(r.select_key): null-key": 1}


def test_a_repartition_lets_null_keys_pass_to_a_left_join() -> None:
    run = Run(lambda s, r: s.repartition().left_join(r, both, TEN))
    assert run.give(("l", None, "a", 1)) == [(None, "a,None", 1)]


def test_one_record_on_both_sides_by_two_ways() -> None:
    """It goes to what was built first, and all the way down: the mapped one is there when the other comes."""

    def build(left: Any, right: Any) -> Any:
        mapped = left.map_values(str.upper)
        return left.join(mapped, both, TEN, cs.StreamJoined(value=TEXT, other_value=TEXT))

    run = Run(build)
    assert run.give(("l", "k", "a", 1)) == [("k", "a,A", 1)]
    assert run.give(("l", "k", "b", 2)) == [("k", "a,B", 2), ("k", "b,A", 2), ("k", "b,B", 2)]


def test_chains_of_joins_keep_the_timestamps() -> None:
    def build(left: Any, right: Any) -> Any:
        first = left.join(right, both, TEN)
        return first.left_join(right, both, cs.JoinWindows.of(5), cs.StreamJoined(value=TEXT))

    run = Run(build)
    assert run.give(("l", "k", "a", 1), ("r", "k", "b", 8)) == [("k", "a,b,b", 8)]


def test_rekeyed_results_are_joined_in_a_later_round() -> None:
    def build(left: Any, right: Any) -> Any:
        first = left.join(right, both, TEN).select_key(lambda value: value[-1])
        return first.join(right, both, TEN, cs.StreamJoined(key=TEXT, value=TEXT))

    run = Run(build, partitions=3)
    assert run.give(("l", "k", "a", 1), ("r", "k", "k", 2), ("r", "k", "z", 3)) == [
        ("k", "a,k,k", 2),
        ("k", "a,k,z", 3),
    ]


def test_a_failing_joiner_skips_its_pair_only() -> None:
    def picky(left: str | None, right: str | None) -> str:
        if right == "bad":
            raise ValueError("bad")
        return both(left, right)

    run = Run(lambda s, r: s.left_join(r, picky, TEN), processing_errors="skip")
    records = [("l", "k", "a", 1), ("r", "k", "bad", 2), ("r", "k", "c", 3), ("r", "x", "-", 50)]
    assert run.give(*records) == [("k", "a,c", 3)]
    assert run.dropped() == {"l.left_join(r): failed": 1}


def test_a_failing_joiner_is_told_with_its_record() -> None:
    run = Run(lambda s, r: s.join(r, lambda a, b: 1 / 0, TEN))
    with pytest.raises(cs.ProcessingError) as caught:
        run.give(("l", "k", "a", 1), ("r", "k", "b", 2))
    error = caught.value
    assert (error.code, error.where["operator"], error.where["topic"]) == ("CS-501", "l.join(r)", "r")
    assert (error.where["offset"], error.where["key"]) == (0, "k")


def test_values_of_another_serde_are_refused() -> None:
    run = Run(lambda s, r: s.map_values(len).join(r, both, TEN, cs.StreamJoined(value=TEXT)))
    with pytest.raises(cs.SerdeError) as caught:
        run.give(("l", "k", "a", 1))
    assert caught.value.where["operator"] == "l.map_values.join(r)"


@pytest.mark.slow
def test_million_pairs_of_one_key_in_chunks() -> None:
    """Pairs are made some at a time, whatever one key has."""
    run = Run(lambda s, r: s.join(r, pl.lit("x"), cs.JoinWindows.of(10_000)), commit_every=10_000)
    run.driver._settings = type(run.driver._settings)(chunk_rows=1_000)
    for topic in "lr":
        run.topics[topic].pipe_records(cs.TestRecord("k", "v", n) for n in range(300))
    run.driver.commit()
    assert len(run.out.read_records()) == 300 * 300


def named(left: Any, right: Any) -> Any:
    return left.left_join(
        right, both, cs.JoinWindows(before=5, after=10), cs.StreamJoined(store="ls", other_store="rs")
    )


def test_stores_of_records() -> None:
    run = Run(named, partitions=2)
    run.give(
        ("l", "k", "a", 1), ("l", "k", "c", 9), ("l", "k", "b", 4), ("r", "k", "d", 4), ("l", "m", "e", 4)
    )
    lefts, rights = run.driver.get_window_store("ls"), run.driver.get_window_store("rs")
    assert lefts.fetch("k") == [(1, "a"), (4, "b"), (9, "c")]
    assert lefts.fetch("k", 4, 8) == [(4, "b")]
    assert lefts.fetch("k", time_to=4) == [(1, "a"), (4, "b")]
    assert rights.fetch("k", 0, 100) == [(4, "d")]
    assert lefts.fetch("none") == []
    assert list(lefts.all()) == [(("k", 1), "a"), (("k", 4), "b"), (("k", 9), "c"), (("m", 4), "e")]
    assert lefts.to_polars()["timestamp"].to_list() == [1, 4, 9, 4]
    assert lefts.approximate_count() == 4


def test_stores_of_records_forget() -> None:
    """What no partner can come for any more is not shown: expired, or out unmatched."""
    run = Run(named)
    run.give(("l", "k", "a", 1), ("l", "m", "b", 1), ("r", "k", "c", 2))
    assert run.give(("r", "x", "-", 12)) == [("m", "b,None", 1)]
    store = run.driver.get_window_store("ls")
    assert (store.fetch("k"), store.fetch("m")) == ([(1, "a")], [])
    run.give(("l", "x", "-", 17))
    assert store.fetch("k") == []


def test_stores_of_records_have_no_rows() -> None:
    run = Run(named)
    store = run.driver.get_window_store("ls")
    for ask in (lambda: store.get("k"), lambda: store.get_many(["k"])):
        with pytest.raises(cs.StateError) as caught:
            ask()
        assert caught.value.code == "CS-711"
    with pytest.raises(cs.StateError) as caught:
        run.driver.get_key_value_store("ls")
    assert caught.value.code == "CS-710"
    builder = cs.StreamsBuilder()
    builder.table("t", CONSUMED, cs.Materialized(store="t"))
    with cs.TopologyTestDriver(builder.build()) as driver:
        with pytest.raises(cs.StateError) as caught:
            driver.get_key_value_store("t").fetch("k")
        assert caught.value.code == "CS-711"
        with pytest.raises(cs.StateError):
            driver.get_window_store("t")
