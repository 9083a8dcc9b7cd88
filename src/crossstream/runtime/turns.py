"""The rounds of a batch, one after the other, and what they give the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from crossstream.graph.nodes import FrameSource
from crossstream.planning.plan import Plan
from crossstream.runtime.round import Outgoing, Sent
from crossstream.storage.log_entries import BatchEntry, Commit
from crossstream.task.batch import Batch, Report, unpack_report
from crossstream.task.shuffle_codec import FRAME, REPORT, Block


def batch_of(
    entry: BatchEntry,
    before: Commit,
    plan: Plan,
    snapshots: dict[str, dict[int, int]],
    *,
    wants_keys: bool = False,
) -> Batch:
    """A batch as its tasks get it: what the log has of it, on the state ``before``. The others: see `Batch`."""
    return Batch(
        entry.id,
        entry.ranges,
        before.partitions,
        {store: names for store, names in before.versions.items() if store in plan.stores},
        silence=entry.silence,
        shares=entry.shares,
        clock=int(entry.time * 1000),
        frames=tuple(node.name for node in plan.topology.each(FrameSource)),
        wants_keys=wants_keys,
        expected=entry.expected,
        frame_versions=before.frame_versions,
        snapshots=snapshots,
        hot=before.hot,
    )


def follows(plan: Plan, batch: Batch) -> bool:
    """Whether the rounds of a plan have something to do when those of its global tables are done."""
    spreads = any(len(batch.spreads(store)) for store in batch.hot)
    return bool(plan.reacting & batch.versions.keys() or batch.read_by(plan.sources)) or spreads


def in_turn(
    plan: Plan,
    batch: Batch,
    first: Iterable[Outgoing],
    later: Callable[[int, int, list[Block]], Iterable[Outgoing]],
    has: Callable[[str, int], bool],
) -> Iterator[Block]:
    """Round by round, partition by partition; yields the blocks for the driver.

    ``first``: what round 0 sends; ``later``: what a (round, partition) sends that got those blocks; ``has``: whether
    there is a version of a (store, partition). A partition that nothing was sent to is passed over, unless it has to
    make what it lacks, to spread the rows of a hot key, or to react to the clock, a timer or a global table.
    """
    waiting: dict[tuple[int, int], list[Block]] = {}

    def sorted_out(sent: Iterable[Outgoing]) -> Iterator[Block]:
        for pid, blocks in sent:
            for block in blocks:
                if block[1] < 0:
                    yield block
                else:
                    waiting.setdefault((block[0], pid), []).append(block)

    yield from sorted_out(first)
    for number, part in enumerate(plan.parts[1:], 1):
        reacts = batch.silence is not None or bool(batch.histories and part.probes_global)
        reacts = reacts or any(len(batch.spreads(store)) for store in part.spread)
        for pid in range(batch.partitions):
            blocks = waiting.pop((number, pid), [])
            ticks = any(has(store, pid) for store in part.timers)
            if blocks or reacts or ticks or any(not has(store, pid) for store in part.derived):
                yield from sorted_out(later(number, pid, blocks))


def collected(blocks: Iterable[Block]) -> tuple[Report, Sent]:
    """Reports added up, and records for the driver, in order of the tasks."""
    report = Report()
    frames: Sent = {}
    for _, exchange, _, _, blob in sorted(blocks, key=lambda block: block[:4]):
        if exchange == REPORT:
            report.add(unpack_report(blob))
        elif exchange == FRAME:
            length = 4 + int.from_bytes(blob[:4], "big")
            frames.setdefault(bytes(blob[4:length]).decode(), []).append(bytes(blob[length:]))
    return report, frames


RunStage = Callable[[bool, Batch], tuple[Report, Sent]]
"""Runs the rounds of the plan of the global tables, or of everything else."""


def run_stages(plan: Plan, batch: Batch, run: RunStage, *, has_rows: bool = False) -> tuple[Report, Sent]:
    """All rounds of a batch that several tasks share.

    Where a global table changes, its rounds come first; the others follow if there is anything for them to do.
    """
    before = plan.global_stage
    if before is None or not batch.read_by(before.sources):
        return run(False, batch)
    has_more = has_rows or follows(plan, batch)
    changed, _ = run(True, replace(batch, recorded=has_more))
    if not has_more:
        return changed, {}
    report, sent = run(False, replace(batch, histories=changed.histories))
    report.add(changed)
    return report, sent
