"""The entries of the batch log, as values. `commit_log.py` reads and writes them; `docs/spec/state-format.md`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import structs

from crossstream.error_codes import refuse
from crossstream.serdes.description import Described
from crossstream.storage.door import (
    Batch,
    Count,
    FileName,
    Fingerprint,
    Hash,
    Int64,
    Partition,
    Partitions,
    Place,
    Seconds,
    StoreName,
)
from crossstream.storage.noted import NotedTopology
from crossstream.storage.root import StateRoot

FORMAT = 2

SENT = "sent:"
"""Begins the names of stores that are of one commit only: what a change has to send to take its rows back."""

StagedFrame = tuple[str, str, int, int, bytes]
"""Records that wait to be published: file, topic, partition, rows, tag."""
NotedFrame = tuple[FileName, str, Place, Count, bytes]
"""The same, the file by its name alone."""
StagedRows = tuple[FileName, str]
"""Rows that wait to be written to a table, or are read as a DataFrame: file, sink."""


class SourceRange(msgspec.Struct, frozen=True, array_like=True):
    """Records ``start <= offset < end`` of one topic partition, for one source node.

    ``rank`` orders the source partitions of a batch: ties in arrival order go by it.
    """

    node: str
    topic: str
    partition: Count
    start: Count
    end: Count
    rank: Count


class Silence(msgspec.Struct, frozen=True, array_like=True):
    """What a batch knows of the clock, where stream time moves without input; all in ms.

    ``clock``: what it showed when the batch was planned; ``since``: from when on the application had read all there
    was; ``after``: how long a state partition gets no records until its stream time moves with the clock.
    """

    clock: Int64
    since: Int64
    after: Int64


class Seam(msgspec.Struct, frozen=True):
    """Where the rows of a lake table end that come before a topic, and the topic's own records begin.

    ``version``: of the table ``table_id`` that is read. ``begins``, ``ends``: by partition the first offset that it
    has, and the one after the last.
    """

    table_id: str
    version: Count
    begins: dict[Count, Count]
    ends: dict[Count, Count]


class Starts(msgspec.Struct, frozen=True):
    """Where sources that read what comes from their first start on have begun: it counts until a commit knows more.

    ``sources``: their names, also of patterns that matched nothing. ``positions``: by topic and partition.
    ``topic_ids``: which topics these are in, as far as it is known. ``loads``: where the topics ended then of tables
    that are read first, by topic and partition. ``changes``: the same way, the first event of such a topic that is no
    row of a snapshot, as far as it was read. ``seams``: by topic, where its history ends.
    """

    sources: tuple[str, ...] = ()
    positions: dict[str, dict[Count, Count]] = {}
    topic_ids: dict[str, str] = {}
    loads: dict[str, dict[Count, Count]] = {}
    changes: dict[str, dict[Count, Count]] = {}
    seams: dict[str, Seam] = {}

    def and_of(self, source: str, positions: dict[str, dict[int, int]], topic_ids: dict[str, str]) -> Starts:
        """These, and those of another source; of ``topic_ids`` those of its topics."""
        ids = {topic: topic_ids[topic] for topic in positions if topic in topic_ids}
        sources = tuple(sorted({*self.sources, source}))
        return structs.replace(
            self,
            sources=sources,
            positions={**self.positions, **positions},
            topic_ids={**self.topic_ids, **ids},
        )

    def and_load(self, topic: str, ends: dict[int, int], topic_ids: dict[str, str]) -> Starts:
        """These, and the end of a topic by partition, up to which it is read first."""
        ids = {topic: topic_ids[topic]} if topic in topic_ids else {}
        loads, changes = {**self.loads, topic: dict(ends)}, {**self.changes, topic: {}}
        return structs.replace(self, topic_ids={**self.topic_ids, **ids}, loads=loads, changes=changes)

    def and_changes(self, found: Mapping[str, Mapping[int, int]]) -> Starts:
        """These, and the first events of topics that are no rows of a snapshot, where none before is known."""
        changes = {
            topic: {**found.get(topic, {}), **known} if topic in self.loads else known
            for topic, known in self.changes.items()
        }
        return structs.replace(self, changes=changes)

    def loaded(self, topic_ids: Mapping[str, str]) -> dict[str, dict[int, int]]:
        """Where the loads end, by topic and partition; not of topics that were made again. ``topic_ids``: of now."""
        return {
            topic: ends
            for topic, ends in self.loads.items()
            if self.topic_ids.get(topic) in (None, topic_ids.get(topic))
        }

    def snapshots(self, topic_ids: Mapping[str, str]) -> dict[str, dict[int, int]]:
        """Up to which offset rows of a snapshot hold from the beginning of time on: while the topic loads."""
        return {
            topic: {
                partition: min(end, self.changes.get(topic, {}).get(partition, end))
                for partition, end in ends.items()
            }
            for topic, ends in self.loaded(topic_ids).items()
        }

    def with_seam(self, topic: str, seam: Seam) -> Starts:
        """These, and where the history of another topic ends."""
        return structs.replace(self, seams={**self.seams, topic: seam})


class Stand(msgspec.Struct, frozen=True):
    """After which transaction of a database a batch ends, by a transaction topic (decision 0043).

    ``position``: the offset in that topic behind its END. ``lsn``: its place in the log of the database, where ids have
    one. ``time``: in ms, as the database says; -1: it does not. ``collections``: the tables that were seen in each
    topic. ``split``: the transaction that was taken in parts, as it was too large; ``taken``: how many of its events
    were, by table.
    """

    position: Count
    transaction: str = ""
    lsn: Count | None = None
    time: Int64 = -1
    collections: dict[str, tuple[str, ...]] = {}
    split: str = ""
    taken: dict[str, Count] = {}

    def shown(self) -> dict[str, str | int | None]:
        """The transaction, its place in the log as Postgres writes it, and its time, as plain data.

        >>> Stand(7, "571", 53195832, 1767323045678).shown()
        {'transaction': '571', 'lsn': '0/32BB438', 'time': 1767323045678}
        """
        time = None if self.time < 0 else self.time
        return {"transaction": self.transaction, "lsn": lsn_text(self.lsn), "time": time}


def shown(stands: Mapping[str, Stand]) -> dict[str, dict[str, str | int | None]]:
    """Where an application stands, by transaction topic, as plain data."""
    return {topic: stand.shown() for topic, stand in stands.items()}


def lsn_text(lsn: int | None) -> str | None:
    """A place in the log of Postgres as it writes it."""
    return None if lsn is None else f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


class Readable(msgspec.Struct, frozen=True):
    """A store that can be queried, as plain data. ``store``, ``kind``: its name in the plan, and that of its layout.

    ``window_size``: of its windows, in ms.
    """

    store: str
    kind: str
    key: Described
    value: Described
    history: Count | None = None
    window_size: Count | None = None


class Application(msgspec.Struct, frozen=True):
    """Whose state a folder holds, and what must stay the same for it to be usable.

    ``partitions``: of the state before the first commit; each commit has its own number. ``readers``: the stores that
    can be queried, by the user's names for them. ``placed``: the stores whose rows are where a partitioner of the user
    puts them (KIP-775), and not where their hash does. ``derived``:
    stores that are made from others, where these have their rows, and made again when the partitions change.
    ``by_key2``: those whose rows are in the state partition of their second key. ``anywhere``: those of processors,
    whose rows are in the state partition of the record that they were put with. ``begin_empty``: those that state of
    earlier versions may lack. ``tables``: of a store with rows of
    several tables, which it knows by their numbers, the stores of these. ``frames``: the DataFrame sources in the order
    in which Spark's checkpoint has them. ``committed``: there is a commit. ``starts``: of sources with
    another ``offset_reset`` than "earliest". ``state_id``: the same in copies of the folder, and in no other one.
    ``changing``: the batch that is to make it another one; whether it did, its entry and commit say. ``topology``: what
    a changed application is compared with.
    """

    application_id: str
    partitions: Partitions
    stores: dict[StoreName, Fingerprint]
    readers: dict[str, Readable] = {}
    placed: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    committed: bool = False
    starts: Starts = Starts()
    by_key2: tuple[str, ...] = ()
    tables: dict[str, tuple[str, ...]] = {}
    anywhere: tuple[str, ...] = ()
    begin_empty: tuple[str, ...] = ()
    state_id: str = ""
    changing: Int64 = -1
    format: int = FORMAT
    topology: NotedTopology = NotedTopology()


class Commit(msgspec.Struct, frozen=True):
    """A batch that is done, or state that was cut into another number of ``partitions`` (decision 0011).

    ``positions``: next offset to read, by source node, topic and partition. ``versions``: the manifest of each
    state partition, by store. ``topic_ids``: which topics the positions are in, as far as it is known.
    ``tables``: the last batch that each Delta or Iceberg table got, by sink. ``frame_versions``: by DataFrame source of
    changes the newest version of which rows were taken. ``stands``: by transaction topic, after which transaction.
    ``hot``: by store the hashes of the keys whose rows are spread over all state partitions; false: the next batch
    spreads them (decision 0053).
    """

    id: Batch
    partitions: Partitions
    positions: dict[str, dict[str, dict[Count, Count]]] = {}
    versions: dict[StoreName, dict[Partition, FileName]] = {}
    time: Seconds = 0.0
    epoch: Int64 = -1
    topic_ids: dict[str, str] = {}
    tables: dict[str, Batch] = {}
    frame_versions: dict[str, Int64] = {}
    stands: dict[str, Stand] = {}
    hot: dict[StoreName, dict[Hash, bool]] = {}


class Publication(msgspec.Struct, frozen=True):
    """What a batch has become: the commit, and what is published before it.

    ``mark``: the topic of Kafka with whose first partition the transaction says which batch it is. ``tables``: rows for
    Delta and Iceberg tables.
    """

    commit: Commit
    staged: tuple[NotedFrame, ...]
    mark: str = ""
    tables: tuple[StagedRows, ...] = ()


class SentTo(msgspec.Struct, frozen=True):
    """Where the rows of a change went that need no code to be sent back. ``topics``: by sink.

    ``topics_dir``, ``servers``: where these are, without secrets; empty where it is not known.
    """

    topics: dict[str, str] = {}
    topics_dir: str = ""
    servers: str = ""


class BatchEntry(msgspec.Struct, frozen=True):
    """A batch that was about to run. ``sinks``: end offsets of file topics before it; ``epoch``: of its DataFrames.

    ``silence``: what it knew of the clock, so that it decides alike when it is repeated. ``shares``: how many tasks
    share its ranges, at most; 0: one task does all of it alone. The number of a task names what it writes.
    ``expected``: by source, the partitions that stream time waits for before a row of them comes (decision 0038).
    ``publication``: of a batch with rows of DataFrames, or with results for transactions or tables, once these are
    published. ``owner``: on an object store the token of the lease under which it was written. ``stands``: those of its
    commit that are new. ``becomes``: of the change of an application, whose state it is with the commit (decision
    0050); ``was``: whose it was before. ``reverts``: the change that is taken back. ``sent_to``: where its rows went.
    """

    id: Batch
    ranges: tuple[SourceRange, ...]
    time: Seconds = 0.0
    sinks: dict[str, list[Count]] = {}
    epoch: Int64 = -1
    silence: Silence | None = None
    shares: Count = 1
    publication: Publication | None = None
    owner: str = ""
    expected: dict[str, tuple[int, ...]] = {}
    stands: dict[str, Stand] = {}
    becomes: Application | None = None
    was: Application | None = None
    reverts: Batch | None = None
    sent_to: SentTo = SentTo()


def check_application(found: Application, wanted: Application, folder: StateRoot) -> None:
    """Refuses state of another application, or of a topology that it does not fit."""
    if found.application_id != wanted.application_id:
        what = f"the state folder belongs to the application {found.application_id!r}"
        step = "give this application a state_dir of its own"
        raise refuse("CS-720", what, step, folder=str(folder), application=wanted.application_id)
    changed = [
        f"store {name}: was {found.stores[name]}, is {wanted.stores[name]}"
        for name in sorted(found.stores.keys() & wanted.stores.keys())
        if found.stores[name] != wanted.stores[name]
    ]
    new = wanted.stores.keys() - found.stores.keys() - set(wanted.begin_empty)
    changed += [f"store {name} is new" for name in sorted(new)]
    changed += [f"store {name} is gone" for name in sorted(found.stores.keys() - wanted.stores.keys())]
    changed += [
        f"store {name}: was placed {_by(found, name)}, is placed {_by(wanted, name)}"
        for name in sorted(set(found.placed) ^ set(wanted.placed))
        if name in found.stores and name in wanted.stores
    ]
    if not changed:
        changed = [
            f"store {name}: was of {', '.join(found.tables[name])}, is of {', '.join(tables)}"
            for name, tables in sorted(wanted.tables.items())
            if found.tables.get(name, tables) != tables
        ]
    if changed:
        what = "the topology changed since the last run: " + "; ".join(changed)
        raise refuse("CS-750", what, folder=str(folder))


def _by(application: Application, store: str) -> str:
    return "by a partitioner" if store in application.placed else "by hash"
