"""The history of an Iceberg table: the snapshots of its main branch, by sequence number.

The number of a commit is the sequence number of its snapshot, which grows along the branch. Numbers of other branches
are gaps. PyIceberg overwrites a table in two snapshots, one that deletes and one that appends, in one transaction: they
are one commit, with the number of the last. Source: the Iceberg specification, "Sequence Numbers" and "Snapshots".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.graph.lake import LakeTable
from crossstream.lakehouse.versions import expired

_ROWS = ("added-records", "deleted-records", "added-position-deletes", "added-equality-deletes")


@dataclass(frozen=True, slots=True)
class Step:
    """A commit of the main branch: the snapshots of one transaction, in order."""

    snapshots: tuple[Snapshot, ...]

    @property
    def last(self) -> Snapshot:
        return self.snapshots[-1]

    @property
    def number(self) -> int:
        return number_of(self.last)

    @property
    def appends(self) -> bool:
        return self._all(Operation.APPEND)

    @property
    def replaces(self) -> bool:
        """Whether it changes no row, as a compaction."""
        return self._all(Operation.REPLACE)

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(one.snapshot_id for one in self.snapshots)

    @property
    def rows(self) -> int | None:
        """How many rows it added and removed; None: a summary does not say."""
        counts = [list(_counted(one, _ROWS)) for one in self.snapshots]
        return sum(map(sum, counts)) if all(counts) else None

    def _all(self, operation: Operation) -> bool:
        return all(one.summary is not None and one.summary.operation == operation for one in self.snapshots)


@dataclass(frozen=True)
class History:
    """The main branch of a table, as one state of its metadata has it."""

    table: LakeTable
    metadata: TableMetadata

    @property
    def newest(self) -> int:
        """The number of the current snapshot; 0: there is none."""
        return number_of(self._line[0]) if self._line else 0

    def at(self, version: int) -> Snapshot | None:
        """The snapshot of a version; None: the table before its first one. Raises `SourceError` CS-613, CS-603."""
        found = next((one for one in self._line if number_of(one) <= version), None)
        if found is not None and number_of(found) == version:
            return found
        if version == 0 and self._is_whole:
            return None
        if version in self._left:
            raise self._rolled_back(version)
        raise self._unknown(version)

    def step(self, version: int) -> Step | None:
        """The commit of a version; None: the table before its first one. Raises as `at`."""
        snapshot = self.at(version)
        if snapshot is None:
            return None
        return self._steps.get(version) or Step((snapshot,))

    def before(self, step: Step) -> Snapshot | None:
        """The snapshot that a commit began with; None: it was the first. Raises `SourceError` CS-613."""
        parent = self.parent(step)
        if parent is not None or _is_first(step.snapshots[0]):
            return parent
        what = f"the snapshot before version {step.number} has expired, and this version takes rows away"
        raise expired(self.table, step.number, what)

    def parent(self, step: Step) -> Snapshot | None:
        """The snapshot before a commit, if there is one, and it has not expired."""
        return self._parent(step.snapshots[0])

    def since(self, start: int, end: int) -> Sequence[Step]:
        """The commits with ``start <= number < end``, in order, after one that was read up to ``start``.

        Raises `SourceError` CS-613 if one of them has expired, CS-603 if the table was rolled back since.
        """
        line = [one for one in reversed(self._line) if number_of(one) >= start]
        if start - 1 in self._left or (line and self._has_lost(start - 1, line[0])):
            raise self._rolled_back(start - 1)
        if line and not self._has_parent(line[0]):
            first = number_of(line[0])
            lost = [number for number in range(start, min(first, end)) if number not in self._numbers]
            if lost:
                what = f"version {lost[0]} has expired before it was read, and the oldest one now is {first}"
                raise expired(self.table, lost[0], what)
        return [step for number, step in self._steps.items() if start <= number < end]

    def schema_of(self, snapshot: Snapshot) -> Schema:
        """The schema that a snapshot was written with."""
        schemas = {schema.schema_id: schema for schema in self.metadata.schemas}
        return schemas.get(snapshot.schema_id or 0, self.metadata.schema())

    @cached_property
    def _by_id(self) -> Mapping[int, Snapshot]:
        return {one.snapshot_id: one for one in self.metadata.snapshots}

    @cached_property
    def _numbers(self) -> frozenset[int]:
        """Of all snapshots, also those of other branches."""
        return frozenset(map(number_of, self.metadata.snapshots))

    @cached_property
    def _line(self) -> Sequence[Snapshot]:
        """The current snapshot and all that it follows, the newest first."""
        current = self.metadata.current_snapshot_id
        return list(self._followed(None if current is None else self._by_id.get(current), set()))

    @cached_property
    def _steps(self) -> Mapping[int, Step]:
        """The commits by number, in order. A snapshot that no file of metadata ended with is a part of the next one."""
        moments = {entry.timestamp_ms for entry in self.metadata.metadata_log} | {
            self.metadata.last_updated_ms
        }
        known = min(moments)
        found, parts = dict[int, Step](), list[Snapshot]()
        for snapshot in reversed(self._line):
            parts.append(snapshot)
            moment = snapshot.timestamp_ms
            if moment in moments or moment < known or snapshot is self._line[0]:
                found[number_of(snapshot)] = Step(tuple(parts))
                parts.clear()
        return found

    @cached_property
    def _left(self) -> frozenset[int]:
        """The numbers of snapshots that were current, or before a current one, and are not any more."""
        seen = {one.snapshot_id for one in self._line}
        tips = (self._by_id.get(entry.snapshot_id) for entry in self.metadata.snapshot_log)
        return frozenset(number_of(one) for tip in tips for one in self._followed(tip, seen))

    def _followed(self, tip: Snapshot | None, seen: set[int]) -> Iterator[Snapshot]:
        """A snapshot and those before it, up to one that was seen."""
        while tip is not None and tip.snapshot_id not in seen:
            seen.add(tip.snapshot_id)
            yield tip
            tip = self._parent(tip)

    def _parent(self, snapshot: Snapshot) -> Snapshot | None:
        number = snapshot.parent_snapshot_id
        return None if number is None else self._by_id.get(number)

    @property
    def _is_whole(self) -> bool:
        return not self._line or _is_first(self._line[-1])

    def _has_lost(self, version: int, following: Snapshot) -> bool:
        """Whether what followed a version that was read began with an older one, and that version has expired."""
        parent = self._parent(following)
        return parent is not None and number_of(parent) < version and version not in self._numbers

    def _has_parent(self, snapshot: Snapshot) -> bool:
        return self._parent(snapshot) is not None or _is_first(snapshot)

    def _rolled_back(self, version: int) -> CrossStreamError:
        what = (
            f"the table {self.table.table} was rolled back or replaced: version {version} was read, "
            f"and its main branch, now at version {self.newest}, does not have it"
        )
        step = "start with an empty `state_dir`, which begins with a new snapshot; or roll the table forward"
        return refuse("CS-603", what, step, topic=self.table.topic, version=version)

    def _unknown(self, version: int) -> CrossStreamError:
        numbers = [str(number_of(one)) for one in reversed(self._line)]
        known = ", ".join(numbers if len(numbers) < 8 else [*numbers[:3], "…", *numbers[-3:]])
        what = f"it has no version {version} any more: it has {known or 'none'}"
        if version > self.newest:
            what = f"it has no version {version} yet: the newest one is {self.newest}"
        return expired(self.table, version, what)


def number_of(snapshot: Snapshot) -> int:
    """The number of a commit; 0 for snapshots of format version 1."""
    return snapshot.sequence_number or 0


def total_of(snapshot: Snapshot) -> int | None:
    """How many rows the table has; None: the summary does not say."""
    return next(_counted(snapshot, ("total-records",)), None)


def _counted(snapshot: Snapshot, names: Sequence[str]) -> Iterator[int]:
    found = {} if snapshot.summary is None else snapshot.summary.additional_properties
    for name in names:
        if found.get(name, "").isdigit():
            yield int(found[name])


def _is_first(snapshot: Snapshot) -> bool:
    """Whether nothing was before it. A snapshot has no parent, too, if PyIceberg has expired the one before it."""
    is_first = snapshot.parent_snapshot_id is None and number_of(snapshot) <= 1
    return is_first and not any(_counted(snapshot, ("deleted-records", "deleted-data-files")))
