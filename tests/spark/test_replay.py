"""What workers of Spark wrote is written again, byte for byte, by the tasks in one process."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

import crossstream as cs
from tests.laws.shapes import TEXT
from tests.recompute.replay.lives import OPERATORS, Life, drawn

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("operator", ["foreign_key_join", "stream_join", "windowed", "global_join"])
def test_batches_of_spark(spark: Any, tmp_path: Path, operator: str) -> None:
    for seed in (1, 2):
        life, batches = drawn(
            Random(f"{operator} {seed}"), OPERATORS[operator][seed % 2], tmp_path / str(seed), 3
        )
        live_on_spark(life, batches, spark)
        assert len(life.batches()) >= len(batches)
        for number in life.batches():
            found = life.again(number)[1]
            assert (found.is_same, found.notes) == (True, ()), (operator, seed, number, found)


def live_on_spark(life: Life, batches: Any, spark: Any) -> None:
    life.world.create(**life.topics)
    with cs.SparkStreams(life.topology, life.config, spark) as app:
        for batch in batches:
            for topic, key, value, ts, place in batch:
                life.world.append(topic, [(key, value, ts)], TEXT, TEXT, partitions=[place])
            app.process_available()


def test_a_batch_of_dataframes(spark: Any, tmp_path: Path) -> None:
    """Its rows are kept nowhere; batches of topics beside them run again."""
    folder = str(tmp_path / "rows")
    spark.createDataFrame([("a", "1")], "key string, value string").write.parquet(folder)
    builder = cs.StreamsBuilder()
    frame = spark.readStream.schema("key string, value string").parquet(folder)
    rows = builder.stream_from(frame, cs.Consumed(key=TEXT, value=TEXT, name="rows"))
    held = builder.table("right", cs.Consumed(key=TEXT, value=TEXT, load="first"))
    rows.left_join(held, lambda one, other: f"{one},{other}").to("out", key=TEXT, value=TEXT)
    life, _ = drawn(Random(1), OPERATORS["source"][0], tmp_path, 2)
    life = Life(life.world, builder.build(), {"right": 1}, {"partitions": 2})
    live_on_spark(life, [[("right", "a", "x", 1, 0)]], spark)
    assert life.batches() == [0, 1]
    assert life.again(0)[1].is_same
    with pytest.raises(cs.StateError) as caught:
        life.again(1)
    assert caught.value.code == "CS-715"
    assert "rows" in str(caught.value.next)
