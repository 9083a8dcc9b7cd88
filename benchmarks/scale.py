"""`crossstream bench scale`: what the driver does for a batch and a start, by the number of state partitions.

The topology is a foreign-key join (three stores) between two topics of 500 partitions. Tasks do no work: in their place
manifests of empty versions are written, and a report of each task is packed as a worker packs it. All else is the
application's own loop on a local folder, durable: planning, the entry of the batch, reports, forcing of files, commit,
what is deleted. Each batch has a record in each topic partition, and changes each state partition.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import crossstream as cs
from benchmarks.report import bars, section, table
from crossstream import serdes
from crossstream.application.local import LocalRounds
from crossstream.application.loop import Loop
from crossstream.catalog.planners import plan_topology
from crossstream.filetopics import FileTopics
from crossstream.metrics.observation import Progress
from crossstream.records import RECORDS
from crossstream.runtime.round import Outgoing, Sent
from crossstream.runtime.turns import collected
from crossstream.runtime.worker import Job
from crossstream.storage.files import partition_folder
from crossstream.storage.root import StateRoot
from crossstream.storage.store import Version, store_version, unique_name
from crossstream.task.batch import Batch, Report, pack_report
from crossstream.task.shuffle_codec import REPORT

PARTITIONS = (10, 100, 1_000, 10_000)
TOPIC_PARTITIONS = 500
BATCHES = 14
"""More than are kept, so that the last ones delete what an earlier one wrote."""
COUNTED = 3
"""Of the last batches, the medians."""
PHASES = ("plan", "reports", "publish", "commit")
TEXT = cs.Consumed(key=serdes.string(), value=serdes.string())


class NoWork(LocalRounds):
    """Rounds whose tasks have nothing to do but to write a manifest for each of their stores, and to report it."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        """What the driver took for the reports of the last batch."""
        self.is_aside: Callable[[], AbstractContextManager[object]] = nullcontext
        """What tasks do is done inside of it."""
        self._newest: dict[str, str] = {}

    def prepare(self, job: Job, state: StateRoot) -> None:
        super().prepare(job, state)
        self._plan, self._root = job.plan, state

    def run(self, batch: Batch, rows: None = None) -> tuple[Report, Sent]:
        with self.is_aside():
            sent = [self._task(batch, partition) for partition in range(batch.partitions)]
        started = time.perf_counter()
        report, frames = collected([block for _, blocks in sent for block in blocks])
        self.seconds = time.perf_counter() - started
        return report, frames

    def _task(self, batch: Batch, partition: int) -> Outgoing:
        report = Report()
        for name, store in self._plan.stores.items():
            if store.copies is not None:  # only of hot keys
                continue
            place, manifest = f"{name}/{partition}", f"{unique_name(batch.id)}.manifest"
            storage = self._root.storage(partition_folder(name, partition))
            store_version(Version(store.layout, batch=batch.id), storage, manifest)
            report.manifests[name] = {partition: manifest}
            report.written[place] = [manifest]
            report.retired[place] = [self._newest[place]] if place in self._newest else []
            report.state[place] = (1_000, 100_000)
            self._newest[place] = manifest
        return partition, [(self._plan.rounds, REPORT, partition, 0, pack_report(report))]


def topology() -> cs.Topology:
    """A foreign-key join."""
    builder = cs.StreamsBuilder()
    orders, customers = builder.table("orders", TEXT), builder.table("customers", TEXT)
    joined = orders.join(
        customers, lambda order, _: order, foreign_key=lambda order: order, value=serdes.string()
    )
    joined.to_stream().to("out", cs.Produced(key=serdes.string(), value=serdes.string()))
    return builder.build()


@dataclass
class Application:
    """The loop of an application, and what it has said of its batches."""

    folder: Path
    partitions: int
    topic_partitions: int = TOPIC_PARTITIONS
    said: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._topics = FileTopics(str(self.folder / "topics"), durable=False)
        for topic in ("orders", "customers", "out"):
            self._topics.log().create_topic(topic, self.topic_partitions)
        self.rounds = NoWork()

    @contextmanager
    def running(self) -> Iterator[Loop]:
        topology_, config = topology(), self._config()
        loop = Loop(topology_, plan_topology(topology_), config, config.state_path, self.rounds, self._note)
        try:
            loop.open()
            yield loop
        finally:
            loop.close()

    def batch(self, loop: Loop, number: int) -> None:
        """One batch with a record in each partition of each topic."""
        count = self.topic_partitions
        keys = pa.array([b"%d" % place for place in range(count)], pa.large_binary())
        columns = [keys, keys, pa.array(np.full(count, number)), pa.nulls(count, pa.large_binary())]
        names = ["key", "value", "timestamp", "headers"]
        records = pa.RecordBatch.from_arrays(columns, schema=pa.schema([RECORDS.field(one) for one in names]))
        writer = self._topics.writer()
        for topic in ("orders", "customers"):
            writer.write(topic, records, list(range(count)))
        writer.close()
        loop.run_next()

    @property
    def state(self) -> Path:
        return Path(self._config().state_path)

    def _config(self) -> cs.StreamsConfig:
        return cs.StreamsConfig(
            application_id="scale",
            topics_dir=self.folder / "topics",
            state_dir=self.folder / "state",
            engine="local",
            partitions=self.partitions,
            single_task_rows=0,
        )

    def _note(self, progress: Progress) -> None:
        seconds = {name: progress.phases[name] / 1000 for name in ("plan", "publish", "commit")}
        self.said.append({**seconds, "reports": self.rounds.seconds})


def measured(partitions: int, topic_partitions: int, batches: int = BATCHES) -> dict[str, float]:
    """Seconds of the driver by phase, of a start with state, and bytes of a commit and of an entry."""
    with tempfile.TemporaryDirectory(prefix="crossstream-scale-") as folder:
        made = Application(Path(folder), partitions, topic_partitions)
        with made.running() as loop:
            for number in range(batches):
                made.batch(loop, number)
        last = made.said[-COUNTED:]
        figures: dict[str, float] = {phase: statistics.median(one[phase] for one in last) for phase in PHASES}
        figures["batch"] = statistics.median(sum(one[phase] for phase in PHASES) for one in last)
        started = time.perf_counter()
        with made.running():
            figures["start"] = time.perf_counter() - started
        figures["commit bytes"] = _largest(made.state, "commits")
        figures["entry bytes"] = _largest(made.state, "batches")
        return figures


def _largest(state: Path, folder: str) -> int:
    return max(file.stat().st_size for file in (state / folder).iterdir())


def report(found: dict[int, dict[str, float]], topic_partitions: int) -> str:
    """The section of RESULTS.md."""
    head = ["state partitions", *PHASES, "together", "start", "commit, bytes", "entry, bytes"]
    rows = [
        [
            f"{partitions:,}",
            *[f"{figures[phase]:.3f}" for phase in (*PHASES, "batch", "start")],
            f"{figures['commit bytes']:,.0f}",
            f"{figures['entry bytes']:,.0f}",
        ]
        for partitions, figures in found.items()
    ]
    about = (
        "`crossstream bench scale`: seconds of the driver for a batch that changes each partition of three stores, "
        f"and has records in each of {topic_partitions} partitions of two topics; tasks without work; a local folder, "
        "durable. A start has the state of 11 kept batches. What it means: [docs/scale.md](../docs/scale.md)."
    )
    return f"{about}\n\n{table(head, rows)}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="crossstream bench scale", description=__doc__)
    parser.add_argument("partitions", nargs="*", type=int, default=list(PARTITIONS), help="of the state")
    parser.add_argument("--topic-partitions", type=int, default=TOPIC_PARTITIONS)
    parser.add_argument(
        "--write", action="store_true", help="writes the section of RESULTS.md and the picture"
    )
    arguments: Any = parser.parse_args(argv)
    found = {count: measured(count, arguments.topic_partitions) for count in arguments.partitions}
    text = report(found, arguments.topic_partitions)
    print(text)
    if arguments.write:
        section("Many partitions", text)
        groups = {
            f"{count:,} state partitions": {phase: figures[phase] for phase in ("batch", "start")}
            for count, figures in found.items()
        }
        bars("scale", "Seconds of the driver", groups, "seconds")
    return 0
