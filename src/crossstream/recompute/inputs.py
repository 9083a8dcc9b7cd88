"""What an application has read up to a commit: which offsets of which topics, and in which batch, if that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.graph.names import matches
from crossstream.graph.nodes import Graph, Source
from crossstream.query.files import application_of, commit_of
from crossstream.recompute.loads import Loads
from crossstream.runtime.in_process import Span
from crossstream.serdes import calls
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Application, BatchEntry, Commit
from crossstream.storage.root import Place, root_of
from crossstream.topics import TopicLog, TopicPartition


@dataclass(frozen=True, slots=True)
class Deleted:
    """Records that the application may have read, and that the topic does not hold any more."""

    node: str
    topic: str
    partition: int
    start: int
    begin: int

    def __str__(self) -> str:
        return (
            f"{self.topic}, partition {self.partition}: "
            f"offsets {self.start} to {self.begin - 1} were deleted from the topic"
        )


@dataclass(frozen=True, slots=True)
class Consumed:
    """The input of the state after ``commit``: ``spans`` that are still there, and what is ``deleted``."""

    application: Application
    commit: Commit
    spans: tuple[Span, ...]
    deleted: tuple[Deleted, ...]

    @property
    def loads(self) -> Loads:
        """What was read before all other records."""
        starts, ids = self.application.starts, self.commit.topic_ids
        return Loads(starts.loaded(ids), starts.snapshots(ids))


def consumed(state_dir: Place, topology: Graph, log: TopicLog | None, as_of: int | None = None) -> Consumed:
    """What the state is made of. Raises `StateError` CS-713 without such a batch, `SourceError` CS-603 for topics
    that were made again."""
    application, batches = application_of(state_dir), BatchLog(state_dir)
    commit = commit_of(batches, as_of)
    if log is None:
        return Consumed(application, commit, (), ())
    ends = {
        TopicPartition(topic, partition): end
        for topics in commit.positions.values()
        for topic, positions in topics.items()
        for partition, end in positions.items()
    }
    readers = {tp.topic: _reader(topology, tp.topic) for tp in ends}
    wanted = [tp for tp in sorted(ends) if readers[tp.topic] is not None]
    check_same_topics(log, commit, sorted({tp.topic for tp in wanted}))
    begins = log.begin_offsets(wanted) if wanted else {}
    spans, deleted = [], []
    for tp in wanted:
        node = readers[tp.topic] or ""
        of_lake = topology[node].lake is not None
        start = 0 if of_lake else application.starts.positions.get(tp.topic, {}).get(tp.partition, 0)
        begin = max(start, begins[tp])
        if begin > start and ends[tp] > start:
            deleted.append(Deleted(node, tp.topic, tp.partition, start, min(begin, ends[tp])))
        if begin < ends[tp]:
            spans.append((node, tp.topic, tp.partition, begin, ends[tp]))
    return Consumed(application, commit, tuple(spans), tuple(deleted))


def everything(topology: Graph, log: TopicLog) -> list[Span]:
    """All records that the topics of the sources hold at this moment."""
    topics = log.topics()
    read = [(topic, node) for topic in topics if (node := _reader(topology, topic)) is not None]
    partitions = {
        TopicPartition(topic, number): node for topic, node in read for number in range(topics[topic])
    }
    named = {topic for node in topology.each(Source) for topic in node.topics}
    for topic in sorted(named - topics.keys()):
        raise refuse("CS-602", f"the topic {topic!r} does not exist", topic=topic)
    begins, ends = log.begin_offsets(list(partitions)), log.end_offsets(list(partitions))
    return [
        (node, tp.topic, tp.partition, begins[tp], ends[tp])
        for tp, node in partitions.items()
        if begins[tp] < ends[tp]
    ]


def kept_batches(state_dir: Place, newest: int) -> list[BatchEntry]:
    """The entries of the batch log up to ``newest``, in order; older ones are not kept."""
    log = BatchLog(root_of(state_dir))
    return [log.batch(number) for number in log.batches() if number <= newest]


def last_clock(entries: Sequence[BatchEntry]) -> int:
    """What the clock showed in the last of the batches, in ms; 0 if none is kept."""
    return int(entries[-1].time * 1000) if entries else 0


def _reader(topology: Graph, topic: str) -> str | None:
    for node in topology:
        if topic in node.topics or matches(node.pattern, topic):
            return node.name
    return None


def check_same_topics(log: TopicLog, commit: Commit, topics: Sequence[str]) -> None:
    """Raises `SourceError` CS-603 for topics that were made again since the commit."""
    for topic, found in log.topic_ids(topics).items():
        if commit.topic_ids.get(topic, found) != found:
            what = "the topic was deleted and made again since the application read it"
            step = "nothing can be computed from it: the records that the state is made of are gone"
            raise refuse("CS-603", what, step, topic=topic)


def object_of(serde: EngineSerde | None, data: Any) -> Any:
    """The object of bytes; the bytes themselves where there is no serde, or they are not of this one."""
    if serde is None or not isinstance(data, bytes):
        return data  # of a lake table the columns
    try:
        return calls.deserialize(serde, data)
    except CrossStreamError:
        return data
