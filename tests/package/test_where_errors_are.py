"""Where an error is: lines are text, and what is asked of a store says of which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes

TEXT = serdes.string()
TEXTS = cs.Consumed(key=TEXT, value=TEXT)


@pytest.fixture
def driver() -> cs.TopologyTestDriver:
    builder = cs.StreamsBuilder()
    builder.table("names", TEXTS, cs.Materialized(store="kept"))
    return cs.TopologyTestDriver(builder.build())


def test_the_line_of_a_topic_that_nothing_reads(driver: cs.TopologyTestDriver) -> None:
    with driver, pytest.raises(cs.ConfigError) as caught:
        driver.create_input_topic("other", TEXT, TEXT)
    assert caught.value.code == "CS-241"
    assert caught.value.where["line"].startswith(__file__)


@pytest.mark.parametrize(
    ("ask", "code", "store"),
    [
        (lambda driver: driver.get_key_value_store("other"), "CS-710", "other"),
        (lambda driver: driver.get_key_value_store("kept").get("a", 5), "CS-711", "kept"),
        (lambda driver: driver.get_key_value_store("kept").fetch("a", 0, 1), "CS-711", "kept"),
    ],
)
def test_the_store_that_was_asked(
    driver: cs.TopologyTestDriver, ask: Callable[[cs.TopologyTestDriver], Any], code: str, store: str
) -> None:
    with driver, pytest.raises(cs.StateError) as caught:
        ask(driver)
    assert (caught.value.code, caught.value.where) == (code, {"store": store})


def twice_read(builder: cs.StreamsBuilder) -> None:
    builder.stream("a", TEXTS)
    builder.table("a", TEXTS)


def never_ended(builder: cs.StreamsBuilder) -> None:
    builder.stream("a", TEXTS).split().branch(lambda key, value: True)
    builder.build()


def store_named_twice(builder: cs.StreamsBuilder) -> None:
    builder.table("a", TEXTS, cs.Materialized(store="kept"))
    builder.table("b", TEXTS, cs.Materialized(store="kept"))


@pytest.mark.parametrize("write", [twice_read, never_ended, store_named_twice])
def test_every_line_is_text(write: Callable[[cs.StreamsBuilder], None]) -> None:
    builder = cs.StreamsBuilder()
    with pytest.raises(cs.TopologyError) as caught:
        write(builder)
    lines = [
        caught.value.where[name]
        for name in ("line", "first read at", "first used at")
        if name in caught.value.where
    ]
    assert lines
    assert all(line.startswith(__file__) for line in lines)


def test_table_joined_wants_a_foreign_key_in_every_join() -> None:
    builder = cs.StreamsBuilder()
    left, right = (builder.table(topic, TEXTS) for topic in ("left", "right"))
    for join in (left.join, left.left_join, left.outer_join):
        with pytest.raises(cs.TopologyError) as caught:
            join(right, lambda one, other: one, table_joined=cs.TableJoined())
        assert caught.value.code == "CS-136"
