"""The tasks of a batch in this process, one after the other, each as a worker of an engine runs it."""

from __future__ import annotations

from collections.abc import Iterable

from crossstream.runtime.round import Outgoing, Sent
from crossstream.runtime.turns import collected, run_stages
from crossstream.runtime.worker import (
    InMemory,
    WorkerState,
    all_rounds,
    later_round,
    read_round,
    share_count,
)
from crossstream.task.batch import Batch, Report
from crossstream.task.shuffle_codec import Block


def run_one_by_one(state: WorkerState, batch: Batch) -> tuple[Report, Sent]:
    """All rounds of a batch. Its ``shares`` say how many tasks read, as they did when it ran first."""
    if not batch.shares:
        return taken(all_rounds(state, batch, InMemory()))

    def stage(global_stage: bool, batch: Batch) -> tuple[Report, Sent]:
        sent = first_round(state, global_stage, batch)
        for number in range(1, state.job.stage(global_stage).rounds):
            sent = next_round(state, global_stage, batch, number, in_inboxes(sent))
        return taken(sent)

    return run_stages(state.job.plan, batch, stage)


def first_round(state: WorkerState, global_stage: bool, batch: Batch) -> list[Outgoing]:
    """What the tasks that read send. ``global_stage``: of the plan of the global tables."""
    plan = state.job.stage(global_stage)
    shares = share_count(plan, batch)
    return [sent for share in range(shares) for sent in read_round(state, plan, batch, share, shares)]


def next_round(
    state: WorkerState, global_stage: bool, batch: Batch, number: int, inboxes: dict[int, list[Block]]
) -> list[Outgoing]:
    """What the tasks of a later round send; ``inboxes``: blocks by state partition."""
    plan = state.job.stage(global_stage)
    return [
        sent
        for pid in range(batch.partitions)
        for sent in later_round(state, plan, batch, number, pid, inboxes.get(pid, []))
    ]


def in_inboxes(sent: Iterable[Outgoing]) -> dict[int, list[Block]]:
    """Blocks by the state partition that they are for."""
    found: dict[int, list[Block]] = {}
    for pid, blocks in sent:
        found.setdefault(pid, []).extend(blocks)
    return found


def taken(sent: Iterable[Outgoing]) -> tuple[Report, Sent]:
    """What the driver gets of the blocks that the last tasks send."""
    return collected([block for _, blocks in sent for block in blocks])
