"""Results of aggregations have the headers of the record that gave them, as in Kafka."""

from __future__ import annotations

from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes

TEXT, COUNT = serdes.string(), serdes.int64()
CONSUMED = cs.Consumed(key=TEXT, value=TEXT)


def of(name: str) -> tuple[tuple[str, bytes | None], ...]:
    return (("from", name.encode()),)


def run(
    made: Any, read_as: str, key: Any, every: int, *inputs: tuple[str, str | None, int, str]
) -> list[Any]:
    builder = cs.StreamsBuilder()
    table = made(getattr(builder, read_as)("in", CONSUMED))
    table.to_stream().to("out", cs.Produced(key=key, value=COUNT))
    with cs.TopologyTestDriver(builder.build(), commit_every=every, partitions=2) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        for key_, value, ts, name in inputs:
            topic.pipe_input(key_, value, ts, of(name))
        driver.commit()
        found = driver.create_output_topic("out", key, COUNT).read_records()
    return [(one.key, one.value, one.headers) for one in found]


@pytest.mark.parametrize("every", [1, 9])
def test_of_streams(every: int) -> None:
    found = run(
        lambda s: s.group_by_key().count(), "stream", TEXT, every, ("a", "x", 1, "1"), ("a", "x", 2, "2")
    )
    assert found == [("a", 1, of("1")), ("a", 2, of("2"))][-2 if every == 1 else -1 :]


@pytest.mark.parametrize("every", [1, 9])
def test_of_tables(every: int) -> None:
    grouped = lambda t: t.group_by(lambda key, value: (value, value), cs.Grouped(key=TEXT)).count()  # noqa: E731
    found = run(grouped, "table", TEXT, every, ("a", "x", 1, "1"), ("b", "x", 2, "2"), ("a", "y", 3, "3"))
    assert {key: (value, headers) for key, value, headers in found} == {
        "x": (1, of("3")),
        "y": (1, of("3")),
    }


@pytest.mark.parametrize("every", [1, 9])
def test_of_windows_that_close(every: int) -> None:
    """They come out because of the record that closes them."""
    counts = lambda s: s.group_by_key().windowed_by("10 ms", emit="close").count()  # noqa: E731
    key = serdes.windowed(TEXT, 10)
    records = [("a", "x", 1, "1"), ("a", "x", 2, "2"), ("a", "x", 12, "3"), ("a", "x", 99, "4")]
    assert run(counts, "stream", key, every, *records) == [
        (cs.Windowed("a", 0, 10), 2, of("3")),
        (cs.Windowed("a", 10, 20), 1, of("4")),
    ]
