"""A global table as the records of a batch see it: all its state partitions, and what the batch itself changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from crossstream.algebra.asked import some_given, some_key
from crossstream.algebra.change import Changes, concat_changes
from crossstream.algebra.hashing import partition_of
from crossstream.algebra.history import History
from crossstream.algebra.order import by_arrival
from crossstream.algebra.table import Rows
from crossstream.algebra.values import Values
from crossstream.serdes import Serde
from crossstream.state.columns import Column, cut
from crossstream.state.run import Run
from crossstream.state.view import Match, View


@dataclass(frozen=True, slots=True)
class WholeTable:
    """``views``: the state partitions as they were before the batch; ``histories``: the batch's changes of each."""

    views: Sequence[View]
    histories: Sequence[History | None]
    key: Serde | None
    value: Serde | None

    def values(self, hashes: np.ndarray, keys: Column, major: np.ndarray, minor: np.ndarray) -> Values:
        """The value that each key had just before (``major``, ``minor``), null where there was no row.

        ``hashes`` sorted. A row that several records look up is there, and will be decoded, once.
        """
        match = self._match(hashes, keys, major, minor)
        first = np.ones(len(hashes), bool)
        first[1:] = (match.piece[1:] != match.piece[:-1]) | (match.row[1:] != match.row[:-1])
        if first.all():
            return Values(self.value, wire=match.gather("value"))
        rows = np.flatnonzero(first)
        once = Match(match.pieces, match.piece[rows], match.row[rows])
        return Values(self.value, wire=once.gather("value")).take(np.cumsum(first) - 1)

    def some_key(self) -> Values | None:
        """The key of a row, also of one that the batch brings; None if there is none."""
        before = (some_key(view, self.key) for view in self.views)
        fresh = (some_given(h.every(self.key, self.value).key) for h in self.histories if h is not None)
        return next((key for key in chain(before, fresh) if key is not None), None)

    def changes(self) -> Changes | None:
        """The last change that the batch makes of each key, in order of the hash; None if it makes none."""
        nets = [history.net(self.key, self.value) for history in self.histories if history is not None]
        return concat_changes(nets) if nets else None

    def every_change(self) -> Changes | None:
        """Every change that the batch makes, in order of arrival; None if it makes none."""
        parts = [history.every(self.key, self.value) for history in self.histories if history is not None]
        return by_arrival(concat_changes(parts)) if parts else None

    def before(self, hashes: np.ndarray, keys: Column) -> Rows:
        """The rows of these keys before the batch; ``hashes`` sorted."""
        return self._rows_at(hashes, keys, np.iinfo(np.int64).min)

    def after(self, hashes: np.ndarray, keys: Column) -> Rows:
        """The rows of these keys after the batch; ``hashes`` sorted."""
        return self._rows_at(hashes, keys, np.iinfo(np.int64).max)

    def _rows_at(self, hashes: np.ndarray, keys: Column, moment: int) -> Rows:
        end = np.full(len(hashes), moment)
        match = self._match(hashes, keys, end, end)
        values = Values(self.value, wire=match.gather("value"))
        return Rows(~values.missing(), values, np.asarray(match.gather("ts")))

    def _match(self, hashes: np.ndarray, keys: Column, major: np.ndarray, minor: np.ndarray) -> Match:
        pieces: list[Run] = []
        piece = np.full(len(hashes), -1, np.int64)
        row = np.full(len(hashes), -1, np.int64)
        count = len(self.views)
        bounds = np.searchsorted(partition_of(hashes, count), np.arange(count + 1))
        for place, (view, history) in enumerate(zip(self.views, self.histories, strict=True)):
            span = slice(int(bounds[place]), int(bounds[place + 1]))
            if span.start == span.stop:
                continue
            mine = cut(keys, span.start, span.stop)
            found = view.lookup(hashes[span], mine)
            piece[span] = np.where(found.found, found.piece + len(pieces), -1)
            row[span] = found.row
            pieces += found.pieces
            if history is not None:
                later = history.before(hashes[span], mine, major[span], minor[span])
                piece[span] = np.where(later >= 0, len(pieces), piece[span])
                row[span] = np.where(later >= 0, later, row[span])
                pieces.append(history.run)
        return Match(pieces, piece, row)
