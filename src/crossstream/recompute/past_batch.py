"""A batch of the past, as the log of a state folder has it: what it read, and the state before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.graph.nodes import Graph
from crossstream.planning.plan import Plan
from crossstream.query.files import application_of
from crossstream.runtime.turns import batch_of
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Application, BatchEntry, Commit
from crossstream.storage.root import Place, StateRoot, root_of
from crossstream.task.batch import Batch


@dataclass(frozen=True, slots=True)
class PastBatch:
    """``before``: the commit that the batch began from. ``after``: its own; None: it was begun and not committed.

    ``ends``: where file topics ended after it, by topic and partition; None: as they end now.
    """

    root: StateRoot
    application: Application
    entry: BatchEntry
    before: Commit
    after: Commit | None
    ends: Mapping[str, Sequence[int]] | None = None

    @property
    def number(self) -> int:
        return self.entry.id

    @property
    def partitions(self) -> int:
        """Of the state: a batch does not change their number."""
        return self.before.partitions

    def as_batch(self, plan: Plan) -> Batch:
        """The batch as its tasks got it."""
        before, starts = self.before, self.application.starts
        ids = {**starts.topic_ids, **before.topic_ids} if self.after is None else self.after.topic_ids
        return batch_of(self.entry, before, plan, starts.snapshots(ids))


def past_batch(state_dir: Place, number: int) -> PastBatch:
    """A batch that can be run again.

    Raises `StateError`: CS-713 without state, CS-714 for a batch that is not retained, or whose state before is not;
    CS-715 for one that cannot be run again.
    """
    root = root_of(state_dir)
    log = BatchLog(root)
    application = log.application_at(number) or application_of(root)
    begun, committed = log.batches(), log.commits()
    if number in committed and number not in begun:
        what = (
            f"batch {number} read no records: it changed the state itself, such as its number of partitions"
        )
        raise refuse("CS-715", what, _retained(begun, committed), folder=str(root))
    if number not in begun or (number > 0 and number - 1 not in committed):
        raise _not_retained(root, number, begun, committed)
    try:
        entry = log.batch(number)
        after = log.commit(number) if number in committed else None
        before = _before(log, application, number, after)
    except FileNotFoundError:  # retired between listing and reading
        raise _not_retained(root, number, log.batches(), log.commits()) from None
    if entry.becomes is not None:
        what = f"batch {number} read no records: it changed the application"
        raise refuse("CS-715", what, _retained(begun, committed), folder=str(root))
    if entry.epoch >= 0:
        what = f"batch {number} has rows of DataFrames, which Spark does not give again"
        step = f"rows of these sources are kept nowhere: {', '.join(application.frames)}"
        raise refuse("CS-715", what, step, folder=str(root))
    return PastBatch(root, application, entry, before, after, _ends(log, entry, begun))


def retired(past: PastBatch) -> CrossStreamError:
    """The refusal (CS-714) of a batch whose files were deleted while they were read: its application runs."""
    log = BatchLog(past.root)
    what = f"batch {past.number} was retired while it was read: the state before it is not retained any more"
    return refuse("CS-714", what, _retained(log.batches(), log.commits()), folder=str(past.root))


def is_retired(past: PastBatch) -> bool:
    """Whether the state before a batch is not retained any more."""
    return past.before.id >= 0 and past.before.id not in BatchLog(past.root).commits()


def _before(log: BatchLog, application: Application, number: int, after: Commit | None) -> Commit:
    if number > 0:
        return log.commit(number - 1)
    return Commit(-1, application.partitions if after is None else after.partitions)


def _ends(log: BatchLog, entry: BatchEntry, begun: Sequence[int]) -> dict[str, list[int]] | None:
    """Where topics ended before the batch that follows, which is where they ended after this one."""
    later = next((number for number in begun if number > entry.id), None)
    return None if later is None else log.batch(later).sinks


def replayable(begun: Sequence[int], committed: Sequence[int]) -> list[int]:
    """The batches of a log that can be run again: those after a commit that is retained, and the first."""
    return [number for number in begun if number == 0 or number - 1 in committed]


def _not_retained(
    root: StateRoot, number: int, begun: Sequence[int], committed: Sequence[int]
) -> CrossStreamError:
    if number in begun:
        what = f"batch {number} cannot be run again: the state before it is not retained any more"
    elif begun and number > max(begun):
        what = f"there is no batch {number} yet: the newest is batch {max(begun)}"
    else:
        what = f"batch {number} is not retained any more"
    return refuse("CS-714", what, _retained(begun, committed), folder=str(root))


def _retained(begun: Sequence[int], committed: Sequence[int]) -> str:
    numbers = replayable(begun, committed)
    if not numbers:
        return "no batch can be run again: set a larger retain_batches, and process records"
    whole = numbers[-1] - numbers[0] == len(numbers) - 1
    shown = f"{numbers[0]} to {numbers[-1]}" if whole and len(numbers) > 1 else ", ".join(map(str, numbers))
    return f"choose one of those that can be run again: {shown}; a larger retain_batches keeps more"


def check_same_stores(plan: Plan, application: Application, folder: str) -> None:
    """Raises `IncompatibleStateError` CS-750 if the state has other stores than the topology."""
    was, now = application.stores, plan.fingerprint()
    names = was.keys() | (now.keys() - set(plan.begin_empty))
    changed = sorted(name for name in names if was.get(name) != now.get(name))
    if changed:
        what = f"the state is of another topology: {', '.join(changed[:5])} differ"
        step = "give the application's file as it was when it wrote the state"
        raise refuse("CS-750", what, step, folder=folder)


def check_sources(topology: Graph, past: PastBatch) -> None:
    """Raises `IncompatibleStateError` CS-750 if the batch read for a source that the topology has not."""
    gone = sorted({span.node for span in past.entry.ranges} - topology.nodes.keys())
    if gone:
        what = f"batch {past.number} read for {', '.join(gone)}, which the topology does not have"
        step = "give the application's file as it was then, or name its sources as they were"
        raise refuse("CS-750", what, step, folder=str(past.root))
