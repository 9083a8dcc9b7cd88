"""What a join has made, and what its joiner got for the rows that it failed on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import Failure
from crossstream.columns.values import Values
from crossstream.storage.columns import Column
from crossstream.tables.partners import RIGHT
from crossstream.tables.rows import TableRows

Lookup = Callable[[np.ndarray, Column], TableRows]
"""Rows of a table before the batch, for sorted hashes and their keys."""


@dataclass(frozen=True, slots=True)
class JoinerInputs:
    """The values of both sides for the rows that a joiner failed on, in their order.

    ``side``: the side of the record that each row is a result of; None: the left side, if it has a value.
    """

    left: Values
    right: Values
    side: np.ndarray | None = None

    @property
    def is_right(self) -> np.ndarray:
        """Which rows are results of a record on the right."""
        return self.left.missing() if self.side is None else self.side == RIGHT


@dataclass(frozen=True, slots=True)
class Joined:
    """Result changes, and the rows that the joiner failed on. ``given``: the values it got for these."""

    changes: Changes
    failures: list[Failure] = field(default_factory=list)
    given: JoinerInputs | None = None

    @classmethod
    def of(
        cls,
        changes: Changes,
        failures: list[Failure],
        left: Values,
        right: Values,
        side: np.ndarray | None = None,
    ) -> Joined:
        """Results with their failures. ``left``, ``right``, ``side``: as in `JoinerInputs`, but for all rows."""
        if not failures:
            return cls(changes)
        rows = np.array([failure.row for failure in failures])
        return cls(
            changes,
            failures,
            JoinerInputs(left.take(rows), right.take(rows), None if side is None else side[rows]),
        )
