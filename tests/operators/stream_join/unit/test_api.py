"""The join of two streams: its node, serdes, stores and names, and every wrong combination in the user's line."""

from __future__ import annotations

import inspect
from datetime import timedelta

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.graph import nodes as graph
from tests.api.cases import JSON, TYPED, node_of, refused, serde_names, stream

TEN = cs.JoinWindows.of("10 seconds")


def joiner(left, right):
    return [left, right]


def streams(*topics, consumed=JSON):
    builder = cs.StreamsBuilder()
    return [builder.stream(topic, consumed) for topic in topics]


def test_the_node():
    views, clicks = streams("views", "clicks")
    windows = cs.JoinWindows(before=0, after="10 seconds", grace="1 minute")
    node = node_of(views.left_join(clicks, joiner, windows))
    assert type(node) is graph.StreamStreamJoin
    assert (node.name, node.parents, node.shape) == ("views.left_join(clicks)", ("views", "clicks"), "stream")
    assert (node.kind, node.before, node.after, node.grace, node.eager) == ("left", 0, 10_000, 60_000, False)
    assert node_of(views.outer_join(clicks, joiner, cs.JoinWindows.of(5, eager=True))).eager
    assert node_of(views.join(views, joiner, TEN)).parents == ("views", "views")


@pytest.mark.parametrize(
    "function", [joiner, lambda key, left, right: key, cs.keyed(lambda *a: a), pl.col("left")]
)
def test_joiners(function):
    views, clicks = streams("views", "clicks", consumed=TYPED)
    assert node_of(views.join(clicks, function, TEN)).joiner is not None


def test_serdes():
    views, clicks = streams("views", "clicks")
    assert serde_names(views.join(clicks, joiner, TEN)) == ("string", None)
    lost = views.map(lambda key, value: (key, value))
    assert serde_names(lost.join(clicks, joiner, TEN)) == ("string", None)
    assert serde_names(clicks.join(lost, joiner, TEN)) == ("string", None)
    told = cs.StreamJoined(key=serdes.string(), value=serdes.json(), other_value=serdes.json())
    node = node_of(lost.join(lost.filter(lambda value: True), joiner, TEN, told))
    assert (node.store.value, node.other_store.value) == (serdes.json(), serdes.json())
    refused("CS-140", lambda: lost.join(lost, joiner, TEN), "StreamJoined(key=serdes.string())")
    wrong = cs.StreamJoined(key=serdes.int64())
    refused("CS-140", lambda: views.join(clicks, joiner, TEN, wrong), "they are string")
    wrong_value = cs.StreamJoined(other_value=serdes.int64())
    refused("CS-140", lambda: views.join(clicks, joiner, TEN, wrong_value), "leave other_value= out")


def test_a_stream_with_itself_has_one_value_serde_and_the_setting_that_is_wrong_is_named():
    (views,) = streams("views")
    number = serdes.int64()
    for wrong, setting in (({"value": number}, "value"), ({"other_value": number}, "other_value")):
        told = cs.StreamJoined(**wrong)
        refused(
            "CS-140", lambda told=told: views.join(views, joiner, TEN, told), f"leave {setting}= out", "int64"
        )
    lost = views.map_values(lambda value: value)
    two = cs.StreamJoined(value=number, other_value=serdes.json())
    refused("CS-140", lambda: lost.join(lost, joiner, TEN, two), "leave other_value= out")
    for one in ({"value": number}, {"other_value": number}, {"value": number, "other_value": number}):
        node = node_of(lost.join(lost, joiner, TEN, cs.StreamJoined(**one)))
        assert (node.store.value, node.other_store.value) == (number, number)
    json = cs.StreamJoined(value=serdes.json(), other_value=number)
    refused("CS-140", lambda: views.join(views, joiner, TEN, json), "leave other_value= out")


def test_names():
    views, clicks = streams("views", "clicks")
    named = views.join(clicks, joiner, TEN, cs.StreamJoined(name="seen"))
    assert node_of(named).name == "seen"
    refused("CS-120", lambda: views.join(clicks, joiner, TEN, cs.StreamJoined(name="seen")))
    refused("CS-102", lambda: cs.StreamJoined(name="no blanks"))
    refused("CS-102", lambda: cs.StreamJoined(other_store=""))
    assert node_of(views.join(clicks, joiner, TEN)).name == "views.join(clicks)-2"


def test_stores_have_names_of_their_own():
    views, clicks = streams("views", "clicks")
    views.join(clicks, joiner, TEN, cs.StreamJoined(store="v", other_store="c"))
    refused("CS-120", lambda: views.join(clicks, joiner, TEN, cs.StreamJoined(store="c")), "named 'c'")
    refused("CS-120", lambda: views.to_table(materialized=cs.Materialized(store="v")))
    refused("CS-120", lambda: cs.StreamJoined(store="same", other_store="same"), "'same'")


def test_windows():
    assert cs.JoinWindows.of("10 seconds") == cs.JoinWindows(before="10 seconds", after="10 seconds")
    assert cs.JoinWindows(before="-5 seconds", after=5_000).milliseconds() == (-5_000, 5_000, 0)
    refused("CS-110", lambda: cs.JoinWindows(before=-5, after=4), "ends 1 ms before it begins")
    refused("CS-110", lambda: cs.JoinWindows.of(-1, grace=-1), "grace must be at least 0")
    refused("CS-110", lambda: cs.JoinWindows(before="soon", after=0), "before is not a duration")
    refused("CS-110", lambda: cs.JoinWindows.of(1.5), "not a duration")
    refused("CS-101", lambda: cs.JoinWindows.of(1, eager="yes"))
    refused("CS-101", lambda: cs.JoinWindows(before=1), "needs after")
    refused("CS-101", lambda: cs.JoinWindows.of(1, grce=2), "did you mean grace")
    refused("CS-101", lambda: cs.JoinWindows.of(), "JoinWindows.of needs duration")
    refused("CS-101", lambda: cs.JoinWindows.of(5, before=3), "'before'", "JoinWindows(before=…, after=…")
    refused("CS-101", lambda: cs.JoinWindows.of(5, duration=3), "multiple values")
    refused("CS-101", lambda: cs.JoinWindows.of(5, 0, False, 1), "too many")
    with pytest.raises(AttributeError):
        TEN.grace = 5


