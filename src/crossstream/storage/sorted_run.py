"""A run: immutable rows of a store, sorted by key hash and, where the layout has one, a secondary number.

Hashes order the rows and find candidates; the serialised key decides. Nothing here assumes that two
keys have two hashes: every look-up compares bytes, so a collision costs time and never a wrong row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from crossstream.storage.columns import (
    Column,
    Columns,
    concat_all,
    cut_all,
    same_rows,
    take,
    take_all,
)
from crossstream.storage.sieve import Sieve

_KINDS = frozenset({"bytes", "int64", "uint64", "uint8", "float64"})
"""Types of the columns beside those of every layout."""

_FEW = 64
"""Rows up to which one plain sort is cheaper."""

_VERY_FEW = 16
"""Keys up to which two plain searches are cheaper than one, and a look at what it found."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a store.

    Always there: ``h`` (uint64, hash of ``key``), ``key`` (bytes) and ``gone`` (uint8, 1 = deleted).
    ``sort``: a secondary sort column ``s``, uint64 or int64 (hash of ``key2``, or a timestamp).
    ``second_key``: a second key ``key2`` (bytes) belongs to the identity of a row; ``numbered``: a number ``n``
    (uint64) does. ``values``: the other columns, by name, as ``"bytes"``, ``"int64"`` or ``"uint8"``. ``expires``:
    rows get too old to matter, by ``s``: records, which nothing replaces, and windows. ``names``: all.
    """

    kind: str
    values: tuple[tuple[str, str], ...]
    sort: str | None = None
    second_key: bool = False
    numbered: bool = False
    expires: bool = False
    names: tuple[str, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        there = {"s": self.sort is not None, "key2": self.second_key, "n": self.numbered}
        head = (name for name in ("h", "s", "key", "key2", "n") if there.get(name, True))
        object.__setattr__(self, "names", (*head, *(name for name, _ in self.values), "gone"))

    @property
    def versioned(self) -> bool:
        """Whether a key has a row for each time at which its value changed."""
        return self.sort == "int64" and not self.expires

    @property
    def is_known(self) -> bool:
        """Whether its columns are of types that there are, and have names of their own; it may come from a name."""
        return len(set(self.names)) == len(self.names) and {kind for _, kind in self.values} <= _KINDS

    def fits(self, columns: Columns) -> bool:
        """Whether these are the columns, and of the right types."""
        if tuple(columns) != self.names:
            return False
        own = {"h": "uint64", "s": self.sort, "n": "uint64", "gone": "uint8", "key": "bytes", "key2": "bytes"}
        kinds = {**own, **dict(self.values)}
        return all(_kind(column) == kinds[name] for name, column in columns.items())


def _kind(column: Column) -> str:
    return str(column.dtype) if isinstance(column, np.ndarray) else "bytes"


@dataclass(frozen=True, slots=True)
class Run:
    """Rows sorted by (h, s); ``columns`` has the names of the layout.

    ``bounds``, ``stamps``, ``sieve_of``: see `times`, `written` and `sieve`, where they are known.
    """

    columns: Columns
    rows: int = field(default=-1)
    bounds: tuple[int, int] | None = field(default=None, repr=False, compare=False)
    stamps: tuple[int, int] | None = field(default=None, repr=False, compare=False)
    sieve_of: Sieve | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.rows < 0:
            object.__setattr__(self, "rows", len(self.columns["h"]))

    @property
    def times(self) -> tuple[int, int]:
        """No row has a timestamp outside of these two; only of rows by time, and only if there are any."""
        if self.bounds is None:
            s = self.columns["s"]
            object.__setattr__(self, "bounds", (int(s.min()), int(s.max())))
        assert self.bounds is not None
        return self.bounds

    @property
    def written(self) -> tuple[int, int]:
        """No row of a table was written before or after these two, deleted rows left out; (1, 0) if there is none."""
        if self.stamps is None:
            ts = self.columns["ts"][self.columns["gone"] == 0]
            object.__setattr__(self, "stamps", (int(ts.min()), int(ts.max())) if len(ts) else (1, 0))
        assert self.stamps is not None
        return self.stamps

    @property
    def sieve(self) -> Sieve:
        """Which hashes may be there, of these rows or more; only if there are any."""
        if self.sieve_of is None:
            object.__setattr__(self, "sieve_of", Sieve.of(self.columns["h"]))
        assert self.sieve_of is not None
        return self.sieve_of

    @property
    def lacks_keys(self) -> bool:
        """Whether a key is null, which none is."""
        return any(self.columns[name].null_count for name in ("key", "key2") if name in self.columns)

    def reaches(self, oldest: int, newest: int) -> bool:
        """Whether a row may have a timestamp between these two; only of rows by time."""
        first, last = self.times
        return first <= newest and last >= oldest

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def slice(self, start: int, stop: int) -> Run:
        if (start, stop) == (0, self.rows):
            return self
        return Run(cut_all(self.columns, start, stop), stop - start, self.bounds, None, self.sieve_of)

    def match(self, hashes: np.ndarray, keys: Column) -> tuple[np.ndarray, np.ndarray]:
        """Pairs (query, row) with equal keys, in order of the queries, then of the rows.

        ``hashes`` must be sorted; a query may find any number of rows (layouts with ``s``).
        """
        queries, rows = self.candidates(hashes)
        if not len(queries):
            return queries, rows
        others = None if _is_identity(queries, len(hashes)) else queries
        same = same_rows(self["key"], rows, keys, others)
        return (queries, rows) if same.all() else (queries[same], rows[same])

    def candidates(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pairs (query, row) with equal hashes.

        One search finds the first row of each; a second one is needed only if some hash has several rows.
        """
        h = self["h"]
        first = h.searchsorted(hashes, "left")
        if len(hashes) > _VERY_FEW and self.rows:
            queries = np.flatnonzero(h.take(first, mode="clip") == hashes)
            rows = first[queries]
            follows = rows < self.rows - 1
            if not (follows & (h.take(rows + 1, mode="clip") == h[rows])).any():
                return queries, rows
        return expand(first, h.searchsorted(hashes, "right"))

    def match_range(
        self, hashes: np.ndarray, keys: Column, low: np.ndarray, high: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Pairs (query, row) with equal keys and ``low <= s <= high``, one bound for each query."""
        h, s = self["h"], self["s"]
        first, last = h.searchsorted(hashes, "left"), h.searchsorted(hashes, "right")
        start = bisect(s, first, last, low, right=False)
        queries, rows = expand(start, bisect(s, start, last, high, right=True))
        if not len(queries):
            return queries, rows
        same = same_rows(self["key"], rows, keys, queries)
        return queries[same], rows[same]


def expand(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every (i, row) with ``first[i] <= row < last[i]``, ordered by i, then row."""
    if len(first) == 1:
        rows = np.arange(first[0], last[0])
        return np.zeros(len(rows), np.int64), rows
    counts = np.maximum(last - first, 0)
    total = int(counts.sum())
    if total == len(counts) and (counts == 1).all():
        return np.arange(total), first
    queries = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return queries, first[queries] + within


def places_of(rows: np.ndarray, count: int) -> np.ndarray:
    """Where each of the numbers below ``count`` stands in ``rows``; −1 for those that do not. Of an order its inverse.

    >>> places_of(np.array([2, 0]), 3).tolist()
    [1, -1, 0]
    """
    places = np.full(count, -1)
    places[rows] = np.arange(len(rows))
    return places


def begins_of(*columns: np.ndarray) -> np.ndarray:
    """Which rows begin a group: the first one, and each that differs from the row before in one of the columns.

    >>> begins_of(np.array([1, 1, 2, 2]), np.array([5, 5, 5, 6])).tolist()
    [True, False, True, True]
    """
    begins = np.zeros(len(columns[0]), bool)
    begins[:1] = True
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    return begins


def bisect(
    s: np.ndarray, first: np.ndarray, last: np.ndarray, bound: np.ndarray, *, right: bool
) -> np.ndarray:
    """For each i the first position in ``[first, last)`` of the sorted ``s`` that is not below the bound.

    ``right``: that is above the bound. All searches advance together, one halving at a time.
    """
    low, high = first, last
    for _ in range(int((last - first).max(initial=0)).bit_length()):
        middle = (low + high) >> 1
        probe = s.take(middle, mode="clip")  # where low has met high, beyond the end perhaps
        below = (probe <= bound if right else probe < bound) & (low < high)
        low, high = np.where(below, middle + 1, low), np.where(below, high, middle)
    return low


def sort_rows(columns: Columns) -> Run:
    """A run out of rows in any order; equal (h, s) keep their order."""
    h = columns["h"]
    if len(h) == 1 or in_order(columns):
        return Run(dict(columns), len(h))
    return Run(take_all(columns, sorted_order(columns)))


def in_order(columns: Columns) -> bool:
    """Whether rows are sorted already: a check costs less than sorting them."""
    h, s = columns["h"], columns.get("s")
    if not (h[1:] >= h[:-1]).all():
        return False
    return s is None or bool(((h[1:] > h[:-1]) | (s[1:] >= s[:-1])).all())


def stable_order(h: np.ndarray) -> np.ndarray:
    """The rows in order of the hashes ``h``, equal ones in the order they had.

    Numbers made of the upper bits of the hash and the number of the row are sorted, which is many times faster than
    sorting rows by their hashes. Rows whose hashes differ in the lower bits alone are put right afterwards.
    """
    if len(h) <= _FEW:
        return np.argsort(h, kind="stable")
    bits = np.uint64((len(h) - 1).bit_length())
    below = (np.uint64(1) << bits) - np.uint64(1)
    mixed = (h & ~below) | np.arange(len(h), dtype=np.uint64)
    mixed.sort()
    order = (mixed & below).astype(np.int64)
    found = h[order]
    if (found[1:] >= found[:-1]).all():
        return order
    same = np.append(mixed[1:] >> bits == mixed[:-1] >> bits, False)
    places = np.flatnonzero(same | np.roll(same, 1))
    rows = order[places]
    order[places] = rows[np.lexsort((rows, h[rows]))]
    return order


def sorted_order(columns: Columns) -> np.ndarray:
    """The rows by (h, s), equal ones in the order they had."""
    h = columns["h"]
    if "s" not in columns:
        return stable_order(h)
    s = columns["s"]
    by_s = stable_order(s) if s.dtype == np.uint64 else np.argsort(s, kind="stable")
    return np.asarray(by_s[stable_order(h[by_s])])


def merge(runs: list[Run], *, drop_gone: bool) -> Run:
    """One run out of several, newest first: of rows with the same identity the newest stays.

    ``drop_gone``: there is no older run, so deleted rows need not be remembered. Nor need a deleted record, where it
    meets its row: nothing replaces a record, so no older run has it. Rows are copied once it is known which stay:
    where updates replace most of what is merged, those are few.
    """
    columns = concat_all([run.columns for run in runs])
    order = None if in_order(columns) else sorted_order(columns)
    in_pairs = "n" in columns and not drop_gone and bool(columns["gone"].any())
    keep = newest(columns, order, in_pairs=in_pairs)
    rows = np.flatnonzero(keep) if order is None else order[keep]
    if drop_gone:
        rows = rows[columns["gone"][rows] == 0]
    if order is None and len(rows) == len(keep):
        return Run(columns)
    return Run(take_all(columns, rows))


def newest(columns: Columns, order: np.ndarray | None = None, *, in_pairs: bool = False) -> np.ndarray:
    """For rows sorted by (h, s) with newer ones first: which are the first of their identity.

    ``order``: the order in which rows are sorted so; None: their own. ``in_pairs``: but for deleted ones beside the
    row that they delete.
    """
    h = columns["h"] if order is None else columns["h"][order]
    keep = np.ones(len(h), bool)
    if len(keep) == 1:
        return keep
    tied = h[1:] == h[:-1]
    if "s" in columns:
        s = columns["s"] if order is None else columns["s"][order]
        tied &= s[1:] == s[:-1]
    if not tied.any():
        return keep
    if _are_one(columns, order, np.flatnonzero(tied)):
        keep[1:] = ~tied
        return keep
    # Rows tied with a neighbour: number their identities exactly, keep the first of each.
    places = np.flatnonzero(np.append(tied, False) | np.insert(tied, 0, False))
    rows = places if order is None else order[places]
    names = [name for name in ("h", "s", "key", "key2", "n") if name in columns]
    identity = [take(columns[name], rows) for name in names]
    keep[places] = False
    number = identities(identity)
    keep[places[np.unique(number, return_index=True)[1]]] = True
    if in_pairs:
        gone = columns["gone"][rows] != 0
        keep[places[gone & np.isin(number, number[~gone])]] = False
    return keep


def _are_one(columns: Columns, order: np.ndarray | None, tied: np.ndarray) -> bool:
    """Whether rows with equal (h, s) as their neighbour's are the same as that, which is so unless hashes collide."""
    keys = [columns[name] for name in ("key", "key2") if name in columns]
    if "n" in columns or any(key.null_count for key in keys):
        return False
    one, other = (tied, tied + 1) if order is None else (order[tied], order[tied + 1])
    return all(same_rows(key, one, key, other).all() for key in keys)


def identities(columns: list[Column]) -> np.ndarray:
    """A number for each row, equal where all columns are equal (bytes compared exactly)."""
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if isinstance(column, np.ndarray):
            codes = np.unique(column, return_inverse=True)[1]
        else:
            codes = np.asarray(column.dictionary_encode(null_encoding="encode").indices)
        number = np.unique(number * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)[1]
    return number


def is_sorted(order: np.ndarray) -> bool:
    """Whether a permutation leaves everything where it is."""
    return bool((order[1:] > order[:-1]).all())


def _is_identity(queries: np.ndarray, count: int) -> bool:
    return len(queries) == count and (count == 0 or (queries[0] == 0 and is_sorted(queries)))
