"""The changes of a store, batch by batch: what a reader that follows an application is given.

A position is the number of a batch: all up to that one has been read. A reader begins with the rows there are, then
reads what each batch changes. Plans are made from the commits alone, and the rows of each state partition are read
where the plan is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crossstream.error_codes import refuse
from crossstream.query.changes import changes_of
from crossstream.query.committed import OpenPartition, PartAt, kept, retired
from crossstream.query.files import application_of
from crossstream.query.key_filter import EVERYTHING
from crossstream.query.table import StoreTable
from crossstream.storage.columns import Columns
from crossstream.storage.log_entries import Commit

INSERT, PREIMAGE, POSTIMAGE, DELETE = "insert", "update_preimage", "update_postimage", "delete"


class Position(NamedTuple):
    """``batch``: the last one that has been read; ``snapshot``: it is yet to be read, as it was then.

    ``state``: which state folder it is in.
    """

    batch: int
    snapshot: bool
    state: str


@dataclass(frozen=True, slots=True)
class Step:
    """What a batch has changed in a state partition. ``older``: before it; None: all rows are new. ``time``: ms."""

    newer: PartAt
    older: PartAt | None
    time: int


class Changed(NamedTuple):
    """Rows that a batch has changed in the same way."""

    kind: str
    batch: int
    time: int
    rows: Columns


@dataclass(frozen=True, slots=True)
class Feed:
    """The changes of a store. ``preimages``: with rows as they were before an update. ``times``: see `changes_of`."""

    table: StoreTable
    preimages: bool = False
    times: bool = True

    def beginning(self, batch: int | None, starting: int | str | None) -> Position:
        """Where to begin: with the rows after ``batch`` (None: the newest), or with the changes from ``starting`` on.

        ``starting`` is a batch, or "latest". Raises `StateError` CS-713 for a batch that is not kept.
        """
        if isinstance(starting, int) and starting > 0:
            return Position(self.table.committed.commit(starting - 1).id, False, self.state())
        if starting == 0:
            return Position(-1, False, self.state())
        found = self.table.committed.commit(batch)
        return Position(found.id, starting is None, self.state())

    def newest(self) -> int:
        """The newest batch; −1 before the first."""
        return self.table.committed.commit(None).id

    def end(self, start: Position, most: int | None = None) -> Position:
        """Up to where a reader at ``start`` may go, ``most`` batches at a time; ``start`` itself if that is all.

        Raises `StateError` CS-713 if the state is older than what has been read, or another one.
        """
        newest = self.newest()
        self._check_state(start, newest)
        first = start.batch if start.snapshot else start.batch + 1
        if newest < first or (newest < 0 and start.snapshot):
            return start
        return Position(newest if most is None else min(newest, first + most - 1), False, start.state)

    def plan(self, start: Position, end: Position) -> list[list[Step]]:
        """What is to be read between two positions: a list of steps for each state partition, oldest first.

        Raises `StateError` CS-713 for batches that are not kept any more.
        """
        log = self.table.committed.log
        there = log.commits()
        for batch in range(max(start.batch, 0), end.batch + 1):
            if batch not in there:
                raise retired(log, batch, there)
        moved = {batch for batch in there if batch not in log.batches()}
        before = self._commit(start.batch)
        lists: dict[tuple[int, int], list[Step]] = {}
        if start.snapshot and (start.batch < end.batch or not end.snapshot):
            for part in self.table.committed.parts(before):
                if part.manifest is not None:
                    lists[before.partitions, part.partition] = [Step(part, None, _ms(before))]
        for batch in range(start.batch + 1, end.batch + 1):
            commit = self._commit(batch)
            if batch not in moved and commit.partitions == before.partitions:
                for one, other in self._changed(before, commit):
                    steps = lists.setdefault((commit.partitions, other.partition), [])
                    steps.append(Step(other, one, _ms(commit)))
            before = commit
        return list(lists.values())

    def _changed(self, before: Commit, after: Commit) -> Iterator[tuple[PartAt, PartAt]]:
        pairs = zip(self.table.committed.parts(before), self.table.committed.parts(after), strict=True)
        return ((one, other) for one, other in pairs if one.manifest != other.manifest)

    def _commit(self, batch: int) -> Commit:
        if batch >= 0:
            return self.table.committed.commit(batch)
        first = self.table.committed.log.commits()
        partitions = self._commit(first[0]).partitions if first else 1
        return Commit(-1, partitions)

    def read(self, steps: Sequence[Step]) -> Iterator[Changed]:
        """The changes of a state partition. Raises `StateError` CS-713 if a batch has been retired meanwhile."""
        opened = OpenPartition(self.table.committed, steps[0].newer.partition) if steps else None
        for step in steps:
            assert opened is not None
            batch, time = step.newer.batch, step.time
            if step.older is None:
                yield Changed(INSERT, batch, time, self.table.rows(opened, step.newer, EVERYTHING))
                continue
            with kept(self.table.committed.log, (step.older.batch, batch)):
                found = changes_of(opened, step.older, step.newer, self.table.shown, times=self.times)
            if found is None:
                continue
            kinds = {
                DELETE: found.deleted,
                PREIMAGE: found.before,
                POSTIMAGE: found.after,
                INSERT: found.inserted,
            }
            for kind, rows in kinds.items():
                if len(rows["key"]) and (kind != PREIMAGE or self.preimages):
                    yield Changed(kind, batch, time, rows)

    def state(self) -> str:
        """Which state folder it is: the same in copies of it."""
        return application_of(self.table.committed.log.root).state_id

    def _check_state(self, start: Position, newest: int) -> None:
        folder = str(self.table.committed.log.root)
        step = "begin with a new checkpoint, whose first rows are those there are"
        if self.state() != start.state:
            raise refuse(
                "CS-713", "the state folder is not the one that the stream began with", step, folder=folder
            )
        if newest < start.batch:
            what = (
                f"the stream has read batch {start.batch}, and the newest one is {newest}: the state is older"
            )
            raise refuse("CS-713", what, step, folder=folder)


def _ms(commit: Commit) -> int:
    return round(commit.time * 1000)
