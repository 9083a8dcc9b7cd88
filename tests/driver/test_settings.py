"""What the test driver refuses, in the line that says it: settings, topics, records."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from typing import Any

import numpy as np
import pytest

import crossstream as cs
import crossstream.testing.topics
from crossstream import serdes
from tests.refusing import check_refused

TEXT = serdes.string()
CONSUMED, PRODUCED = cs.Consumed(key=TEXT, value=TEXT), cs.Produced(key=TEXT, value=TEXT)


def relay() -> cs.Topology:
    builder = cs.StreamsBuilder()
    builder.stream("in", CONSUMED).to("out", PRODUCED)
    return builder.build()


refused = partial(check_refused, cs.ConfigError, __file__)


@pytest.mark.parametrize("setting", ["deserialization_errors", "processing_errors"])
@pytest.mark.parametrize(
    "policy", ["Fail", "ignore", None, True, "dead-letter", "dead-letter:bad", cs.DeadLetter, ["fail"]]
)
def test_policies_are_those_of_the_configuration(setting: str, policy: Any) -> None:
    settings: dict[str, Any] = {setting: policy}
    for act in (
        lambda: cs.TopologyTestDriver(relay(), **settings),
        lambda: cs.StreamsConfig(application_id="promo", **settings),
    ):
        refused("CS-201", act, setting, repr(policy), "'fail' or 'skip' or DeadLetter(topic)")


def driver(**settings: Any) -> cs.TopologyTestDriver:
    return cs.TopologyTestDriver(relay(), **settings)


@pytest.mark.parametrize("setting", ["partitions", "commit_every"])
@pytest.mark.parametrize("number", [0, -1, "2", 2.5, None, True])
def test_partitions_and_records_of_a_batch_are_numbers_from_1(setting: str, number: Any) -> None:
    refused("CS-201", lambda: driver(**{setting: number}), setting, repr(number))


@pytest.mark.parametrize("bits", [0, 65, -1, "8", 8.0, None, True])
def test_hashes_of_keys_have_1_to_64_bits(bits: Any) -> None:
    refused("CS-201", lambda: driver(hash_bits=bits), "hash_bits", repr(bits), "from 1 to 64")


@pytest.mark.parametrize("bits", [1, 64, np.int64(8)])
def test_hashes_of_any_number_of_bits(bits: int) -> None:
    builder = cs.StreamsBuilder()
    builder.table("in", CONSUMED, cs.Materialized(store="rows"))
    with cs.TopologyTestDriver(builder.build(), hash_bits=bits) as made:
        made.create_input_topic("in", TEXT, TEXT).pipe_records([cs.TestRecord(k, k, 1) for k in "abcd"])
        assert [made.get_key_value_store("rows").get(k) for k in "abcd"] == list("abcd")


def test_numbers_may_be_those_of_numpy() -> None:
    with driver(partitions=np.int64(2), commit_every=np.int32(2)) as made:
        made.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v", partition=np.int64(1))
        made.commit()
        assert made.create_output_topic("out", TEXT, TEXT).queue_size == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (cs.StreamsBuilder(), ("StreamsBuilder", "builder.build()")),
        (cs.StreamsBuilder().build, ("method", "builder.build()")),
        (cs.StreamsConfig(application_id="promo"), ("StreamsConfig", "first")),
        (None, ("NoneType", "build()")),
    ],
)
def test_a_driver_runs_a_topology(given: Any, words: tuple[str, ...]) -> None:
    refused("CS-201", lambda: cs.TopologyTestDriver(given), "TopologyTestDriver", *words)


@pytest.mark.parametrize("kind", ["create_input_topic", "create_output_topic"])
def test_topics_have_serdes(kind: str) -> None:
    create = getattr(driver(), kind)
    topic = "in"
    for serde, step in (
        (serdes.string, "call it: {}=serdes.string()"),
        (object, "{}=serdes."),
        ("json", "{}=serdes."),
    ):
        for place, setting in enumerate(("key_serde", "value_serde")):
            pair = [TEXT, TEXT]
            pair[place] = serde
            with pytest.raises(cs.TopologyError) as caught:
                create(topic, *pair)
            assert caught.value.code == "CS-101"
            shown = "object" if serde is object else repr(serde)
            assert f"{kind}({setting}={shown})" in caught.value.what
            assert step.format(setting) in (caught.value.next or "")
            assert str(caught.value.where["line"]).startswith(__file__)


def test_topics_have_the_serdes_of_the_topology() -> None:
    builder = cs.StreamsBuilder()
    builder.stream("numbers", key=int, value=float).to("out")
    with cs.TopologyTestDriver(builder.build()) as made:
        made.create_input_topic("numbers").pipe_input(7, 0.5)
        assert made.create_output_topic("out").read_key_values() == [(7, 0.5)]
        made.create_input_topic("numbers", int, float).pipe_input(8, 1.5)
        assert made.create_output_topic("out", int, float).read_key_values() == [(8, 1.5)]
        with pytest.raises(cs.TopologyError, match="create_output_topic"):
            made.create_output_topic("elsewhere")


@pytest.mark.parametrize("kind", ["create_input_topic", "create_output_topic"])
@pytest.mark.parametrize("name", [5, None, "my topic", TEXT])
def test_topics_have_names(kind: str, name: Any) -> None:
    with pytest.raises(cs.TopologyError) as caught:
        getattr(driver(), kind)(name, TEXT, TEXT)
    assert caught.value.code == "CS-102"
    assert str(caught.value.where["line"]).startswith(__file__)


def test_the_clock_of_a_topic_starts_at_a_time() -> None:
    with driver() as made:
        start = datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)
        topic = made.create_input_topic("in", TEXT, TEXT, start_timestamp=start, auto_advance="1 second")
        topic.pipe_input("k", "1")
        topic.pipe_input("k", "2")
        out = made.create_output_topic("out", TEXT, TEXT)
        assert [record.timestamp for record in out.read_records()] == [1000, 2000]


@pytest.mark.parametrize("start", ["now", 1.5, True, None, 1 << 70])
def test_the_clock_of_a_topic_starts_at_no_other_thing(start: Any) -> None:
    refused(
        "CS-201",
        lambda: driver().create_input_topic("in", TEXT, TEXT, start_timestamp=start),
        "start_timestamp",
        repr(start),
    )


def pipes(
    record: tuple[Any, ...], **settings: Any
) -> list[Callable[[cs.testing.topics.TestInputTopic], object]]:
    """The ways to pipe a record."""
    return [
        lambda topic: topic.pipe_input(*record, **settings),
        lambda topic: topic.pipe_record(cs.TestRecord(*record, **settings)),
        lambda topic: topic.pipe_records([("a", "1", 1), cs.TestRecord(*record, **settings)]),
    ]


@pytest.mark.parametrize("way", [0, 1, 2])
@pytest.mark.parametrize(
    ("code", "settings"),
    [
        ("CS-201", {"timestamp": 1 << 70}),
        ("CS-201", {"timestamp": -(1 << 70)}),
        ("CS-201", {"timestamp": 1.5}),
        ("CS-201", {"timestamp": "now"}),
        ("CS-201", {"timestamp": True}),
        ("CS-241", {"headers": {"a": b"b"}}),
        ("CS-241", {"headers": [("a", "b")]}),
        ("CS-241", {"headers": [(b"a", b"b")]}),
        ("CS-241", {"headers": [("a", b"b", 1)]}),
        ("CS-241", {"headers": ["ab"]}),
        ("CS-241", {"headers": "ab"}),
        ("CS-241", {"headers": 5}),
    ],
)
def test_what_cannot_be_piped_leaves_nothing_behind(way: int, code: str, settings: dict[str, Any]) -> None:
    with driver() as made:
        topic = made.create_input_topic("in", TEXT, TEXT, auto_advance=1)
        refused(code, lambda: pipes(("k", "v"), **settings)[way](topic))
        topic.pipe_input("k", "v")
        assert made.create_output_topic("out", TEXT, TEXT).read_records() == [cs.TestRecord("k", "v", 0)]


def test_a_dict_of_headers_is_told_to_be_pairs() -> None:
    topic = driver().create_input_topic("in", TEXT, TEXT)
    refused("CS-241", lambda: topic.pipe_input("k", "v", headers={"a": b"b"}), 'headers=[("a", b"b")]')


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("partition", [-1, 2, 5, "0", 0.0, True])
def test_a_record_goes_to_a_partition_that_there_is(partitions: int, partition: Any) -> None:
    with driver(partitions=partitions) as made:
        topic = made.create_input_topic("in", TEXT, TEXT, auto_advance=1)
        words = (repr(partition), f"{partitions}")
        refused("CS-241", lambda: topic.pipe_input("k", "v", partition=partition), *words)
        refused("CS-241", lambda: topic.pipe_record(cs.TestRecord("k", "v"), partition=partition), *words)
        topic.pipe_input("k", "v", partition=partitions - 1)
        assert made.create_output_topic("out", TEXT, TEXT).read_records() == [cs.TestRecord("k", "v", 0)]


@pytest.mark.parametrize("record", [5, None, "kv", {"k": "v", "l": "w"}, ("k",), ("k", "v", 1, (), 5)])
def test_what_is_no_record(record: Any) -> None:
    topic = driver().create_input_topic("in", TEXT, TEXT)
    refused("CS-241", lambda: topic.pipe_records([record]), repr(record))
    refused("CS-241", lambda: topic.pipe_records([("a", "1"), record]), repr(record))
    refused("CS-241", lambda: topic.pipe_record(record), repr(record))


def test_records_are_piped_in_something_that_has_them() -> None:
    topic = driver().create_input_topic("in", TEXT, TEXT)
    for given in (cs.TestRecord("k", "v"), None, 5):
        refused("CS-241", lambda given=given: topic.pipe_records(given), "pipe_record(")


def test_a_record_may_be_a_tuple_or_a_list() -> None:
    with driver() as made:
        topic = made.create_input_topic("in", TEXT, TEXT)
        topic.pipe_record(("k", "1", 5))
        topic.pipe_records([["k", "2", 6]])
        assert made.create_output_topic("out", TEXT, TEXT).read_values() == ["1", "2"]
