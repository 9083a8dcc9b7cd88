"""Runs all rounds of a batch in this process, with stores in memory: for the test driver and for replays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from crossstream.graph.nodes import Graph
from crossstream.planning.plan import Plan
from crossstream.runtime.round import RoundTask
from crossstream.runtime.turns import collected, in_turn
from crossstream.storage.log_entries import SourceRange
from crossstream.task.batch import Batch, Input, Output, Report, Settings, rank_of
from crossstream.task.shuffle_codec import Block
from crossstream.task.stores import GlobalTables, MemoryStores

Span = tuple[str, str, int, int, int]
"""Source node, topic, partition, first offset, and the offset after the last one."""


def ranges_of(topology: Graph, spans: Iterable[Span]) -> tuple[SourceRange, ...]:
    """The ranges of a batch in the order of their sources. Source: semantics 1.2."""
    position = {name: number for number, name in enumerate(topology.nodes)}
    ordered = sorted(spans, key=lambda span: (position[span[0]], span[1], span[2]))
    return tuple(
        SourceRange(*span, rank_of(topology[span[0]].shape, number)) for number, span in enumerate(ordered)
    )


def tables_of(plan: Plan, batch: Batch, stores: MemoryStores) -> GlobalTables:
    """The global tables as they are now, whatever is written to ``stores`` later."""
    return GlobalTables(plan, batch, MemoryStores(dict(stores.versions), stores.recorded))


def run_batch(
    plan: Plan, batch: Batch, stores: MemoryStores, output: Output, settings: Settings, source: Input
) -> tuple[Report, dict[str, list[bytes]]]:
    """Runs the rounds of global tables if one changes, then all others.

    Returns what the batch did, and records for the driver by node.
    """
    report, tables = Report(), tables_of(plan, batch, stores)

    def rounds(plan: Plan, batch: Batch) -> Iterator[Block]:
        def task(number: int, pid: int) -> RoundTask:
            return RoundTask(
                plan, batch, number, pid, stores, output, settings, source, tables, near=True, report=report
            )

        return in_turn(
            plan,
            batch,
            task(0, 0).read(batch.read_by(plan.sources)),
            lambda number, pid, blocks: task(number, pid).run(blocks),
            lambda store, pid: (store, pid) in stores.versions,
        )

    blocks: list[Block] = []
    before = plan.global_stage
    if before is not None and batch.read_by(before.sources):
        blocks += rounds(before, replace(batch, recorded=True))
        tables.batch = batch = replace(batch, histories=report.histories)
    blocks += rounds(plan, batch)
    return report, collected(blocks)[1]
