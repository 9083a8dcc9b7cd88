"""A record that fails in the test driver: its error is raised where it was piped, and only there."""

from __future__ import annotations

import pytest

import crossstream as cs
from crossstream import serdes

TEXT = serdes.string()


def reciprocals() -> cs.Topology:
    builder = cs.StreamsBuilder()
    numbers = builder.stream("numbers", cs.Consumed(key=TEXT, value=serdes.int64()))
    numbers.map_values(lambda number: 1 / number).to("out", cs.Produced(value=serdes.float64()))
    return builder.build()


def test_a_caught_error_is_not_raised_again_at_the_end() -> None:
    with cs.TopologyTestDriver(reciprocals()) as driver:
        numbers = driver.create_input_topic("numbers", TEXT, serdes.int64())
        numbers.pipe_input("a", 2)
        with pytest.raises(cs.ProcessingError, match="CS-501"):
            numbers.pipe_input("b", 0)
        assert driver.create_output_topic("out", TEXT, serdes.float64()).read_values() == [0.5]


def test_an_error_in_the_last_batch_is_raised_at_the_end() -> None:
    with (
        pytest.raises(cs.ProcessingError, match="CS-501"),
        cs.TopologyTestDriver(reciprocals(), commit_every=10) as driver,
    ):
        driver.create_input_topic("numbers", TEXT, serdes.int64()).pipe_input("b", 0)


def test_a_batch_that_failed_is_run_again() -> None:
    with cs.TopologyTestDriver(reciprocals()) as driver:
        numbers = driver.create_input_topic("numbers", TEXT, serdes.int64())
        for _ in range(2):
            with pytest.raises(cs.ProcessingError, match="CS-501"):
                numbers.pipe_input("b", 0)
