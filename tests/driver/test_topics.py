"""Records of the test driver: which are equal, and reading that fails and leaves them to be read in another way."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import numpy as np
import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.serdes import Serde

TEXT, JSON, INT, FLOAT = serdes.string(), serdes.json(), serdes.int64(), serdes.float64()


def driver(rows: list[tuple[Any, Any]], key: Serde = JSON) -> cs.TopologyTestDriver:
    """One that has written these rows to the topic "out", and keeps them in the store "rows"."""
    builder = cs.StreamsBuilder()
    table = builder.table("in", cs.Consumed(key=key, value=JSON), cs.Materialized(store="rows"))
    table.to_stream().to("out")
    made = cs.TopologyTestDriver(builder.build())
    made.create_input_topic("in", key, JSON).pipe_records([(*row, 5) for row in rows])
    return made


def test_records_are_equal_however_they_are_written() -> None:
    written = cs.TestRecord("k", 1, datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc), [["a", b"1"]])
    assert written == cs.TestRecord("k", 1, 1000, (("a", b"1"),))
    assert (written.timestamp, written.headers) == (1000, (("a", b"1"),))
    assert cs.TestRecord("k", 1, np.int64(5), []) == cs.TestRecord("k", 1, 5)
    assert cs.TestRecord("k", 1, headers=iter([("a", None)])).headers == (("a", None),)
    assert len({cs.TestRecord("k", 1, 5, [("a", b"1")]), cs.TestRecord("k", 1, 5, (("a", b"1"),))}) == 1


@pytest.mark.parametrize("read", ["read_record", "read_records", "read_values", "read_key_values_to_map"])
@pytest.mark.parametrize(("key", "value", "part"), [(TEXT, INT, "value"), (INT, TEXT, "key")])
def test_a_wrong_serde_leaves_the_records(read: str, key: Serde, value: Serde, part: str) -> None:
    made = driver([("a", "one"), ("b", "two")], TEXT)
    out = made.create_output_topic("out", key, value)
    for _ in range(2):
        with pytest.raises(cs.SerdeError) as caught:
            getattr(out, read)()
        assert (caught.value.where["topic"], caught.value.where["part"]) == ("out", part)
        assert out.queue_size == 2


def test_output_topics_of_one_name_read_one_queue() -> None:
    with driver([("a", "one")], TEXT) as made:
        first, second = (made.create_output_topic("out", TEXT, value) for value in (JSON, TEXT))
        pipe = made.create_input_topic("in", TEXT, JSON).pipe_records
        assert made.create_output_topic("out", TEXT, JSON).read_values() == ["one"]
        assert (first.is_empty, second.queue_size) == (True, 0)
        pipe([("b", "two", 6), ("c", "three", 7)])
        assert second.read_record().value == '"two"'
        assert (first.queue_size, first.read_record().value) == (1, "three")
        pipe([("b", "more", 8)])
        assert made.create_output_topic("out", TEXT, JSON).read_values() == ["more"]


def test_a_topic_that_another_serde_could_not_read() -> None:
    made = driver([("a", "one"), ("b", "two")], TEXT)
    assert made.create_output_topic("out", TEXT, JSON).read_record().value == "one"
    with pytest.raises(cs.SerdeError):
        made.create_output_topic("out", TEXT, INT).read_values()
    assert made.create_output_topic("out", TEXT, JSON).read_values() == ["two"]


def refused(act: Any, *words: str) -> None:
    with pytest.raises(cs.StateError) as caught:
        act()
    assert caught.value.code == "CS-711"
    assert caught.value.next
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("keys", "words"),
    [([{"id": 1}], ["a dict"]), ([1, "a", True], ["1 and True"]), ([2, 2.0], ["2 and 2.0"])],
)
def test_keys_that_no_dict_takes_as_they_are(keys: list[Any], words: list[str]) -> None:
    out = driver([(key, "x") for key in keys]).create_output_topic("out", JSON, JSON)
    refused(out.read_key_values_to_map, "read_key_values()", "topic out", *words)
    assert out.read_key_values() == [(key, "x") for key in keys]


def test_one_key_in_two_spellings() -> None:
    out = driver([(b'"a"', 1), (b'"\\u0061"', 2)], serdes.bytes()).create_output_topic("out", JSON, JSON)
    assert out.read_key_values_to_map() == {"a": 2}


def test_keys_of_a_store_that_are_one_for_a_dict() -> None:
    store = driver([(1, "one"), (True, "true"), ("a", "text")]).get_key_value_store("rows")
    refused(lambda: store.get_many([1, True, 1.0]), "1 and True", "store rows")
    refused(lambda: store.get_many(["a", 7, 7.0]), "7 and 7.0")
    assert store.get_many([1, "a", 1]) == {1: "one", "a": "text"}
    numbers = driver([(1, "one")], FLOAT).get_key_value_store("rows")
    assert numbers.get_many([1, 1.0]) == {1: "one"}
    refused(lambda: numbers.get_many([0.0, -0.0]), "0.0 and -0.0")


def test_headers_with_a_name_that_has_no_bytes() -> None:
    with driver([]) as made:
        topic = made.create_input_topic("in", JSON, JSON)
        for record in ({"headers": [("\ud800", b"")]}, {"headers": [("a", b""), ("é\udfff", None)]}):
            with pytest.raises(cs.ConfigError) as caught:
                topic.pipe_input("k", 1, **record)
            assert caught.value.code == "CS-241"
            str(caught.value).encode()
        topic.pipe_input("k", 1, headers=[("é", b"")])


@pytest.mark.parametrize("keys", [None, 5, 2.5, object(), "five", b"5"])
def test_several_keys_of_a_store_are_in_a_list_or_the_like(keys: Any) -> None:
    store = driver([(5, "five")], INT).get_key_value_store("rows")
    with pytest.raises(cs.StateError) as caught:
        store.get_many(keys)
    for fine in ((5, 6), {5: None}, iter([5]), pl.Series([5])):
        assert store.get_many(fine) == {5: "five"}
    error = caught.value
    assert (error.code, error.where["store"]) == ("CS-711", "rows")
    assert type(keys).__name__ in error.what
    assert error.next is not None
    assert "get_many([key])" in error.next


def test_what_is_raised_while_keys_are_listed_stays_as_it_is() -> None:
    def keys() -> Any:
        yield 5
        raise TypeError("mine")

    store = driver([], INT).get_key_value_store("rows")
    with pytest.raises(TypeError, match="mine"):
        store.get_many(keys())
