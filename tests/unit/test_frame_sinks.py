"""Records on their way to `for_each_batch`: those that no column holds are under the policy of undecodable ones."""

from __future__ import annotations

from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.serdes import Serde

TEXT, JSON = serdes.string(), serdes.json()
LARGE = 2**70


def frames(value: Serde, key: Serde = TEXT) -> cs.Topology:
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", cs.Consumed(key=key, value=value, name="orders"))
    orders.for_each_batch(lambda frame, batch: None, cs.Named("frames"))
    return builder.build()


def piped(topology: cs.Topology, value: Serde, values: list[Any], **settings: Any) -> cs.TopologyTestDriver:
    """The driver, after one batch of the values."""
    driver = cs.TopologyTestDriver(topology, commit_every=len(values), **settings)
    orders = driver.create_input_topic("orders", TEXT, value)
    orders.pipe_records([cs.TestRecord(f"k{row}", value, row) for row, value in enumerate(values)])
    return driver


UNHELD = [
    pytest.param({"n": LARGE}, id="integer"),
    pytest.param({"n": [1, "x"]}, id="list"),
    pytest.param({"a": {"b": [{"n": -LARGE}]}}, id="deep"),
]


@pytest.mark.parametrize("unheld", UNHELD)
def test_a_record_that_no_column_holds_is_named(unheld: Any) -> None:
    with pytest.raises(cs.SerdeError) as caught:
        piped(frames(JSON), JSON, [{"n": 1}, unheld, {"n": 2}])
    error = caught.value
    assert error.code == "CS-402"
    place = {name: error.where[name] for name in ("operator", "topic", "partition", "offset", "key")}
    assert place == {"operator": "frames", "topic": "orders", "partition": 0, "offset": 1, "key": "k1"}
    assert "test_frame_sinks.py" in error.where["line"]
    assert "deserialization_errors" in str(error.next)


@pytest.mark.parametrize("unheld", UNHELD)
def test_a_record_that_no_column_holds_is_skipped(unheld: Any) -> None:
    values = [{"n": 1}, unheld, {"n": 2}, None, {"n": "of another type"}]
    driver = piped(frames(JSON), JSON, values, deserialization_errors="skip")
    metrics = driver.metrics()
    assert metrics["dropped"] == {"frames: undecodable": 1}
    assert metrics["rows_out"]["frames"] == 4


def test_a_record_that_no_column_holds_is_a_dead_letter() -> None:
    driver = piped(frames(JSON), JSON, [{"n": LARGE}, {"n": 1}], deserialization_errors=cs.DeadLetter("dead"))
    (dead,) = driver.create_output_topic("dead", TEXT, JSON).read_records()
    assert (dead.key, dead.value) == ("k0", {"n": LARGE})
    assert dict(dead.headers)["crossstream.operator"] == b"frames"
    assert driver.metrics()["rows_out"]["frames"] == 1


def test_keys_that_no_column_holds() -> None:
    driver = cs.TopologyTestDriver(frames(TEXT, JSON), commit_every=2, deserialization_errors="skip")
    orders = driver.create_input_topic("orders", JSON, TEXT)
    orders.pipe_input(LARGE, "a", timestamp=1)
    orders.pipe_input(7, "b", timestamp=2)
    assert driver.metrics()["dropped"] == {"frames: undecodable": 1}
    assert driver.metrics()["rows_out"]["frames"] == 1


LAST = 253_402_300_799_999
"""The last millisecond of the year 9999, after which Spark has no timestamps."""


def test_a_timestamp_that_no_column_holds_is_named() -> None:
    driver = cs.TopologyTestDriver(frames(TEXT))
    orders = driver.create_input_topic("orders", TEXT, TEXT)
    orders.pipe_input("a", "x", timestamp=LAST)
    with pytest.raises(cs.SerdeError) as caught:
        orders.pipe_input("b", "x", timestamp=LAST + 1)
    error = caught.value
    assert (error.code, error.where["operator"], error.where["key"]) == ("CS-402", "frames", "b")
    assert error.what == (
        "the timestamp of a record cannot be decoded: "
        "253402300800000 ms are after the year 9999, the last that Spark has"
    )


def test_timestamps_that_no_column_holds_are_let_go() -> None:
    driver = cs.TopologyTestDriver(frames(TEXT), commit_every=3, deserialization_errors=cs.DeadLetter("dead"))
    orders = driver.create_input_topic("orders", TEXT, TEXT)
    orders.pipe_records([cs.TestRecord(f"k{ts}", "x", ts) for ts in (LAST + 1, LAST, 2**62 - 1)])
    dead = driver.create_output_topic("dead", TEXT, TEXT).read_records()
    assert [(one.key, one.timestamp) for one in dead] == [(f"k{ts}", ts) for ts in (LAST + 1, 2**62 - 1)]
    assert driver.metrics()["dropped"] == {"frames: undecodable": 2}
    assert driver.metrics()["rows_out"]["frames"] == 1


def test_a_declared_type_without_columns_is_nobodys_fault() -> None:
    """No record would fit: the policy is not asked."""
    either = serdes.json(dict[str, int])
    with pytest.raises(cs.SerdeError) as caught:
        piped(frames(either), either, [{"n": 1}], deserialization_errors="skip")
    assert caught.value.code == "CS-404"
    assert caught.value.where["operator"] == "frames"
    assert "test_frame_sinks.py" in caught.value.where["line"]
