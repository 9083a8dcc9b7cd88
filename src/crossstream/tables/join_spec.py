"""What the kernels of all joins are given: how a join joins, and a table as a side of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from crossstream.columns.changes import Changes, Headers, JoinKind
from crossstream.columns.functions import Function
from crossstream.columns.values import Values
from crossstream.serdes import arrays
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.keys import LEFT
from crossstream.tables.joined import Lookup

Emit = Literal["net", "changelog"]
"""The last result of each row in a batch, or every result for readers of the changes within a batch (decision 0033)."""


@dataclass(frozen=True, slots=True)
class Serdes:
    """Of the keys of results, and of the values of both sides, where a kernel reads them from a store or writes them.

    ``either``: results are keyed by `LeftOrRight` (decision 0018).
    """

    key: EngineSerde | None = None
    left: EngineSerde | None = None
    right: EngineSerde | None = None
    either: EngineSerde | None = None

    @property
    def of_values(self) -> tuple[EngineSerde | None, EngineSerde | None]:
        """By side."""
        return self.left, self.right

    def keys(self, primary: pa.LargeBinaryArray) -> Values:
        """The keys of results, from the serialised keys of left rows."""
        if self.either is None:
            return Values(self.key, wire=primary)
        return Values(self.either, wire=arrays.with_first_byte(LEFT, primary))


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """How a join joins, the same in every batch.

    ``headers``: those of the results; None: those of what triggers each. ``bits``: of the hashes of keys. ``chunk``:
    results are made from about so many rows at a time.
    """

    kind: JoinKind
    joiner: Function
    serdes: Serdes
    headers: Headers | None
    emit: Emit
    bits: int
    chunk: int


@dataclass(frozen=True, slots=True)
class TableSide:
    """A table in a batch: its changes, and its rows before them. ``value``: the serde it keeps values in."""

    changes: Changes
    rows: Lookup
    value: EngineSerde | None
