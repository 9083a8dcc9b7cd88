"""Where a change gives something else than a first run of the new code would: semantics 3.24, rules 4 and 9."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import crossstream as cs
from crossstream import serdes
from crossstream.topics import OffsetRange, TopicPartition
from tests.evolution.test_evolve import GIVEN, TEXT, WRITTEN, changed, run
from tests.spark.world import World, record_batch

SALES = {"shop": str, "amount": int}


def totals(**results: Any) -> cs.Topology:
    """Sales by shop."""
    builder = cs.StreamsBuilder()
    sales = builder.table("sales", cs.Consumed(key=TEXT, value=serdes.json(SALES)))
    by_shop = sales.group_by("shop").agg(**results, store="totals")
    by_shop.to_stream().to("totals", cs.Produced(key=TEXT, value=serdes.json()))
    return builder.build()


def test_an_aggregate_of_a_table_has_the_newest_time_of_the_rows_that_are_there(tmp_path: Path) -> None:
    """The newest row is deleted: a first run has its time, and the time of the delete; the change has neither."""
    world = World(tmp_path)
    world.create(sales=1, totals=1)
    rows = [("s1", {"shop": "a", "amount": 1}, 1_000), ("s2", {"shop": "a", "amount": 2}, 5_000)]
    world.append("sales", [*rows, ("s2", None, 9_000)], value=serdes.json())
    sum_of = cs.agg.sum("amount")
    new = totals(total=sum_of, sales=cs.agg.count())
    run(world, totals(total=sum_of))
    changed(world, new)
    (last,) = world.read("totals", value=serdes.json())[-1:]
    assert (last.value, last.ts) == ({"total": 1, "sales": 1}, 1_000)
    fresh = replace(world, root=tmp_path / "fresh")
    fresh.create(sales=1, totals=1)
    fresh.append("sales", [*rows, ("s2", None, 9_000)], value=serdes.json())
    run(fresh, new)
    (first,) = fresh.read("totals", value=serdes.json())[-1:]
    assert (first.value, first.ts) == ({"total": 1, "sales": 1}, 9_000)


SHOUTED = TopicPartition("shouted", 0)


def shouted(*, without: str = "") -> cs.Topology:
    builder = cs.StreamsBuilder()
    words = builder.table("words", GIVEN).filter(lambda word: word != without)
    words.map_values(str.upper).to_stream().to("shouted", WRITTEN)
    return builder.build()


def test_rows_whose_records_the_topic_has_lost_count_as_never_sent(tmp_path: Path) -> None:
    """Two rows are not in the topic any more: the one that goes is not deleted, the one that stays is sent again."""
    world = World(tmp_path)
    world.create(words=1, shouted=1)
    for number, word in enumerate(("one", "two", "three")):
        world.append("words", [(word, word, 1_000 * number)])
        run(world, shouted())
    _lose_all_but_the_last(world)
    assert world.topics.log().begin_offsets([SHOUTED]) == {SHOUTED: 3}
    changed(world, shouted(without="one"))
    end = world.topics.log().end_offsets([SHOUTED])[SHOUTED]
    (records,) = world.topics.reader().read(OffsetRange("shouted", 0, 4, end), 100)
    assert records.select(["key", "value"]).to_pylist() == [{"key": b"two", "value": b"TWO"}]


def _lose_all_but_the_last(world: World) -> None:
    """As a topic that deletes by age: the last record comes again, and what is before it is gone."""
    (records,) = world.wire("shouted")
    writer = replace(world.topics, segment_bytes=1).writer()
    writer.write("shouted", record_batch(records[-1:]))
    writer.close()
    older, _ = sorted((world.topics_dir / "shouted" / "0").glob("*.seg"))
    older.unlink()
