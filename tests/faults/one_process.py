"""An application without Spark: its own loop and its workers' own functions, one after the other in this process.

So a crash can be tried at any step of a batch, many thousand times over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import crossstream as cs
from crossstream.application.local import LocalRounds
from crossstream.application.loop import Loop
from crossstream.application.rounds import Rounds
from crossstream.catalog.planners import plan_topology

CORES = 2


@contextmanager
def streams(topology: cs.Topology, config: cs.StreamsConfig) -> Iterator[cs.SparkStreams]:
    """An application as its user has it."""
    settled = replace(config, engine="local", partitions=config.partitions or CORES)
    with cs.SparkStreams(topology, settled) as app:
        yield app


@contextmanager
def application(
    topology: cs.Topology, config: cs.StreamsConfig, rounds: Rounds | None = None
) -> Iterator[Loop]:
    """The loop of an application, open; closed as a process that ends closes it."""
    plan, engine = plan_topology(topology), rounds or LocalRounds(CORES)
    made = Loop(topology, plan, config, config.state_path, engine, lambda progress: None)
    try:
        made.open()
        yield made
    finally:
        made.close()


def process(topology: cs.Topology, config: cs.StreamsConfig, rounds: Rounds | None = None) -> None:
    """Processes and commits every record that is there."""
    with application(topology, config, rounds) as running:
        running.run_until(running.inputs.end_offsets())
