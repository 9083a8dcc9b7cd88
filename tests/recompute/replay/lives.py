"""Applications that process records in batches, each of which is then run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import crossstream as cs
from crossstream.application.inputs import connection_of
from crossstream.catalog.planners import plan_topology
from crossstream.lakehouse.connection import as_begun
from crossstream.recompute.again import Rerun, run_past
from crossstream.recompute.bundle_packing import Packing
from crossstream.recompute.bundles import open_bundle
from crossstream.recompute.committed_results import committed_results, written_topics
from crossstream.recompute.parted_records import compare_results
from crossstream.recompute.parted_rows import compare_stores
from crossstream.recompute.partings import Found, together
from crossstream.recompute.past_batch import past_batch, replayable
from crossstream.storage.commit_log import BatchLog
from crossstream.task.batch import settings_of
from tests.faults.one_process import application
from tests.laws.shapes import IN, REKEYED, SHAPES, TEXT, grouped
from tests.spark.world import ALONE, SPREAD, World

Given = tuple[str, str | None, Any, int, int]
"""Topic, key, value, timestamp, partition."""
KEPT = 10_000
"""Batches that stay, so that each can be run again."""


@dataclass(frozen=True, slots=True)
class Life:
    """``topics``: those that are read, with the number of their partitions. ``keys``, ``values``: serdes of records."""

    world: World
    topology: cs.Topology
    topics: Mapping[str, int]
    settings: dict[str, Any] = field(default_factory=dict)
    serdes: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def config(self) -> cs.StreamsConfig:
        return self.world.config(retain_batches=KEPT, **self.settings)

    @property
    def state(self) -> str | Path:
        return self.config.state_path

    def live(self, batches: Sequence[Sequence[Given]]) -> None:
        """Processes the records in these batches, and stops."""
        there = self.world.topics.log().topics()
        self.world.create(**{topic: n for topic, n in self.topics.items() if topic not in there})
        with application(self.topology, self.config) as running:
            for batch in batches:
                for topic, key, value, ts, place in batch:
                    pair = self.serdes.get(topic, (TEXT, TEXT))
                    self.world.append(topic, [(key, value, ts)], *pair, partitions=[place])
                running.run_until(running.inputs.end_offsets())

    def batches(self) -> list[int]:
        log = BatchLog(self.state)
        return replayable(log.batches(), log.commits())

    def again(self, number: int, topology: cs.Topology | None = None) -> tuple[Rerun, Found]:
        """A batch, run again with the topics and the state."""
        past = past_batch(self.state, number)
        plan = plan_topology(topology or self.topology)
        connection = as_begun(connection_of(self.config, self.topology), past.application.starts.positions)
        assert connection is not None
        counts = connection.log().topics()
        rerun = run_past(past, plan, connection.reader(), counts, settings_of(self.config))
        topics = written_topics(plan.topology, past, {owner.topic for owner in rerun.results.parts})
        there = committed_results(past, connection, topics)
        assert there is not None
        return rerun, together(compare_stores(rerun), compare_results(rerun, there))

    def from_bundle(self, number: int) -> tuple[Rerun, Found]:
        """The same, from a bundle of it."""
        target = self.world.root / f"{number}.bundle"
        Packing.of(self.state, number).write(target, connection_of(self.config, self.topology), self.topology)
        with open_bundle(target, number) as bundle:
            plan = plan_topology(self.topology)
            rerun = run_past(bundle.past, plan, bundle.reader, bundle.counts, settings_of(self.config))
            assert bundle.results is not None
            return rerun, together(compare_stores(rerun), compare_results(rerun, bundle.results))


@contextmanager
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as path:
        yield Path(path)


# -- a topology for each operator ------------------------------------------------------------------------------

Build = Callable[[cs.StreamsBuilder], Any]


def of_stream(shape: Callable[[Any], Any]) -> Build:
    return lambda builder: shape(builder.stream("left", IN))


def of_table(shape: Callable[[Any], Any], **kept: Any) -> Build:
    made = cs.Materialized(store="left", **kept)
    return lambda builder: shape(builder.table("left", IN, made))


def two_tables(how: str, **more: Any) -> Build:
    def build(builder: cs.StreamsBuilder) -> Any:
        left, right = builder.table("left", IN), builder.table("right", IN)
        return getattr(left, how)(right, lambda one, other: f"{one},{other}", **more)

    return build


def of_streams(how: str) -> Build:
    def build(builder: cs.StreamsBuilder) -> Any:
        left, right = builder.stream("left", IN), builder.stream("right", IN)
        window = cs.JoinWindows.of(6, grace=3)
        return getattr(left, how)(right, lambda one, other: f"{one},{other}", window)

    return build


def stream_and(table: Callable[[cs.StreamsBuilder], Any], **more: Any) -> Build:
    return lambda builder: builder.stream("left", IN).left_join(
        table(builder), lambda one, other: f"{one},{other}", **more
    )


def many(builder: cs.StreamsBuilder) -> Any:
    left, right = builder.table("left", IN), builder.table("right", IN)
    return left.join_many(
        {"first": (right, lambda value: value[0]), "last": (right, lambda value: value[-1])},
        lambda one, rows: f"{one},{rows}",
    )


def summed(builder: cs.StreamsBuilder) -> Any:
    by_value = builder.table("left", IN).group_by(lambda k, v: (v, k), cs.Grouped(key=TEXT, value=TEXT))
    return by_value.count()


OPERATORS: Mapping[str, Sequence[Build]] = {
    "source": [of_stream(lambda s: s), of_table(lambda t: t), of_table(lambda t: t, history_retention=6)],
    "sink": [of_stream(lambda s: s.map_values(lambda v: v * 2))],
    "stateless": [of_stream(shape) for shape in REKEYED.values()],
    "table": [of_stream(lambda s: s.to_table()), of_table(lambda t: t.filter(lambda v: v > "2"))],
    "expire": [
        of_table(lambda t: t, ttl="8 ms"),
        of_table(lambda t: t.map_values(lambda v: v), ttl="8 ms", clock="wall"),
    ],
    "aggregate": [
        of_stream(lambda s: grouped(s).count()),
        of_stream(lambda s: grouped(s).aggregate(list, lambda seen, value: [*seen, value])),
        of_stream(lambda s: grouped(s).agg(most=cs.agg.max("value"), all=cs.agg.count())),
        summed,
    ],
    "windowed": [
        of_stream(SHAPES[f"{kind}, {emit}"])
        for kind in ("time", "sliding", "session")
        for emit in ("update", "close")
    ],
    "suppress": [of_stream(SHAPES["time limit"]), of_stream(SHAPES["time, suppressed"])],
    "deduplicate": [of_stream(SHAPES["deduplicate"]), of_stream(SHAPES["deduplicate by value"])],
    "process": [of_stream(SHAPES["processor"]), of_stream(SHAPES["processors"])],
    "stream_join": [of_streams("join"), of_streams("left_join"), of_streams("outer_join")],
    "stream_table_join": [
        stream_and(lambda builder: builder.table("right", IN)),
        of_stream(SHAPES["look-up with grace"]),
    ],
    "table_join": [two_tables("join"), two_tables("left_join"), two_tables("outer_join")],
    "foreign_key_join": [
        *(two_tables(how, foreign_key=lambda value: value[0]) for how in ("join", "left_join")),
        *(
            two_tables(how, foreign_key=lambda value: value[0], keyed_by=cs.LeftOrRight)
            for how in ("right_join", "outer_join")
        ),
    ],
    "global_join": [
        stream_and(
            lambda builder: builder.global_table("right", IN), key_selector=lambda key, value: value[0]
        ),
        lambda builder: builder.table("left", IN).left_join(
            builder.global_table("right", IN), lambda one, other: f"{one},{other}", foreign_key=lambda v: v[0]
        ),
    ],
    "star_join": [many],
}
"""Topologies of each operator over the topics ``left`` and ``right``, each of which makes a stream or a table."""


def topology(build: Build) -> cs.Topology:
    """The result of an operator in the topic ``out``, as text."""
    builder = cs.StreamsBuilder()
    made = build(builder)
    stream = made.to_stream() if isinstance(made, cs.KTable) else made
    shown = stream.map(lambda key, value: (repr(key), None if value is None else repr(value)))
    shown.to("out", key=TEXT, value=TEXT)
    return builder.build()


def drawn(
    rng: Random, build: Build, root: Path, partitions: int | None = None
) -> tuple[Life, list[list[Given]]]:
    """A random life of an operator: records that come late, rows that are deleted, few keys."""
    made = topology(build)
    topics = {topic: rng.choice([1, 2, 3]) for node in made for topic in node.topics}
    world = World(root, single_task_rows=rng.choice([SPREAD, ALONE]))
    count = partitions or rng.choice([1, 2, 3])
    settings: dict[str, Any] = {"partitions": count, "processing_errors": "skip"}
    if rng.random() < 0.2:
        settings["idle_after"] = "1 ms"
    now, batches = 1_000, []
    for _ in range(rng.randint(2, 6)):
        batch: list[Given] = []
        for _ in range(rng.randint(1, 12)):
            now += rng.choice([0, 1, 2, 7])
            topic = rng.choice(sorted(topics))
            is_table = any(node.shape != "stream" and topic in node.topics for node in made)
            value = rng.choice("12345") if "right" not in topics else rng.choice("abcd") + rng.choice("12345")
            value = None if is_table and rng.random() < 0.2 else value
            late = rng.choice([0, 0, 0, 5])
            key = rng.choice("abcd")
            batch.append((topic, key, value, now - late, ord(key) % topics[topic]))
        batches.append(batch)
    return Life(world, made, topics, settings), batches
