"""Sources with other names than in the last run: what was read is told by topics. Nothing is lost or repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application.local import LocalRounds
from crossstream.storage.commit_log import BatchLog
from tests.faults.crash_points import POINTS, Crash
from tests.faults.one_process import application, process, streams
from tests.spark.world import ALONE, SPREAD, World

TEXT = serdes.string()


def reading(*sources: tuple[str | None, Any]) -> cs.Topology:
    """Sources by name and topics, each to the topic "out"."""
    builder = cs.StreamsBuilder()
    for name, topics in sources:
        stream = builder.stream(topics, cs.Consumed(key=TEXT, value=TEXT, name=name))
        stream.to("out", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


@pytest.fixture(params=[SPREAD, ALONE], ids=["spread", "alone"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    made = World(tmp_path, single_task_rows=request.param)
    made.create(orders=1, bills=1, out=1)
    made.append("orders", [("o1", "v", 1)])
    made.append("bills", [("b1", "v", 1)])
    return made


def out(world: World) -> list[str]:
    return sorted(record.key for record in world.read("out"))


def positions(world: World) -> Any:
    return BatchLog(world.state_dir).newest().positions


def test_a_source_that_is_renamed_goes_on(world: World) -> None:
    process(reading(("a", "orders")), world.config())
    world.append("orders", [("o2", "v", 2)])
    with streams(reading(("b", "orders")), world.config()) as app:
        app.start()
        app.process_available()
        assert app.progress.lag == 0
    assert out(world) == ["o1", "o2"]
    assert positions(world) == {"b": {"orders": {0: 2}}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([(None, "orders")], [(None, ["orders", "bills"])]),
        ([(None, ["orders", "bills"])], [(None, "orders"), (None, "bills")]),
        ([("a", "orders"), ("b", "bills")], [("b", "orders"), ("a", "bills")]),
        ([("a", "orders"), ("b", "bills")], [("ab", ["bills", "orders"])]),
    ],
)
def test_topics_that_other_sources_read_now(world: World, before: Any, after: Any) -> None:
    process(reading(*before), world.config())
    world.append("orders", [("o2", "v", 2)])
    world.append("bills", [("b2", "v", 2)])
    process(reading(*after), world.config())
    assert out(world) == ["b1", "b2", "o1", "o2"]


def test_a_source_that_was_gone_for_a_while_goes_on(world: World) -> None:
    process(reading(("a", "orders"), ("b", "bills")), world.config())
    world.append("orders", [("o2", "v", 2)])
    world.append("bills", [("b2", "v", 2)])
    process(reading(("b", "bills")), world.config())
    assert out(world) == ["b1", "b2", "o1"]
    process(reading(("c", "orders"), ("b", "bills")), world.config())
    assert out(world) == ["b1", "b2", "o1", "o2"]


def begin(world: World, topology: cs.Topology, owner: Any, step: str) -> None:
    """A batch is begun, and fails at a step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, step, lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            process(topology, world.config())


def test_a_batch_that_was_begun_under_the_name_before(world: World) -> None:
    begin(world, reading(("a", "orders")), BatchLog, "write_commit")
    world.append("orders", [("o2", "v", 2)])
    process(reading(("b", "orders")), world.config())
    assert out(world) == ["o1", "o2"]


def test_records_of_a_batch_that_was_begun_are_left_to_the_source_that_is_gone(world: World) -> None:
    """The batch is planned anew without them."""
    world.append("bills", [("b2", "v", 2)])
    begin(world, reading(("a", "orders"), ("b", "bills")), LocalRounds, "run")
    process(reading(("b", "bills")), world.config())
    assert out(world) == ["b1", "b2"]
    process(reading(("a", "orders"), ("b", "bills")), world.config())
    assert out(world) == ["b1", "b2", "o1"]


def test_what_a_batch_had_published_for_a_source_that_is_gone_is_not_taken_for_anothers(world: World) -> None:
    """Frames are told by the number of their task: another source's records must not get that of its own."""
    both, bills = reading(("a", "orders"), ("b", "bills")), reading(("b", "bills"))
    with pytest.MonkeyPatch.context() as patch, application(both, world.config()) as running:
        POINTS["after the first frame is published"](patch)
        with pytest.raises(Crash):
            running.run_until(running.inputs.end_offsets())
    [first] = set(out(world)) - {"b1"} or {"b1"}
    process(bills, world.config())
    assert set(out(world)) == {first, "b1"}
    process(both, world.config())
    assert set(out(world)) == {"b1", "o1"}
