"""Results into file topics exactly once: tasks stage frames in files, the driver appends them (decision 0007)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from crossstream.filetopics.writer import FilePublisher, Staged, StagingWriter
from crossstream.runtime.delivery import Place, TaskId, TaskWriter
from crossstream.storage.log_entries import BatchEntry, Publication, StagedFrame
from crossstream.topics import TopicPartition


@dataclass(slots=True)
class StagedFiles:
    """Stages frames in the folder of the place. ``stage``: a writer of the named task; ``open_publisher``: appends."""

    place: Place
    stage: Callable[[Path, bytes], StagingWriter]
    open_publisher: Callable[[], FilePublisher]
    is_staged: bool = True
    looks_at_ends: bool = True
    _publisher: FilePublisher | None = None

    def connect(self) -> None: ...

    def writer(self, task: TaskId) -> TaskWriter:
        name = f"{self.place.application_id}/{task.batch}/{task.round}/{task.sender}"
        return _Staging(self.stage(self.place.staging, name.encode()))

    def settle(self) -> None: ...

    def begin(self, mark: str, state: str, newest: int, *, restarts: bool) -> None: ...

    def kept(self, staged: Iterable[StagedFrame]) -> list[str]:
        return []

    def publish(
        self, entry: BatchEntry, publication: Publication, state: str, note: Callable[[], None]
    ) -> None:
        """What an earlier attempt has appended comes after ``entry.sinks``."""
        note()
        if not publication.staged:
            return
        since = {TopicPartition(t, p): end for t, ends in entry.sinks.items() for p, end in enumerate(ends)}
        frames = [Staged(str(self.place.staging / frame[0]), *frame[1:]) for frame in publication.staged]
        if self._publisher is None:
            self._publisher = self.open_publisher()
        self._publisher.publish(frames, since)

    def forget(self, staged: Iterable[StagedFrame]) -> None:
        for path, *_ in staged:
            Path(path).unlink(missing_ok=True)

    def close(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()


@dataclass(slots=True)
class _Staging:
    """Writes the frames of one task."""

    frames: StagingWriter

    @property
    def staged(self) -> Sequence[StagedFrame]:
        return self.frames.staged

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        self.frames.write(topic, records, partitions)

    def must_exist(self, topic: str) -> None:
        self.frames.must_exist(topic)

    def partition_count(self, topic: str) -> int:
        return self.frames.partition_count(topic)

    def record_limit(self, topic: str) -> int | None:
        return None

    def finish(self, *, is_part: bool) -> None:
        self.frames.flush()
