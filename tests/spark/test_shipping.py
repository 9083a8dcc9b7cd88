"""A function or a serde that holds what no other process can have is refused by name."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.catalog.planners import plan_topology
from crossstream.runtime.worker import Job
from crossstream.spark.rounds import pickled_job
from crossstream.task.batch import settings_of

TEXT = serdes.string()
BOTH = cs.Consumed(key=TEXT, value=TEXT)


class Guarded:
    """Functions that hold a lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def one(self, value: Any) -> Any:
        return value

    def two(self, left: Any, right: Any) -> Any:
        return left

    def many(self, *arguments: Any) -> Any:
        return arguments[0]


def job(build: Callable[[Any, Any, Any, Any], Any]) -> Job:
    builder = cs.StreamsBuilder()
    build(builder, builder.stream("s", BOTH), builder.table("t", BOTH), builder.table("u", BOTH))
    settings = settings_of(cs.StreamsConfig(application_id="a", topics_dir="topics"))
    return Job("a", plan_topology(builder.build()).shipped(), "state", "staging", settings, None)


held = Guarded()
PARTS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "joiner of s.join(t)": lambda b, s, t, u: s.join(t, held.two),
    "joiner of t.join(u)": lambda b, s, t, u: t.join(u, held.two),
    "foreign key of t.join(u)": lambda b, s, t, u: t.join(u, max, foreign_key=held.one),
    "foreign keys of t.join_many(u)": lambda b, s, t, u: t.join_many({"u": (u, held.one)}, max),
    "partitioner of t.join(u)": lambda b, s, t, u: t.join(
        u, max, foreign_key=str, table_joined=cs.TableJoined(partitioner=held.two)
    ),
    "key selector of s.join(g)": lambda b, s, t, u: s.join(
        b.global_table("g", BOTH), max, key_selector=held.two
    ),
    "predicate of s.filter": lambda b, s, t, u: s.filter(held.one),
    "mapper of t.map_values": lambda b, s, t, u: t.map_values(held.one),
    "predicates of s.split": lambda b, s, t, u: s.split().branch(held.one, "b").no_default_branch(),
    "function of s.foreach": lambda b, s, t, u: s.foreach(held.two),
    "topic extractor of s.to": lambda b, s, t, u: s.to(held.two, cs.Produced(key=TEXT, value=TEXT)),
    "timestamp extractor of x": lambda b, s, t, u: b.stream(
        "x", cs.Consumed(key=TEXT, value=TEXT, timestamp_extractor=held.many)
    ),
}


@pytest.mark.parametrize("part", PARTS)
def test_the_part_is_named(part: str) -> None:
    with pytest.raises(cs.TopologyError) as caught:
        pickled_job(job(PARTS[part]))
    error = caught.value
    assert error.code == "CS-112"
    assert error.what.startswith(f"the {part}")
    assert error.what.endswith(
        "cannot be sent to Spark's workers (TypeError: cannot pickle '_thread.lock' object)"
    )
    assert "spark/test_shipping.py" in error.where["line"]


def test_the_function_of_a_sink_of_frames_stays_in_the_driver() -> None:
    shipped = pickled_job(job(lambda b, s, t, u: s.for_each_batch(held.two)))
    assert pickle.loads(shipped).application_id == "a"


def test_what_can_be_sent_is() -> None:
    lost: list[Any] = []
    function = pickle.loads(pickled_job(job(lambda b, s, t, u: s.map_values(lambda value: [*lost, value]))))
    assert function.plan.topology["s.map_values"].mapper.call("x") == ["x"]
