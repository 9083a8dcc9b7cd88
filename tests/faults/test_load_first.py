"""`Consumed(load="first")`: the results are those of an application that had read the table before any stream record.

law    in every batch size, and after restarts and crashes anywhere, the records that come out are those of two
       runs without the setting: one when only the first records of the tables were there, one with all others
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.errors import SourceError
from crossstream.storage.commit_log import BatchLog
from tests.faults.one_process import application, process
from tests.laws.crashes import Crash, crashing
from tests.laws.effort import cases
from tests.reference import Output
from tests.spark.world import World

TEXT = serdes.string()
TO = cs.Produced(key=TEXT, value=TEXT)
TABLES = ("customers", "cities")
Given = tuple[str, str | None, int]


def consumed(load: Any = "first", **settings: Any) -> cs.Consumed:
    return cs.Consumed(key=TEXT, value=TEXT, load=load, **settings)


def paired(left: str, right: str | None) -> str:
    return f"{left},{right or '∅'}"


def enriching(load: Any, join: str = "left_join", **kept: Any) -> cs.Topology:
    """Orders with their customers, who have their city in a second table."""
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", consumed(None))
    customers = builder.table("customers", consumed(load), cs.Materialized(store="customers", **kept))
    cities = builder.table("cities", consumed(load), cs.Materialized(store="cities"))
    getattr(orders, join)(customers, paired).to("direct", TO)
    orders.left_join(customers.left_join(cities, paired), paired).to("placed", TO)
    return builder.build()


SHAPES: dict[str, Callable[[Any], cs.Topology]] = {
    "left": enriching,
    "inner": lambda load: enriching(load, "join"),
    "versions": lambda load: enriching(load, history_retention="10 ms"),
}


class Story(NamedTuple):
    """``first``, ``later``: records of the tables before and after the first start; ``orders``: of the stream."""

    first: Sequence[tuple[str, Given]]
    orders: Sequence[Given]
    later: Sequence[tuple[str, Given]]


class Run(NamedTuple):
    """How the application runs: batch sizes of its starts, batches before each end, and crashes."""

    sizes: Sequence[int]
    batches: Sequence[int]
    crashes: Sequence[int]


records = st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y", None]), st.integers(0, 40))
rows = st.lists(st.tuples(st.sampled_from(TABLES), records), max_size=8)
orders = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("123"), st.integers(0, 40)), max_size=8)
stories = st.builds(Story, rows, orders, rows)
sizes = st.lists(st.integers(1, 6), min_size=1, max_size=3)
some_crashes = st.lists(st.integers(0, 30), max_size=2)
runs = st.builds(Run, sizes, st.lists(st.integers(0, 3), min_size=1, max_size=3), some_crashes)

YOUNG = Story([("customers", ("a", "x", 30)), ("cities", ("a", "y", 20))], [("a", "1", 10)], [])
"""The table is younger than the order."""


def made(folder: str, name: str) -> World:
    world = World(Path(folder) / name)
    world.create(orders=1, customers=2, cities=1, direct=1, placed=1)
    return world


def put(world: World, rows: Sequence[tuple[str, Given]]) -> None:
    for table, row in rows:
        places = [ord(row[0]) % 2] if table == "customers" else None
        world.append(table, [row], partitions=places)


def results(world: World) -> tuple[list[Output], list[Output], dict[str, Any]]:
    held = {name: dict(cs.open_store(world.state_dir, name).all()) for name in TABLES}
    return world.read("direct"), world.read("placed"), held


def tables_before(folder: str, shape: str, story: Story) -> Any:
    """Without the setting: first the tables, then all else in one batch."""
    world = made(folder, "before")
    topology = SHAPES[shape](None)
    put(world, story.first)
    process(topology, world.config())
    world.append("orders", story.orders)
    put(world, story.later)
    process(topology, world.config())
    return results(world)


def loaded_first(folder: str, shape: str, story: Story, run: Run, load: Any = "first") -> Any:
    world = made(folder, "loaded")
    topology = SHAPES[shape](load)

    def config(number: int) -> cs.StreamsConfig:
        size = run.sizes[number % len(run.sizes)]
        return world.config(max_records_per_batch=size, retain_batches=100)

    put(world, story.first)
    world.append("orders", story.orders)
    with application(topology, config(0)):
        pass  # the first start: from here on it is settled what is loaded
    put(world, story.later)
    for number, count in enumerate(run.batches):
        with application(topology, config(number)) as running:
            for _ in range(count):
                running.run_next()
    for number, last in enumerate(run.crashes):
        with suppress(Crash), crashing(last):
            process(topology, config(number))
    process(topology, config(0))
    return results(world)


BEHIND = Story([("customers", ("a", "x", 11))], [], [("customers", ("b", "x", 0))])
"""A record of another partition that comes while the table loads: stream time does not wait for it."""


@cases(0.6)
@given(st.sampled_from(sorted(SHAPES)), stories, runs)
@example("inner", YOUNG, Run([1], [1], []))
@example("versions", BEHIND, Run([1], [0], []))
def test_a_table_is_read_before_the_stream(shape: str, story: Story, run: Run) -> None:
    with TemporaryDirectory() as folder:
        assert loaded_first(folder, shape, story, run) == tables_before(folder, shape, story)


def test_without_the_setting_the_results_differ(tmp_path: Path) -> None:
    """So the law says something: a young table finds no order that is older."""
    run = Run([10], [1], [])
    assert loaded_first(str(tmp_path / "a"), "inner", YOUNG, run)[0] == [Output("a", "1,x", 10)]
    assert loaded_first(str(tmp_path / "b"), "inner", YOUNG, run, load=None)[0] == []


# -- what is read when


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Five customers in two partitions, and three orders that are older."""
    made_ = made(str(tmp_path), "world")
    put(made_, [("customers", (key, "x", 100)) for key in "abcde"])
    made_.append("orders", [("a", "1", 1), ("b", "2", 2), ("c", "3", 3)])
    return made_


