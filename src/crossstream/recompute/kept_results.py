"""Results of a batch that is run again: they are kept, and go to no topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from crossstream.partitioning import default_partitions, split_by_partition
from crossstream.records import PRODUCER_RECORDS, concat
from crossstream.runtime.delivery import TaskId, TaskWriter
from crossstream.runtime.staged_records import StagingWriter, staging_name
from crossstream.storage.files import Written
from crossstream.storage.log_entries import BatchEntry, Publication, StagedFrame
from crossstream.topics import TopicPartition, check_name


@dataclass(slots=True)
class KeptResults:
    """A `Delivery` that keeps what tasks write, by topic partition, in the order of the tasks.

    ``counts``: partitions of the topics there are; another topic has one. ``staged``: the names of the files that tasks
    would stage for a transaction, which have their checksums in them.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    staged: list[StagedFrame] = field(default_factory=list)
    parts: dict[TopicPartition, list[pa.RecordBatch]] = field(default_factory=dict)
    is_staged: bool = True
    looks_at_ends: bool = False

    def records(self) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """The records of each partition that got some."""
        for owner in sorted(self.parts):
            yield owner, concat(self.parts[owner])

    def of(self, owner: TopicPartition) -> pa.RecordBatch | None:
        """The records of a partition."""
        return concat(self.parts[owner]) if owner in self.parts else None

    # -- as a `Delivery`

    def connect(self) -> None: ...

    def writer(self, task: TaskId) -> TaskWriter:
        return _Keeping(self, StagingWriter(_Nowhere(), staging_name(task)))

    def settle(self) -> None: ...

    def begin(self, mark: str, state: str, newest: int, *, restarts: bool) -> None: ...

    def kept(self, staged: Iterable[StagedFrame]) -> list[str]:
        return []

    def publish(
        self, entry: BatchEntry, publication: Publication, state: str, note: Callable[[], None]
    ) -> None:
        raise AssertionError("a batch that is run again publishes nothing")

    def forget(self, staged: Iterable[StagedFrame]) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class _Keeping:
    """Writes the records of one task."""

    results: KeptResults
    staging: StagingWriter
    staged: Sequence[StagedFrame] = ()

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        self.staging.write(topic, records, partitions)
        plain = records.select(PRODUCER_RECORDS.names).cast(PRODUCER_RECORDS)
        chosen = (
            default_partitions(plain.column("key"), self.partition_count(topic))
            if partitions is None
            else np.asarray(partitions, np.int32)
        )
        for partition, part in split_by_partition(plain, chosen):
            self.results.parts.setdefault(TopicPartition(topic, partition), []).append(part)

    def must_exist(self, topic: str) -> None:
        check_name(topic)

    def partition_count(self, topic: str) -> int:
        return self.results.counts.get(topic, 1)

    def record_limit(self, topic: str) -> int | None:
        return None

    def finish(self, *, is_part: bool) -> None:
        self.staging.flush()
        self.results.staged += self.staging.staged


@dataclass(frozen=True, slots=True)
class _Nowhere:
    """Storage of files of which only the names count."""

    def write(self, name: str, data: Written) -> None: ...

    def read(self, name: str, *, original: bool = False) -> pa.Buffer:
        raise FileNotFoundError(name)
