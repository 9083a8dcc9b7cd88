"""What a function of the user does wrong is its own error, CS-501, with the operator and the line of the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import crossstream as cs
from crossstream import serdes

TEXT, INT = serdes.string(), serdes.int64()
Build = Callable[[Any], object]


def run(build: Build, **settings: Any) -> list[cs.TestRecord]:
    """What one record with the key "k" and the value "v" gives. ``build`` gets the builder."""
    builder = cs.StreamsBuilder()
    build(builder)
    with cs.TopologyTestDriver(builder.build(), **settings) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v", 5)
        return driver.create_output_topic("out", TEXT, TEXT).read_records()


def stream(builder: Any, **options: Any) -> Any:
    return builder.stream("in", cs.Consumed(key=TEXT, value=TEXT, **options))


def sink(result: Any) -> None:
    result.to("out", cs.Produced(key=TEXT, value=TEXT))


def failure(build: Build) -> cs.ProcessingError:
    with pytest.raises(cs.ProcessingError) as caught:
        run(build)
    error = caught.value
    assert error.code == "CS-501"
    assert error.where["operator"]
    assert error.where["line"].startswith(__file__)
    assert (error.where["topic"], error.where["offset"], error.where["key"]) == ("in", 0, "k")
    return error


@pytest.mark.parametrize("stamp", [None, "x", 1.5, True, 2**63, np.float64(1)])
def test_a_function_that_gives_no_timestamp(stamp: Any) -> None:
    def build(builder: Any) -> None:
        sink(stream(builder, timestamp_extractor=lambda key, value, timestamp: stamp))

    error = failure(build)
    assert error.where["operator"] == "in"
    assert repr(stamp) in error.what
    assert run(build, processing_errors="skip") == []


def test_a_timestamp_may_be_a_number_of_numpys() -> None:
    def build(builder: Any) -> None:
        sink(stream(builder, timestamp_extractor=lambda key, value, timestamp: np.int64(7)))

    assert run(build) == [cs.TestRecord("k", "v", 7)]


def named(*_: Any) -> Any:
    return cs.Named("")


def named_late(*_: Any) -> Any:
    yield cs.Named("")


@pytest.mark.parametrize(
    "build",
    [
        lambda builder: sink(stream(builder).map_values(named)),
        lambda builder: sink(stream(builder).map(named)),
        lambda builder: sink(stream(builder).filter(named)),
        lambda builder: sink(stream(builder).flat_map_values(named_late)),
        lambda builder: sink(stream(builder, timestamp_extractor=named)),
        lambda builder: stream(builder).to(named, cs.Produced(key=TEXT, value=TEXT)),
        lambda builder: stream(builder).to("out", cs.Produced(key=TEXT, value=TEXT, partitioner=named)),
    ],
)
def test_a_function_that_raises_an_error_of_ours(build: Build) -> None:
    error = failure(build)
    assert "raised TopologyError: [CS-102] Named(name='')" in error.what
    assert "\n" not in error.what
    assert isinstance(error.__cause__, cs.TopologyError)


def test_a_serde_that_a_function_calls_itself() -> None:
    error = failure(lambda builder: sink(stream(builder).map_values(lambda value: INT.serialize(value))))
    assert "raised SerdeError: [CS-401]" in error.what


def test_dead_letters_say_what_was_raised() -> None:
    builder = cs.StreamsBuilder()
    sink(stream(builder).map_values(named))
    with cs.TopologyTestDriver(builder.build(), processing_errors=cs.DeadLetter("bad")) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v", 5)
        (record,) = driver.create_output_topic("bad", TEXT, TEXT).read_records()
    reason = dict(record.headers)["crossstream.reason"]
    assert reason is not None
    assert reason.startswith(b"TopologyError: [CS-102] Named(name='')")


def test_a_place_that_is_known_is_kept_and_one_that_is_not_is_filled_in() -> None:
    error = cs.ProcessingError("x", where={"operator": None, "line": "app.py:1"})
    assert error.at(operator="join", line="app.py:2", topic="in").where == {
        "operator": "join",
        "line": "app.py:1",
        "topic": "in",
    }
