"""Two streams on the same two ways, the records of one on the first way first and those of the other on the second."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import crossstream as cs
from crossstream.testing import TopologyTestDriver

TEXT = cs.serdes.string()
CONSUMED = cs.Consumed(key=TEXT, value=TEXT)
PRODUCED = cs.Produced(key=TEXT, value=TEXT)


def both(left: str, right: str | None) -> str:
    return left + (right or "-")


def merged(one: cs.KStream, two: cs.KStream) -> None:
    one.merge(two).to("out", PRODUCED)


def merged_beside_a_join(one: cs.KStream, two: cs.KStream) -> None:
    """What both ways split from has several rows; one of them passes a join."""
    looked_up = two.left_join(one.filter_not(bool).to_table(), lambda value, row: value)
    one.merge(looked_up).to("out", PRODUCED)


def one_topic(one: cs.KStream, two: cs.KStream) -> None:
    one.to("out", PRODUCED)
    two.to("out", PRODUCED)


def stream_table(one: cs.KStream, two: cs.KStream) -> None:
    one.left_join(two.to_table(), both).to("out", PRODUCED)


def table_with_versions(one: cs.KStream, two: cs.KStream) -> None:
    kept = cs.Materialized(store="kept", key=TEXT, value=TEXT, history_retention=100)
    one.left_join(two.to_table(materialized=kept), both).to("out", PRODUCED)


def stream_stream(one: cs.KStream, two: cs.KStream) -> None:
    windows = cs.JoinWindows.of(10, grace=0, eager=True)
    one.left_join(two, both, windows).to("out", PRODUCED)


FOUND = {
    merged: ["a1", "a2", "b2", "b1"],
    merged_beside_a_join: ["a1", "a2", "b2", "b1"],
    one_topic: ["a1", "a2", "b2", "b1"],
    stream_table: ["a1-", "b1b2"],
    table_with_versions: ["a1-", "b1b2"],
    stream_stream: ["a1-", "a1a2", "a1b2", "b1a2", "b1b2"],
}


@pytest.mark.parametrize("commit_every", [1, 2])
@pytest.mark.parametrize("end", FOUND, ids=lambda end: end.__name__)
def test_each_source_has_its_own_order(
    end: Callable[[cs.KStream, cs.KStream], None], commit_every: int
) -> None:
    builder = cs.StreamsBuilder()
    a, b = (builder.stream(name, CONSUMED) for name in "ab")
    ways = {stream: stream.flat_map_values(lambda text: [text]) for stream in (a, b)}
    a1, b2 = ways[a].map_values(lambda text: text + "1"), ways[b].map_values(lambda text: text + "2")
    b1, a2 = ways[b].map_values(lambda text: text + "1"), ways[a].map_values(lambda text: text + "2")
    end(a1.merge(b1), b2.merge(a2))
    with TopologyTestDriver(builder.build(), commit_every=commit_every) as driver:
        for name in "ab":
            driver.create_input_topic(name, TEXT, TEXT).pipe_input("k", name, 0)
        assert driver.create_output_topic("out", TEXT, TEXT).read_values() == FOUND[end]
