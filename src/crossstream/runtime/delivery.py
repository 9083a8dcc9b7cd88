"""How results reach their topics, exactly once or at least once: a port, and the way that needs no driver.

A `Delivery` has a part in every task, which writes, and a part in the driver, which publishes when the batch has run:

- `AtOnce`: records go to their topics as they are written. A batch that runs again writes them again.
- `filetopics.delivery.StagedFiles`: tasks stage frames in files; the driver appends them, each once (decision 0007).
- `kafka.delivery.Transaction`: tasks stage records; the driver writes them in one transaction (decision 0036).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa

from crossstream.storage.log_entries import BatchEntry, Publication, StagedFrame
from crossstream.storage.root import StateRoot
from crossstream.topics import RecordWriter, TopicConnection


class TaskId(NamedTuple):
    """A task: a part of a round of a batch."""

    batch: int
    round: int
    sender: int


class TaskWriter(Protocol):
    """Where one task writes its results."""

    @property
    def staged(self) -> Sequence[StagedFrame]:
        """What waits for the driver: complete after `finish`."""

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        """Takes records (key, value, timestamp, headers) in order; ``partitions`` as of a `RecordWriter`."""

    def must_exist(self, topic: str) -> None:
        """Raises `SinkError` where writing would create the topic."""

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; `SinkError` if it cannot be written."""

    def record_limit(self, topic: str) -> int | None:
        """The most bytes that a record of the topic may have; None: any number."""

    def finish(self, *, is_part: bool) -> None:
        """Stores what was written. ``is_part``: other tasks of this process follow, and then `Delivery.settle`."""


class Delivery(Protocol):
    """How the results of one application reach their topics."""

    is_staged: bool
    """Whether a batch that has run can be published by the next start."""
    looks_at_ends: bool
    """Whether publishing again needs to know where the topics ended before the batch."""

    # -- in the process of a task

    def connect(self) -> None:
        """Opens clients while the first records are read, if there are any to open."""

    def writer(self, task: TaskId) -> TaskWriter:
        """Where a task writes."""

    def settle(self) -> None:
        """Returns when everything is stored that the tasks before it have written."""

    # -- in the driver

    def begin(self, mark: str, state: str, newest: int, *, restarts: bool) -> None:
        """Before the first batch of a run. ``mark``: the topic of the mark; ``state``: its id, at batch ``newest``."""

    def kept(self, staged: Iterable[StagedFrame]) -> list[str]:
        """The names of files with staged records in the storage of the state.

        Where there are some, `publish` notes the batch itself.
        """

    def publish(
        self, entry: BatchEntry, publication: Publication, state: str, note: Callable[[], None]
    ) -> None:
        """Publishes the staged records of a batch that are not published yet. ``note``: notes it in the log."""

    def forget(self, staged: Iterable[StagedFrame]) -> None:
        """Removes files of a batch that is committed, those that are not `kept`."""

    def close(self) -> None:
        """Closes its clients."""


def nothing() -> None:
    """Does nothing."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where results of an application wait: in the storage of its state, or in ``staging``, a folder.

    ``owns`` raises if another process has taken the state.
    """

    application_id: str
    root: StateRoot
    staging: Path
    owns: Callable[[], None] = nothing


class DeliveringConnection(TopicConnection, Protocol):
    """A connection to topics that results can be written to."""

    def delivery(self, place: Place) -> Delivery:
        """How results get there; one for each process."""

    def staging_folder(self, name: str) -> Path | None:
        """A folder for staged files that all workers see, beside the topics; None: they are in the state."""


class Producer(RecordWriter, Protocol):
    """Writes to topics at once."""

    def open(self) -> object:
        """Begins to connect."""

    def record_limit(self, topic: str) -> int | None:
        """As `TaskWriter.record_limit`."""


def no_topics() -> Producer:
    """The producer of an application without topics."""
    raise AssertionError("a topology that writes topics has a connection to them")


@dataclass(slots=True)
class AtOnce:
    """Results go to their topics as tasks write them. ``make``: a producer, which the tasks of a process share."""

    make: Callable[[], Producer]
    _producer: Producer | None = None
    is_staged: bool = False
    looks_at_ends: bool = False

    @property
    def producer(self) -> Producer:
        if self._producer is None:
            self._producer = self.make()
        return self._producer

    def connect(self) -> None:
        """Otherwise the first flush of each worker waits for half a second."""
        self.producer.open()

    def writer(self, task: TaskId) -> TaskWriter:
        return _Direct(self.producer)

    def settle(self) -> None:
        if self._producer is not None:
            self._producer.flush()

    def begin(self, mark: str, state: str, newest: int, *, restarts: bool) -> None: ...

    def kept(self, staged: Iterable[StagedFrame]) -> list[str]:
        return []

    def publish(
        self, entry: BatchEntry, publication: Publication, state: str, note: Callable[[], None]
    ) -> None:
        note()

    def forget(self, staged: Iterable[StagedFrame]) -> None: ...

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


@dataclass(slots=True)
class _Direct:
    """Writes through the producer; a name that a record gave is refused by the producer itself."""

    producer: Producer
    staged: Sequence[StagedFrame] = ()
    _is_used: bool = False

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        self._is_used = True
        self.producer.write(topic, records, partitions)

    def must_exist(self, topic: str) -> None: ...

    def partition_count(self, topic: str) -> int:
        return self.producer.partition_count(topic)

    def record_limit(self, topic: str) -> int | None:
        return self.producer.record_limit(topic)

    def finish(self, *, is_part: bool) -> None:
        if self._is_used and not is_part:
            self.producer.flush()
