"""Runs a batch of the past again, in this process: the same records, from the same state, through the same rounds.

The state is only read, and results go to no topic: what the batch writes stays in memory. So the functions of the user
can be looked at in a debugger, and what comes out can be compared with what was committed (decision 0051).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crossstream.error_codes import refuse
from crossstream.errors import SourceError, StateError
from crossstream.planning.plan import Plan, StoreDef
from crossstream.recompute.kept_results import KeptResults
from crossstream.recompute.past_batch import PastBatch, check_same_stores, check_sources, is_retired, retired
from crossstream.runtime.one_by_one import run_one_by_one
from crossstream.runtime.round import Sent
from crossstream.runtime.worker import Job, WorkerState
from crossstream.storage.store import Version
from crossstream.task.batch import Batch, Report, Settings
from crossstream.task.stores import FolderStores
from crossstream.topics import RangeReader

GONE = "CS-601"
"""Records that a topic does not hold any more."""

Place = tuple[str, int]
"""A store and a state partition."""


@dataclass(frozen=True, slots=True)
class Rerun:
    """A batch that was run again. ``report``, ``sent``, ``results``: what its tasks reported, and gave to tables.

    ``stores``: the state before it, with what it wrote in memory.
    """

    past: PastBatch
    plan: Plan
    batch: Batch
    report: Report
    sent: Sent
    results: KeptResults
    stores: FolderStores

    def version(self, store: StoreDef, partition: int, name: str | None) -> Version:
        """A version of a state partition: before the batch, or one that it wrote."""
        return self.stores.beside().open(store, partition, name)

    def before(self, place: Place) -> str | None:
        """The manifest of a state partition before the batch."""
        return self.batch.versions.get(place[0], {}).get(place[1])

    def after(self, place: Place) -> str | None:
        """Its manifest after the batch, as it was run now."""
        return self.report.manifests.get(place[0], {}).get(place[1]) or self.before(place)

    def committed(self, place: Place) -> str | None:
        """Its manifest in the commit of the batch."""
        commit = self.past.after
        return None if commit is None else commit.versions.get(place[0], {}).get(place[1])

    def written(self) -> list[Place]:
        """The state partitions that it changed."""
        return sorted((store, pid) for store, names in self.report.manifests.items() for pid in names)


def run_past(
    past: PastBatch,
    plan: Plan,
    reader: RangeReader | None,
    counts: Mapping[str, int],
    settings: Settings | None = None,
) -> Rerun:
    """Runs a batch again. ``reader``: of its records; ``counts``: the partitions of the topics there are.

    Raises `IncompatibleStateError` CS-750 for another topology, `StateError` CS-714 if a topic does not hold its
    records any more, and what the batch raises.
    """
    check_same_stores(plan, past.application, str(past.root))
    check_sources(plan.topology, past)
    results, batch = KeptResults(counts), past.as_batch(plan)
    stores = FolderStores(past.root, over={})
    name, address = past.application.application_id, past.root.address
    job = Job(name, plan.shipped(), address, str(Path(address) / "staged"), settings or Settings(), None)
    state = WorkerState(job, stores, results, reader=reader)
    try:
        report, sent = run_one_by_one(state, batch)
    except StateError as error:
        if error.code == "CS-701" and is_retired(past):
            raise retired(past) from error
        raise
    except SourceError as error:
        if error.code != GONE:
            raise
        what = f"batch {past.number} cannot be run again: {error.what}"
        step = (
            "read a bundle that `crossstream state bundle` packed while the records were there; "
            "a longer retention of the topic keeps them"
        )
        raise refuse("CS-714", what, step, **error.where) from error
    return Rerun(past, plan, batch, report, sent, results, stores)