def test_durations_that_are_spelled_in_another_way_are_the_same():
    minute = timedelta(minutes=1)
    assert cs.JoinWindows.of("10 seconds", grace=minute) == cs.JoinWindows.of(10_000, grace="60 seconds")
    assert cs.JoinWindows(before="-5 seconds", after=minute) == cs.JoinWindows(before=-5_000, after=60_000)
    assert cs.Joined(grace="1 minute") == cs.Joined(grace=minute) != cs.Joined()
    assert cs.Materialized(history_retention="1 minute") == cs.Materialized(history_retention=60_000)


def test_a_window_of_a_third_of_a_second_is_told_in_milliseconds():
    third = timedelta(seconds=1) / 3
    refused(
        "CS-110",
        lambda: cs.JoinWindows.of(third),
        "finer than one millisecond",
        "timedelta(milliseconds=333)",
    )


def test_windows_to_either_side_have_the_signature_that_is_promised():
    assert str(inspect.signature(cs.JoinWindows.of)).startswith(
        "(duration: 'Duration', grace: 'Duration' = 0, eager: 'bool' = False)"
    )
    assert cs.JoinWindows.of(1, 2, True) == cs.JoinWindows(before=1, after=1, grace=2, eager=True)


def test_what_is_missing_or_wrong():
    views, clicks = streams("views", "clicks")
    refused("CS-110", lambda: views.join(clicks, joiner), "JoinWindows.of")
    refused("CS-110", lambda: views.outer_join(clicks, joiner, None))
    refused("CS-101", lambda: views.join(clicks, joiner, "10 seconds"), "JoinWindows")
    refused("CS-101", lambda: views.join(clicks, joiner, TEN, cs.Named("x")), "StreamJoined")
    refused("CS-104", lambda: views.join(clicks, 1, windows=TEN), "joiner")
    refused(
        "CS-110", lambda: views.join(clicks, joiner, TEN, within="1 second"), "twice: windows=… and within=…"
    )
    refused("CS-110", lambda: views.join(clicks, joiner, within="1 s", before=5), "within=… and before=…")
    refused("CS-104", lambda: views.join(clicks, lambda one: one, TEN))
    refused("CS-136", lambda: views.join(clicks, joiner, TEN, key_selector=joiner), "windows")
    refused("CS-135", lambda: views.join(stream("elsewhere"), joiner, TEN))
    refused("CS-135", lambda: views.join(None, joiner, TEN))
    refused("CS-135", lambda: views.join("clicks", joiner, TEN))


def test_keys_that_never_meet():
    builder = cs.StreamsBuilder()
    views = builder.stream("views", JSON)
    numbers = builder.stream("numbers", cs.Consumed(key=serdes.int64(), value=serdes.json()))
    refused("CS-134", lambda: views.join(numbers, joiner, TEN), "string keys", "int64 keys")


def test_unequal_repartitions():
    views, clicks = streams("views", "clicks")
    three, four = (one.repartition(cs.Repartitioned(partitions=n)) for one, n in ((views, 3), (clicks, 4)))
    refused("CS-128", lambda: three.join(four, joiner, TEN), "different numbers of partitions")
    three.join(clicks, joiner, TEN)
    re_keyed = three.select_key(lambda value: value["user"])
    re_keyed.join(four, joiner, TEN, cs.StreamJoined(key=serdes.string()))  # moves once more


@pytest.mark.parametrize("name", ["join", "left_join"])
def test_the_other_side_comes_first_or_is_called_other(name):
    builder = cs.StreamsBuilder()
    clicks, shops, places = (
        builder.stream("clicks", JSON),
        builder.table("shops", JSON),
        builder.global_table("p", JSON),
    )
    join = getattr(builder.stream("orders", JSON), name)
    refused(
        "CS-136", lambda: join(table=shops, joiner=joiner), "'other'", f"{name}(other, [joiner], [joined]"
    )
    refused("CS-136", lambda: join(stream=clicks, joiner=joiner, windows=TEN), "'other'", "windows")
    refused("CS-136", lambda: join(global_table=places, joiner=joiner), "'other'", "key_selector=…")
    refused("CS-136", lambda: join(), "'other'", "KStream", "KTable", "GlobalKTable")
    refused("CS-136", lambda: join(shops, other=shops, joiner=joiner), "'other'", "[joined]")
    refused("CS-136", lambda: join(shops, joiner, joiner=joiner), "'joiner'", "[joined]")
    assert repr(join(joiner=joiner, other=shops)).startswith("<KStream")


def test_the_other_side_of_an_outer_join_is_a_stream():
    builder = cs.StreamsBuilder()
    orders, shops = builder.stream("orders", JSON), builder.table("shops", JSON)
    refused("CS-136", lambda: orders.outer_join(), "'other'", "write outer_join(other, [joiner], ")
    refused("CS-136", lambda: orders.outer_join(table=shops, joiner=joiner), "'other'", "with a KStream")
