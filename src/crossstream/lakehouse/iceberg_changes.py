"""What a commit of an Iceberg table did to its rows: the difference of the files before and after it.

A file that is in one of both is removed or added with its rows. Of a file that is in both, with other delete files,
only the rows count that are deleted in one and not in the other. Manifests that both have are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pyiceberg.manifest import (
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from pyiceberg.table import FileScanTask, ManifestGroupPlanner
from pyiceberg.table.snapshots import Snapshot

from crossstream.lakehouse.iceberg_files import DataFiles, Part, whole
from crossstream.lakehouse.iceberg_history import Step
from crossstream.lakehouse.versions import unreadable

Tasks = Mapping[str, FileScanTask]
"""Data files by path, each with the files that delete rows of it."""


def appended(files: DataFiles, step: Step) -> list[Part]:
    """The data files that a commit added, which took nothing away."""
    new = [one for one in _manifests(files, step.last) if one.added_snapshot_id in step.ids]
    # A manifest of several may have files that an earlier snapshot of the commit added as those that were there.
    return whole(_planned(files, new, lambda entry: entry.snapshot_id in step.ids))


def live(files: DataFiles, snapshot: Snapshot) -> list[Part]:
    """All data files of a snapshot."""
    return whole(_planned(files, _manifests(files, snapshot)))


@dataclass(frozen=True, slots=True)
class Difference:
    """The files of two snapshots that differ. Each is None for a table without one."""

    files: DataFiles
    before: Tasks
    after: Tasks

    @classmethod
    def between(cls, files: DataFiles, before: Snapshot | None, after: Snapshot) -> Difference:
        old = {} if before is None else {one.manifest_path: one for one in _manifests(files, before)}
        new = {one.manifest_path: one for one in _manifests(files, after)}
        if _deletes(old) == _deletes(new):
            # The same delete files: a data file whose manifest is the same is the same, too.
            kept = {path for path in old if path in new and path not in _deletes(old)}
            old, new = _without(old, kept), _without(new, kept)
        return cls(files, _by_path(files, old.values()), _by_path(files, new.values()))

    def removed(self) -> list[Part]:
        return self._parts(self.before, self.after)

    def added(self) -> list[Part]:
        """In the order of files and rows; of files that are in both, rows that are not deleted any more."""
        return self._parts(self.after, self.before)

    def _parts(self, here: Tasks, there: Tasks) -> list[Part]:
        alone = whole(task for path, task in here.items() if path not in there)
        changed = [path for path, task in here.items() if path in there and _differ(task, there[path])]
        return [
            *alone,
            *self._changed(whole(here[path] for path in changed), whole(there[path] for path in changed)),
        ]

    def _changed(self, here: Sequence[Part], there: Sequence[Part]) -> Iterator[Part]:
        """The rows of files that are deleted there, and not here."""
        deleted_here, deleted_there = self.files.deleted(here), self.files.deleted(there)
        none = np.empty(0, np.int64)
        for part in here:
            path = part.file.file_path
            chosen = np.setdiff1d(deleted_there.get(path, none), deleted_here.get(path, none), True)
            if len(chosen):
                yield replace(part, chosen=chosen)


def _manifests(files: DataFiles, snapshot: Snapshot) -> list[ManifestFile]:
    return snapshot.manifests(files.io)


def _deletes(manifests: Mapping[str, ManifestFile]) -> set[str]:
    return {path for path, one in manifests.items() if one.content == ManifestContent.DELETES}


def _without(manifests: Mapping[str, ManifestFile], paths: set[str]) -> dict[str, ManifestFile]:
    return {path: one for path, one in manifests.items() if path not in paths}


def _by_path(files: DataFiles, manifests: Iterable[ManifestFile]) -> Tasks:
    return {task.file.file_path: task for task in _planned(files, manifests)}


def _planned(
    files: DataFiles,
    manifests: Iterable[ManifestFile],
    chosen: Callable[[ManifestEntry], bool] = lambda _: True,
) -> list[FileScanTask]:
    """The data files of manifests, with their delete files. Raises `SourceError` CS-615 for equality deletes."""

    def is_chosen(entry: ManifestEntry) -> bool:
        if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
            raise unreadable(
                files.table,
                "rows of it are deleted by equality delete files, as Flink writes them, which PyIceberg does not "
                "read; rewrite the table without them (rewrite_data_files), or let its writer merge on write",
            )
        return chosen(entry)

    planner = ManifestGroupPlanner(files.metadata, files.io, options={"include_empty_files": "true"})
    return list(planner.plan_files(list(manifests), is_chosen))


def _differ(one: FileScanTask, other: FileScanTask) -> bool:
    return _paths(one) != _paths(other)


def _paths(task: FileScanTask) -> set[str]:
    return {file.file_path for file in task.delete_files}
