"""One commit of a Delta table, as its file of the log has it: a JSON action in each line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import Schema

from crossstream.graph.lake import LakeTable
from crossstream.lakehouse.versions import Commit, unreadable

_BYTES = 100
"""Of a row, about, where a file does not say how many rows it has."""
_decoder = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class Action:
    """A file that a commit adds, removes, or that has its changes. ``modified``: when it was written, in ms.

    ``partitions``: the values of its partitions by column. ``is_complete``: they are known.
    """

    path: str
    partitions: Mapping[str, Any]
    rows: int
    modified: int = 0
    is_complete: bool = True

    @classmethod
    def of(
        cls, path: str, partitions: Mapping[str, Any], rows: int | None, size: int | None, modified: int = 0
    ) -> Action:
        return cls(path, partitions, _rows(rows, size), modified)

    @classmethod
    def in_log(cls, found: Mapping[str, Any]) -> Action:
        """An action of the log; one that removes a file may lack all but its path."""
        stats = json.loads(found.get("stats") or "{}")
        rows = _rows(stats.get("numRecords"), found.get("size"))
        partitions = found.get("partitionValues")
        return cls(
            found["path"], partitions or {}, rows, found.get("modificationTime") or 0, partitions is not None
        )


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """What a commit did to the rows: files that it added and removed, or files with the rows that it changed."""

    number: int
    time: int
    added: tuple[Action, ...]
    removed: tuple[Action, ...]
    changes: tuple[Action, ...]
    schema: pa.Schema | None

    def summary(self) -> Commit:
        read = self.changes or (*self.added, *self.removed)
        changes = bool(read)
        return Commit(
            self.number, self.time, sum(one.rows for one in read), not self.removed, changes, self.schema
        )


def read_commit(table: LakeTable, number: int, text: bytes) -> DeltaCommit:
    """The actions of a commit. Raises `SourceError` CS-615 for what cannot be read."""
    added: list[Action] = []
    removed: list[Action] = []
    changes: list[Action] = []
    time, schema = 0, None
    for kind, found in _actions(table, number, text):
        if kind == "commitInfo":
            time = found.get("inCommitTimestamp") or found.get("timestamp") or time
        elif kind == "metaData":
            schema = pa.schema(Schema.from_json(found["schemaString"]))
            _check_mapping(table, number, found.get("configuration") or {})
        elif kind == "cdc":
            changes.append(Action.in_log(found))
        elif kind in ("add", "remove"):
            if found.get("deletionVector"):
                raise unreadable(table, f"commit {number} deletes rows by a deletion vector")
            if found.get("dataChange", True):
                (added if kind == "add" else removed).append(Action.in_log(found))
    moments = (one.modified for one in added)
    return DeltaCommit(
        number, time or max(moments, default=0), tuple(added), tuple(removed), tuple(changes), schema
    )


def _actions(table: LakeTable, number: int, text: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        for line in text.splitlines():
            if line.strip():
                for kind, found in _decoder.decode(line).items():
                    if found is not None:
                        yield kind, found
    except (msgspec.MsgspecError, AttributeError) as error:
        raise unreadable(table, f"commit {number} is damaged: {error}") from error


def _check_mapping(table: LakeTable, number: int, configuration: Mapping[str, str]) -> None:
    mode = configuration.get("delta.columnMapping.mode", "none")
    if mode != "none":
        raise unreadable(table, f"commit {number} turns on column mapping (mode {mode!r})")


def _rows(rows: int | None, size: int | None) -> int:
    return rows if rows is not None else max(1, (size or 0) // _BYTES)
