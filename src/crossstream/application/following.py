"""The commit of a batch that has run."""

from __future__ import annotations

import time
from collections.abc import Mapping

from crossstream.runtime.scheduler import SourcePlanner
from crossstream.runtime.spreading import hot_after
from crossstream.storage.log_entries import SENT, BatchEntry, Commit
from crossstream.task.batch import Report
from crossstream.task.counts import keep_largest


def commit_after(
    last: Commit,
    entry: BatchEntry,
    report: Report,
    sources: SourcePlanner,
    state: Mapping[str, tuple[int, int]],
) -> Commit:
    """What is known after a batch, which follows on the last commit. ``state``: held before it, as in a `Report`."""
    versions = {store: dict(names) for store, names in last.versions.items() if not store.startswith(SENT)}
    for store, names in report.manifests.items():
        versions.setdefault(store, {}).update(names)
    newest = dict(last.frame_versions)
    keep_largest(newest, report.frame_versions)
    return Commit(
        entry.id,
        last.partitions,
        sources.after(entry.ranges),
        versions,
        time.time(),
        max(last.epoch, entry.epoch),
        dict(sources.topic_ids),
        frame_versions=newest,
        stands={**last.stands, **entry.stands},
        hot=hot_after(last.hot, report, state, last.partitions),
    )
