"""Records that wait in staged files: made visible in their file topics when their batch has run, each once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossstream.filetopics import Staged
from crossstream.runtime.batch import Report
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.files import file_names
from crossstream.storage.log_entries import BatchEntry, Commit, Publication, StagedFrame
from crossstream.topics import TopicPartition


@dataclass(frozen=True, slots=True)
class Publishing:
    """``publisher``: of file topics; None where sinks write by themselves. ``staging``: the folder of the files."""

    publisher: Any
    staging: Path
    log: BatchLog

    def publish(self, entry: BatchEntry, report: Report, commit: Commit) -> None:
        """Publishes what a batch has staged, in its order.

        A frame must not outlive the entry of its batch, whose ranges it was made of.
        """
        self.log.settled()
        self.log.assure()
        self.log.settle(file_names(report.written))
        if self.publisher is None or not report.staged:
            return
        staged = tuple((Path(frame[0]).name, *frame[1:]) for frame in report.staged)
        if entry.epoch >= 0:  # Spark may split its rows otherwise next time, and so the frames
            self.log.write_publication(entry, Publication(commit, staged))
        self._append(entry, staged)

    def finish_last(self, application_id: str) -> None:
        """Commits the batch whose results the last run of this application was publishing, if they are DataFrames'."""
        found = self.log.application()
        if found is None or found.application_id != application_id or self.publisher is None:
            return
        entry = self.log.begun(self.log.newest())
        if entry is not None and entry.publication is not None:
            self.log.repeat_batch(entry)
            self.log.settled()
            self._append(entry, entry.publication.staged)
            self.log.write_commit(entry.publication.commit)

    def close(self) -> None:
        if self.publisher is not None:
            self.publisher.close()

    def _append(self, entry: BatchEntry, staged: Iterable[StagedFrame]) -> None:
        """Appends the frames that are not in their topics yet; an earlier attempt's are after ``entry.sinks``."""
        since = {TopicPartition(t, p): end for t, ends in entry.sinks.items() for p, end in enumerate(ends)}
        frames = [Staged(str(self.staging / frame[0]), *frame[1:]) for frame in staged]
        self.publisher.publish(frames, since)