def nodes_of(world: World) -> list[set[str]]:
    """The sources that each batch read from."""
    log = BatchLog(world.state_dir)
    return [{span.node for span in log.batch(number).ranges} for number in log.batches()]


def test_a_table_loads_in_batches_of_the_size_that_is_set(world: World) -> None:
    process(enriching("first"), world.config(max_records_per_batch=2, retain_batches=100))
    assert nodes_of(world) == [{"customers"}] * 3 + [{"orders"}] * 2


def test_only_what_was_there_at_the_first_start_is_loaded(world: World) -> None:
    """A row that comes later belongs to the batches like all others, and so do those of a new partition."""
    with application(enriching("first"), world.config()) as running:
        assert running.sources.waits == ("loads customers: 0 of 5",)
    put(world, [("customers", ("a", "young", 200))])
    world.append("orders", [("a", "4", 150)])
    process(enriching("first"), world.config())
    assert [record.value for record in world.read("direct") if record.key == "a"] == ["1,x", "4,x"]


def test_a_table_that_was_read_before_is_not_loaded(world: World) -> None:
    """The setting may be added to an application that has state: it changes nothing."""
    process(enriching(None), world.config(max_records_per_batch=2))
    put(world, [("customers", ("a", "y", 50))])
    with application(enriching("first"), world.config()) as running:
        assert not running.sources.bootstrapping


def test_a_topic_that_lost_its_end_cannot_be_loaded(world: World) -> None:
    with application(enriching("first"), world.config()):
        pass
    for segment in (world.topics_dir / "customers").rglob("*.seg"):
        segment.unlink()
    with pytest.raises(SourceError) as caught:
        process(enriching("first"), world.config())
    assert caught.value.code == "CS-603"
    assert "began to load it" in str(caught.value)


def test_a_topic_that_was_made_again_before_the_first_batch_is_loaded(world: World) -> None:
    """Nothing was read of the first one."""
    with application(enriching("first"), world.config()):
        pass
    world.topics.log().delete_topic("customers")
    world.create(customers=2)
    put(world, [("customers", ("a", "new", 300))])
    process(enriching("first"), world.config())
    assert [record.value for record in world.read("direct") if record.key == "a"] == ["1,new"]
