"""Records of a task that wait for the transaction of their batch, in files that have their checksums in their names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from crossstream.runtime.delivery import TaskId
from crossstream.storage.files import BufferList, Storage
from crossstream.storage.log_entries import StagedFrame
from crossstream.storage.manifest import staged_name

BY_KEY = -1
"""The partition that leaves the choice to the client's partitioner: Kafka's murmur2 of the key."""
PARTITION = "partition"
"""The column of staged records that says where each goes; `BY_KEY` leaves that to the producer."""
FILE_BYTES = 16 << 20
"""Records that a task keeps in memory before it writes them to a file."""


def staging_name(task: TaskId) -> str:
    """How the names of files begin that a task stages."""
    return f"{task.batch:012d}-{task.round}-{task.sender}"


class StagingWriter:
    """Keeps the records of one task in files; a `crossstream.topics.RecordWriter`. ``task`` names them."""

    def __init__(self, storage: Storage, task: str) -> None:
        self._storage = storage
        self._task = task
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._bytes = 0
        self.staged: list[StagedFrame] = []

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        rows = records.num_rows
        chosen = pa.array(np.full(rows, BY_KEY) if partitions is None else partitions, pa.int32())
        columns = [records.column(name) for name in ("key", "value", "timestamp", "headers")]
        staged = pa.RecordBatch.from_arrays(
            [*columns, chosen], names=["key", "value", "timestamp", "headers", PARTITION]
        )
        self._held.setdefault(topic, []).append(staged)
        self._bytes += staged.nbytes
        if self._bytes > FILE_BYTES:
            self.flush()

    def must_exist(self, topic: str) -> None:
        """The transaction fails where it does not."""

    def flush(self) -> None:
        for topic, batches in self._held.items():
            out = BufferList()
            with pa.ipc.new_stream(out, batches[0].schema) as stream:
                for batch in batches:
                    stream.write_batch(batch)
            name = staged_name(self._task, out)
            self._storage.write(name, out)
            rows = sum(batch.num_rows for batch in batches)
            self.staged.append((name, topic, BY_KEY, rows, b""))
        self._held, self._bytes = {}, 0
