"""One seed replays everything that can happen to the engine: how input is cut, and what fails at which file operation.

The engine runs in this process, on file topics. A seed decides the input, when it comes, the sizes of batches, the
number of state partitions, at which file operation the process is killed (before it, after it, or in its midst), which
tasks run twice, and how the clock jumps. At the end an undisturbed driver says what must be there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import crossstream as cs
from crossstream import serdes
from crossstream.application import loop as engine
from crossstream.application.local import LocalRounds
from crossstream.filetopics.partition_log import Appender
from crossstream.runtime.round import Outgoing
from crossstream.runtime.worker import later_round, read_round, share_count
from crossstream.storage.files import UNFINISHED, Folder, buffers_of
from crossstream.storage.root import LocalRoot
from crossstream.task.batch import Batch
from crossstream.task.shuffle_codec import Block
from tests.faults.crash_points import Crash
from tests.faults.one_process import CORES, process
from tests.spark.world import World

TEXT, NUMBER = serdes.string(), serdes.int64()
INPUTS = {"views": 2, "clicks": 2, "products": 2, "merchants": 1}
OUTPUTS = ("visits", "offers", "clicked")
KEYS = ("a", "b", "c", "d")

Event = tuple[str, str, str | None, int]
"""Topic, key, value, timestamp."""


def topology() -> cs.Topology:
    """A join of streams, a foreign-key join, and windows that come out when they close."""
    builder = cs.StreamsBuilder()
    views, clicks = (builder.stream(name, cs.Consumed(key=TEXT, value=TEXT)) for name in ("views", "clicks"))
    products, merchants = (
        builder.table(name, cs.Consumed(key=TEXT, value=TEXT)) for name in ("products", "merchants")
    )
    windows = cs.JoinWindows.of(20, grace=5)
    joined = views.left_join(clicks, lambda view, click: f"{view} {click}", windows)
    joined.to("visits", cs.Produced(key=TEXT, value=TEXT))
    offers = products.left_join(
        merchants, lambda product, merchant: f"{product} {merchant}", foreign_key=lambda product: product[0]
    )
    offers.to_stream().to("offers", cs.Produced(key=TEXT, value=TEXT))
    counts = clicks.group_by_key().windowed_by(cs.TimeWindows(size=10, grace=5), emit="close").count()
    counts.to_stream().to("clicked", cs.Produced(key=serdes.windowed(TEXT, 10), value=NUMBER))
    return builder.build()


def events(rng: Random) -> list[Event]:
    """Records in the order in which they are written, which is that of their times.

    So it makes no difference how many of them are there when a batch is planned.
    """
    made: list[Event] = []
    now = 1_000
    for number in range(rng.randint(5, 30)):
        now += rng.randint(1, 8)
        topic, key = rng.choice(list(INPUTS)), rng.choice(KEYS)
        value: str | None = f"{rng.choice(KEYS)}{number}"
        if topic in ("products", "merchants") and rng.random() < 0.2:
            value = None
        made.append((topic, key, value, now))
    return made


def closing(now: int) -> list[Event]:
    """Records that close all windows, in every partition of their topics: the one that is behind counts."""
    return [(topic, key, "end", now + 1_000) for topic in ("views", "clicks") for key in KEYS]


@dataclass
class Faults:
    """What fails: the process is killed at file operation ``at``, ``how``: before, after or in its midst."""

    rng: Random
    at: int
    how: str
    done: int = 0
    log: list[str] = field(default_factory=list)

    def strikes(self, what: str) -> bool:
        self.done += 1
        self.log.append(what)
        return self.done == self.at


@contextmanager
def failing(faults: Faults) -> Iterator[None]:
    """The process is killed at one of its file operations."""
    put, delete, append = Folder.put, LocalRoot.delete, Appender.append

    def failing_put(folder: Folder, name: str, data: Any, forced: bool) -> None:
        strikes = faults.strikes(f"write {name}")
        if strikes and faults.how == "before":
            raise Crash
        if strikes and faults.how == "midst":
            whole = b"".join(buffers_of(data))
            (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
            torn = whole[: faults.rng.randrange(len(whole) + 1)]
            Path(f"{folder.path / name}.{os.getpid()}{UNFINISHED}").write_bytes(torn)
            raise Crash
        put(folder, name, data, forced)
        if strikes:
            raise Crash

    def failing_delete(root: LocalRoot, *names: str) -> None:
        strikes = bool(names) and faults.strikes(f"delete {names}")
        if strikes and faults.how == "before":
            raise Crash
        if strikes and faults.how == "midst":
            delete(root, *names[: faults.rng.randrange(len(names))])
            raise Crash
        delete(root, *names)
        if strikes:
            raise Crash

    def failing_append(appender: Appender, frame: Any, payload: Any) -> None:
        strikes = faults.strikes("append to a topic")
        if strikes and faults.how == "before":
            raise Crash
        append(appender, frame, payload)
        if strikes and faults.how == "midst":  # what a kill in a write leaves: a frame without its end
            assert appender._file is not None
            size = os.fstat(appender._file).st_size
            os.ftruncate(appender._file, size - faults.rng.randrange(1, 30))
        if strikes:
            raise Crash

    with (
        patch.object(Folder, "put", failing_put),
        patch.object(LocalRoot, "delete", failing_delete),
        patch.object(Appender, "append", failing_append),
    ):
        yield


class Doubling(LocalRounds):
    """Some tasks run twice, as where Spark loses one or starts a second attempt; the first counts for nothing."""

    def __init__(self, rng: Random) -> None:
        super().__init__(CORES)
        self._rng = rng

    def first_round(self, global_stage: bool, batch: Batch) -> list[Outgoing]:
        state, plan = self.state, self.state.job.stage(global_stage)
        shares = share_count(plan, batch)
        return self._attempts(
            partial(read_round, state, plan, batch, share, shares) for share in range(shares)
        )

    def next_round(
        self, global_stage: bool, batch: Batch, number: int, taken: dict[int, list[Block]]
    ) -> list[Outgoing]:
        state, plan = self.state, self.state.job.stage(global_stage)
        pids = list(range(batch.partitions))
        self._rng.shuffle(pids)  # tasks end in any order
        return self._attempts(
            partial(later_round, state, plan, batch, number, pid, taken.get(pid, [])) for pid in pids
        )

    def _attempts(self, tasks: Iterable[Callable[[], Iterable[Outgoing]]]) -> list[Outgoing]:
        sent: list[Outgoing] = []
        for task in tasks:
            if self._rng.random() < 0.2:
                list(task())
            sent += task()
        return sent


@contextmanager
def jumping(rng: Random) -> Iterator[None]:
    """The clock of the application jumps, also back."""

    def now() -> int:
        return 1_700_000_000_000 + rng.randint(-86_400_000, 86_400_000)

    clock = SimpleNamespace(**{name: getattr(engine.time, name) for name in ("perf_counter", "monotonic")})
    clock.time = lambda: now() / 1000
    with patch.object(engine, "milliseconds", now), patch.object(engine, "time", clock):
        yield


def simulate(seed: int, folder: Path) -> None:
    """One life of an application. Raises `AssertionError` with the seed if a result is wrong."""
    rng = Random(seed)
    world = World(folder, single_task_rows=rng.choice([0, 100_000]))
    world.create(**INPUTS, visits=rng.randint(1, 2), offers=1, clicked=1)
    made = events(rng)
    written: list[Event] = []
    story: list[str] = []

    def feed(count: int) -> None:
        for topic, key, value, timestamp in made[len(written) : len(written) + count]:
            place = [KEYS.index(key) % INPUTS[topic]] if value == "end" else None
            world.append(topic, [(key, value, timestamp)], partitions=place)
        written.extend(made[len(written) : len(written) + count])

    def live(faults: Faults | None) -> None:
        config = world.config(
            partitions=partitions[0],
            max_records_per_batch=rng.choice([1, 3, 7, None]),
            retain_batches=rng.choice([1, 3]),
        )
        with jumping(rng):
            if faults is None:
                process(topology(), config, Doubling(rng))
                return
            try:
                with failing(faults):
                    process(topology(), config, Doubling(rng))
            except Crash:
                story.append(f"killed {faults.how} {faults.log[-1]}, operation {faults.at}")

    partitions = [rng.randint(1, 3)]
    while len(written) < len(made):
        feed(rng.randint(1, 20))
        if rng.random() < 0.2:
            partitions[0] = rng.randint(1, 3)
        for _ in range(rng.randint(0, 2)):
            live(Faults(rng, rng.randint(1, 60), rng.choice(["before", "after", "midst"])))
        if rng.random() < 0.5:
            live(None)
    live(None)
    before = {topic: results(world, topic) for topic in OUTPUTS}
    end = closing(max(timestamp for *_, timestamp in made))
    made.extend(end)
    feed(len(end))
    live(None)
    live(None)  # a start removes what attempts that do not count have left
    check(seed, world, made, before, story)


def results(world: World, topic: str) -> list[tuple[Any, ...]]:
    key = serdes.windowed(TEXT, 10) if topic == "clicked" else TEXT
    value = NUMBER if topic == "clicked" else TEXT
    return [(one.key, one.value, one.ts) for one in world.read(topic, key, value)]


def check(seed: int, world: World, made: list[Event], before: Any, story: list[str]) -> None:
    expected = undisturbed(made)
    what = f"seed {seed}:\n" + "\n".join(story)
    for topic in ("visits", "clicked"):
        assert Counter(results(world, topic)) == Counter(expected[topic]), f"{topic}, {what}"
    latest = {key: value for key, value, _ in results(world, "offers")}
    wanted = {key: value for key, value, _ in expected["offers"]}
    assert _rows(latest) == _rows(wanted), what
    for topic in OUTPUTS:
        assert not Counter(before[topic]) - Counter(results(world, topic)), f"{topic} lost results, {what}"
    left = [path for path in world.state_dir.rglob("*") if path.name.endswith((UNFINISHED, ".staged"))]
    assert not left, f"{left}, {what}"


def _rows(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}


def undisturbed(made: list[Event]) -> dict[str, list[tuple[Any, ...]]]:
    """What one batch of everything gives, in order of the partitions that the topics have."""
    with cs.TopologyTestDriver(topology(), commit_every=10**9) as driver:
        inputs = {topic: driver.create_input_topic(topic, TEXT, TEXT) for topic in INPUTS}
        for topic, key, value, timestamp in made:
            inputs[topic].pipe_input(key, value, timestamp)
        driver.commit()
        found = {}
        for topic in OUTPUTS:
            key = serdes.windowed(TEXT, 10) if topic == "clicked" else TEXT
            out = driver.create_output_topic(topic, key, NUMBER if topic == "clicked" else TEXT)
            found[topic] = [(one.key, one.value, one.timestamp) for one in out.read_records()]
    return found
