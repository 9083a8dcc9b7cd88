"""An application without Spark: its own loop and its workers' own functions, one after the other in this process.

So a crash can be tried at any step of a batch, many thousand times over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

import crossstream as cs
from crossstream.catalog.planners import plan_topology
from crossstream.runtime.round import Outgoing, collected
from crossstream.spark import driver as engine
from crossstream.spark import job as rounds
from crossstream.spark import worker
from crossstream.spark.driver import Engine
from crossstream.spark.streams import SparkStreams
from crossstream.task.batch import Batch, Report
from crossstream.task.shuffle_codec import Block

CORES = 2


class OneProcess(rounds.SparkRounds):
    """The rounds of a batch, each task after the other."""

    def __post_init__(self) -> None:
        self.held = worker.opened(self.job)

    def _run(self, before: bool, batch: Batch, frame: Any = None) -> tuple[Report, dict[str, list[bytes]]]:
        held, plan = self.held, self.job.stage(before)
        shares = rounds.share_count(plan, batch)
        sent = [s for share in range(shares) for s in worker.read_round(held, plan, batch, share, shares)]
        for number in range(1, plan.rounds):
            inboxes = delivered(sent)
            sent = [
                s
                for pid in range(batch.partitions)
                for s in worker.later_round(held, plan, batch, number, pid, inboxes.get(pid, []))
            ]
        return collected([block for _, blocks in sent for block in blocks])

    def _run_alone(self, batch: Batch) -> tuple[Report, dict[str, list[bytes]]]:
        sent = list(worker.all_rounds(self.held, batch, None))
        return collected([block for _, blocks in sent for block in blocks])

    def close(self) -> None: ...


def delivered(sent: Iterable[Outgoing]) -> dict[int, list[Block]]:
    inboxes: dict[int, list[Block]] = {}
    for pid, blocks in sent:
        inboxes.setdefault(pid, []).extend(blocks)
    return inboxes


JAVA = SimpleNamespace(version=lambda: "4", sc=lambda: SimpleNamespace(isStopped=lambda: False))

SESSION: Any = SimpleNamespace(
    sparkContext=SimpleNamespace(defaultParallelism=CORES, _jsc=JAVA),
    _jsparkSession="what a classic session has",
)


@contextmanager
def streams(topology: cs.Topology, config: cs.StreamsConfig) -> Iterator[SparkStreams]:
    """An application as its user has it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "SparkRounds", OneProcess)
        with SparkStreams(topology, config, SESSION) as app:
            yield app


@contextmanager
def application(topology: cs.Topology, config: cs.StreamsConfig) -> Iterator[Engine]:
    """The loop of an application, open; closed as a process that ends closes it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "SparkRounds", OneProcess)
        place = config.state_path
        made = Engine(topology, plan_topology(topology), config, place, lambda progress: None, "token")
        try:
            made.open(lambda: SESSION)
            yield made
        finally:
            made.close()


def process(topology: cs.Topology, config: cs.StreamsConfig) -> None:
    """Processes and commits every record that is there."""
    with application(topology, config) as running:
        running.run_until(running.inputs.end_offsets())
