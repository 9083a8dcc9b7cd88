"""Records of one time: tables come before streams, whatever was built first."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import crossstream as cs
from crossstream.columns.order import minor_of
from crossstream.spark.frames import frame_spans
from crossstream.storage.log_entries import SourceRange
from crossstream.task.batch import Batch, rank_of

TEXT = cs.serdes.string()
CONSUMED = cs.Consumed(key=TEXT, value=TEXT)
VERSIONS = cs.Materialized(history_retention="1 hour")
TABLES: dict[str, tuple[str, Sequence[Any]]] = {
    "table": ("table", ()),
    "table with versions": ("table", (VERSIONS,)),
    "global table": ("global_table", ()),
}


def found(shape: str, table_first: bool, commit_every: int, piped: Sequence[str]) -> list[str]:
    builder, (method, options) = cs.StreamsBuilder(), TABLES[shape]
    if table_first:
        users = getattr(builder, method)("users", CONSUMED, *options)
    visits = builder.stream("visits", CONSUMED)
    if not table_first:
        users = getattr(builder, method)("users", CONSUMED, *options)
    by = {"key_selector": lambda key, value: key} if shape == "global table" else {}
    joined = visits.left_join(users, lambda visit, user: f"{visit},{user}", **by)
    joined.to("out", cs.Produced(key=TEXT, value=TEXT))
    with cs.TopologyTestDriver(builder.build(), commit_every=commit_every) as driver:
        for topic in piped:
            driver.create_input_topic(topic, TEXT, TEXT).pipe_input("k", topic[0], timestamp=5)
        driver.commit()
        return driver.create_output_topic("out", TEXT, TEXT).read_values()


@pytest.mark.parametrize("table_first", [True, False])
@pytest.mark.parametrize("shape", TABLES)
@pytest.mark.parametrize("piped", [("visits", "users"), ("users", "visits")])
def test_a_record_finds_the_row_of_its_own_time(shape: str, table_first: bool, piped: Sequence[str]) -> None:
    assert found(shape, table_first, 2, piped) == ["v,u"]


@pytest.mark.parametrize("table_first", [True, False])
@pytest.mark.parametrize("shape", TABLES)
def test_in_batches_of_one_record_the_order_of_piping_decides(shape: str, table_first: bool) -> None:
    assert found(shape, table_first, 1, ("visits", "users")) == ["v,None"]
    assert found(shape, table_first, 1, ("users", "visits")) == ["v,u"]


def test_dataframes_keep_this_order_beside_topics() -> None:
    """Tables of topics and of frames, then streams of topics and of frames, in every partition of a frame."""
    shapes = {"stream frame": "stream", "table frame": "table"}
    topology: Any = {name: SimpleNamespace(shape=shape) for name, shape in shapes.items()}
    spans = [frame_spans(topology, list(shapes), share) for share in (0, 1, 200)]
    tables = [rank_of("table", 9), *(span["table frame"].rank for span in spans)]
    streams = [rank_of("stream", 0), *(span["stream frame"].rank for span in spans)]
    ranks = [*tables, *streams]
    assert ranks == sorted(set(ranks))
    minor = np.array([int(minor_of(rank, np.array([7]), 0)[0]) for rank in ranks])
    assert (minor > 0).all()
    topics = (SourceRange("table", "t", 0, 0, 9, tables[0]), SourceRange("stream", "s", 0, 0, 9, streams[0]))
    batch = Batch(0, topics, 1, frames=tuple(shapes))
    made = {name: batch.came_from({name}, minor).tolist() for name in ("table", "stream", *shapes)}
    yes, no = [True] * 3, [False] * 3
    assert made == {
        "table": [True, *no, False, *no],
        "stream": [False, *no, True, *no],
        "table frame": [False, *yes, False, *no],
        "stream frame": [False, *no, False, *yes],
    }
