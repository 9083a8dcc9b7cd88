"""All rounds of a batch in one process: the test driver's way, and that of a task that does a small batch alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from crossstream.planning.plan import Plan
from crossstream.runtime.batch import Batch
from crossstream.runtime.shuffle_codec import Parcel
from crossstream.runtime.task import Sent


def follows(plan: Plan, batch: Batch) -> bool:
    """Whether the rounds of a plan have something to do when those of its global tables are done."""
    return bool(plan.reacting & batch.versions.keys() or batch.read_by(plan.sources))


def in_turn(
    plan: Plan,
    batch: Batch,
    first: Iterable[Sent],
    later: Callable[[int, int, list[Parcel]], Iterable[Sent]],
    has: Callable[[str, int], bool],
) -> Iterator[Parcel]:
    """Round by round, partition by partition; yields the parcels for the driver.

    ``first``: what round 0 sends; ``later``: what a (round, partition) sends that got those parcels; ``has``: whether
    there is a version of a (store, partition). A partition that nothing was sent to is passed over, unless it has to
    make what it lacks, or to react to the clock or to a global table.
    """
    waiting: dict[tuple[int, int], list[Parcel]] = {}

    def sorted_out(sent: Iterable[Sent]) -> Iterator[Parcel]:
        for pid, parcels in sent:
            for parcel in parcels:
                if parcel[1] < 0:
                    yield parcel
                else:
                    waiting.setdefault((parcel[0], pid), []).append(parcel)

    yield from sorted_out(first)
    for number, part in enumerate(plan.parts[1:], 1):
        reacts = batch.silence is not None or bool(batch.histories and part.probes_global)
        for pid in range(batch.partitions):
            parcels = waiting.pop((number, pid), [])
            if parcels or reacts or any(not has(store, pid) for store in part.derived):
                yield from sorted_out(later(number, pid, parcels))
