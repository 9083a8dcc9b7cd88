"""Which windows a record belongs to, which of them are closed for it, and which close in a batch. Times in ms."""

from __future__ import annotations

import numpy as np

from crossstream.graph.nodes import WindowSpec
from crossstream.serdes.windowed import NO_END
from crossstream.storage.sorted_run import expand


def ends_of(windows: WindowSpec, starts: np.ndarray) -> np.ndarray:
    """Where windows end that begin at ``starts``."""
    if windows.kind == "unlimited":
        return np.full(len(starts), NO_END)
    return starts + windows.size


def windows_of(windows: WindowSpec, ts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each pair of a record and a time window that it belongs to: the row of the record, the start of the window.

    Starts are multiples of ``advance``, and none is negative. In order of the rows, then of the starts.

    >>> windows_of(WindowSpec("time", 10, 5, 0), np.array([12, 3]))
    (array([0, 0, 1]), array([ 5, 10,  0]))
    """
    if windows.kind == "unlimited":
        rows = np.flatnonzero(ts >= windows.size)
        return rows, np.full(len(rows), windows.size)
    first = np.maximum(0, ts - windows.size + windows.advance) // windows.advance
    rows, number = expand(first, ts // windows.advance + 1)
    return rows, number * windows.advance


def is_open(windows: WindowSpec, starts: np.ndarray, stream_time: np.ndarray | int) -> np.ndarray:
    """Whether windows still take records at a stream time: their end is later than it, less the grace period."""
    return np.asarray(ends_of(windows, starts) > stream_time - windows.grace)


def first_open(windows: WindowSpec, stream_time: int) -> int:
    """The smallest position of a window that is open at a stream time: its start, of a session its end."""
    if windows.kind == "unlimited":
        return 0
    return stream_time - windows.grace - windows.size + (1 if windows.kind == "time" else 0)


def closing_time(windows: WindowSpec, positions: np.ndarray) -> np.ndarray:
    """The stream time at which windows close. ``positions``: their starts, of sessions their ends.

    The end of a time window does not belong to it; that of a sliding window or, with the gap, of a session does.
    """
    if windows.kind == "unlimited":
        return np.full(len(positions), NO_END)
    return positions + (windows.size + windows.grace + (0 if windows.kind == "time" else 1))


def retention_of(windows: WindowSpec, asked: int | None) -> int | None:
    """How long (ms) after its position the store keeps a window, at least; None: for good. Source: KIP-328."""
    if windows.kind == "unlimited":
        return None
    sizes = 2 if windows.kind == "sliding" else 1
    return max(asked or 0, sizes * windows.size + windows.grace)
