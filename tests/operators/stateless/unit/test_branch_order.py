"""Several results of one record, on several branches to a merge: result by result, as Kafka visits operators."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import crossstream as cs
from crossstream.testing import TopologyTestDriver

TEXT = cs.serdes.string()
CONSUMED = cs.Consumed(key=TEXT, value=TEXT)
PRODUCED = cs.Produced(key=TEXT, value=TEXT)


def marked(mark: str) -> Callable[[str], str]:
    return lambda text: text + mark


def letters(stream: cs.KStream) -> cs.KStream:
    return stream.flat_map_values(lambda text: list(text))


def parted(stream: cs.KStream, name: str, first: str) -> tuple[cs.KStream, cs.KStream]:
    """The letters of ``first``, and the others."""
    ways = (
        stream.split(cs.Named(name))
        .branch(lambda letter: letter[0] in first, "first")
        .default_branch("others")
    )
    return ways[f"{name}first"], ways[f"{name}others"]


def split_and_merged(stream: cs.KStream) -> cs.KStream:
    vowels, others = parted(letters(stream), "kind", "aeiou")
    return others.map_values(marked("-")).merge(vowels.map_values(marked("+")))


def merged_with_itself(stream: cs.KStream) -> cs.KStream:
    each = letters(stream)
    return each.merge(each.map_values(marked("!")))


def one_way_splits_again(stream: cs.KStream) -> cs.KStream:
    vowels, others = parted(letters(stream), "kind", "aeiou")
    twice = vowels.flat_map_values(lambda letter: [letter + "1", letter + "2", letter + "3"])
    ones, more = parted(twice.map_values(lambda text: text[::-1]), "number", "13")
    return others.merge(more, ones)


def merged_in_two_places(stream: cs.KStream) -> cs.KStream:
    vowels, others = parted(letters(stream), "kind", "aeiou")
    early, late = parted(others, "half", "bcdfghjklm")
    return late.map_values(marked("-")).merge(early.map_values(marked("+"))).filter(bool).merge(vowels)


def made_by_a_merge(stream: cs.KStream) -> cs.KStream:
    twice = stream.merge(stream.map_values(str.upper))
    return twice.map_values(marked("1")).merge(twice.map_values(marked("2")))


def merged_again(stream: cs.KStream) -> cs.KStream:
    """What one merge takes, and what it gives, in another."""
    each = letters(stream)
    marked_ = each.map_values(marked("!"))
    return each.merge(marked_).filter(lambda text: text[0] in "ad").merge(marked_)


def split_beside(stream: cs.KStream) -> cs.KStream:
    each = letters(stream)
    vowels, others = parted(each, "kind", "aeiou")
    return others.merge(each.map_values(marked("!")), vowels)


GIVEN = {
    split_and_merged: ["b-", "a+", "d-", "e+"],
    merged_with_itself: ["b!", "b", "a!", "a", "d!", "d", "e!", "e"],
    one_way_splits_again: ["b", "1a", "2a", "3a", "d", "1e", "2e", "3e"],
    merged_in_two_places: ["b+", "a", "d+", "e"],
    merged_again: ["b!", "a!", "a!", "a", "d!", "d!", "d", "e!"],
    split_beside: ["b", "b!", "a", "a!", "d", "d!", "e", "e!"],
    made_by_a_merge: ["BADE1", "BADE2", "bade1", "bade2"],
}


@pytest.mark.parametrize("graph", GIVEN, ids=lambda graph: graph.__name__)
def test_results_merge_in_branch_order(graph: Callable[[cs.KStream], cs.KStream]) -> None:
    builder = cs.StreamsBuilder()
    graph(builder.stream("in", CONSUMED)).to("out", PRODUCED)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "bade")
        assert driver.create_output_topic("out", TEXT, TEXT).read_values() == GIVEN[graph]


def test_results_of_a_join_merge_in_branch_order() -> None:
    builder = cs.StreamsBuilder()
    left, right = builder.stream("left", CONSUMED), builder.stream("right", CONSUMED)
    joined = left.join(right, lambda a, b: b + a, cs.JoinWindows.of(10, grace=0))
    first, others = parted(joined, "kind", "ac")
    others.merge(first).to("out", PRODUCED)
    with TopologyTestDriver(builder.build()) as driver:
        rights = driver.create_input_topic("right", TEXT, TEXT)
        for letter in "abcd":
            rights.pipe_input("k", letter, 0)
        driver.create_input_topic("left", TEXT, TEXT).pipe_input("k", ".", 0)
        out = driver.create_output_topic("out", TEXT, TEXT).read_values()
    assert out == ["a.", "b.", "c.", "d."]


def test_the_last_one_stays_in_a_table() -> None:
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", CONSUMED)
    split_and_merged(stream).to_table(materialized=cs.Materialized(store="kept", key=TEXT, value=TEXT))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "ba")
        assert driver.get_key_value_store("kept").get("k") == "a+"


def test_other_readers_of_a_branch_see_no_tags() -> None:
    """Such as a join or a repartition, which know nothing of the merge."""
    builder = cs.StreamsBuilder()
    vowels, others = parted(letters(builder.stream("in", CONSUMED)), "kind", "aeiou")
    vowels.merge(others).to("out", PRODUCED)
    table = vowels.to_table()
    others.join(table, lambda other, vowel: other).to("looked-up", PRODUCED)
    vowels.repartition().merge(builder.stream("apart", CONSUMED)).to("moved", PRODUCED)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "bade")
        assert driver.create_output_topic("out", TEXT, TEXT).read_values() == list("bade")
        assert driver.create_output_topic("moved", TEXT, TEXT).read_values() == list("ae")


def test_many_stages_that_split_and_merge() -> None:
    """A way through each is a way of two to the power of forty."""
    builder = cs.StreamsBuilder()
    stream = letters(builder.stream("in", CONSUMED))
    for stage in range(40):
        vowels, others = parted(stream, f"stage{stage}", "aeiou")
        stream = others.merge(vowels)
    stream.left_join(builder.table("rows", CONSUMED), lambda letter, row: letter).to("out", PRODUCED)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "bade")
        assert driver.create_output_topic("out", TEXT, TEXT).read_values() == list("bade")
