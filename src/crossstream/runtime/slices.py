"""What arrives in a state partition, in slices of the key space.

A right row with two million subscribers makes two million results in one batch. Where these are kept or joined
further they meet again in the partitions of their own keys, and a task that took them all at once would hold all
of them several times over. So a task whose parcels are large takes them by ranges of the key hash, one after
the other. Steps that look at single keys give the same rows in the same order: they answer in order of the hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from crossstream.columns.changes import Changes, concat_changes
from crossstream.planning.plan import Exchange
from crossstream.runtime.shuffle_codec import size_of, unpack

WHOLE_BYTES = 16 << 20
"""Parcels of up to that size are taken all at once."""
SLICE_BYTES = 8 << 20
"""About how much of larger ones is taken at a time."""

Arrived = dict[int, Changes]
"""Changes by the number of the exchange that they come through."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """The rows of one parcel, and the slice that each belongs to."""

    exchange: int
    changes: Changes
    slices: np.ndarray


def whole(blobs: dict[int, list[bytes]], exchanges: Sequence[Exchange]) -> Iterator[Arrived]:
    """Everything at once. ``blobs``: by number of the exchange; they are taken out."""
    yield {number: _unpacked(blobs.pop(number), exchanges[number]) for number in sorted(blobs)}


def in_slices(blobs: dict[int, list[bytes]], exchanges: Sequence[Exchange], bits: int) -> Iterator[Arrived]:
    """Likewise in slices with ascending hashes, all rows of a key in one; in one slice if it is not too large."""
    size = sum(map(size_of, chain.from_iterable(blobs.values())))
    if size <= WHOLE_BYTES:
        yield from whole(blobs, exchanges)
        return
    opened = [
        (number, _unpacked([blob], exchanges[number]))
        for number in sorted(blobs)
        for blob in blobs.pop(number)
    ]
    hashes = [changes.hashes(bits) for _, changes in opened]
    bounds = _bounds(hashes, -(-size // SLICE_BYTES))
    pieces = [
        _Piece(number, changes, np.searchsorted(bounds, h, "right").astype(np.uint16))
        for (number, changes), h in zip(opened, hashes, strict=True)
    ]
    del opened, hashes
    for place in range(len(bounds) + 1):
        yield _slice(pieces, place)
        pieces = [piece for piece in pieces if piece.slices.max() > place]


def _unpacked(blobs: list[bytes], exchange: Exchange) -> Changes:
    return unpack(blobs, exchange.key, exchange.value)


def _bounds(hashes: Sequence[np.ndarray], count: int) -> np.ndarray:
    """The least hash of each slice but the first, where there are about ``count`` of one size."""
    ordered = np.sort(np.concatenate(hashes))
    bounds = np.unique(ordered[np.arange(1, count) * len(ordered) // count])
    return np.asarray(bounds[bounds > ordered[0]])


def _slice(pieces: Sequence[_Piece], place: int) -> Arrived:
    found: dict[int, list[Changes]] = {}
    for piece in pieces:
        rows = np.flatnonzero(piece.slices == place)
        if len(rows):
            found.setdefault(piece.exchange, []).append(piece.changes.take(rows))
    return {number: concat_changes(parts) for number, parts in found.items()}
