"""What must be true of a manifest and of a run file, besides their checksums (docs/spec/state-format.md)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crossstream.algebra.hashing import hash_keys, partition_of
from crossstream.state.manifest import Manifest, PieceRef
from crossstream.state.run import Layout, Run, newest
from crossstream.topology.plan import layout_of


def manifest_faults(manifest: Manifest, low: int, high: int) -> Iterator[str]:
    """What is wrong with a manifest whose rows must have hashes from ``low`` to below ``high``."""
    for number, slot in enumerate(manifest.slots):
        above = -1
        for piece in slot.pieces:
            where = f"rows {piece.start} to {piece.stop} of {piece.file}, in slot {number},"
            if not (0 <= piece.start < piece.stop and piece.low <= piece.high):
                yield f"{where} are none"
            if piece.low < above:
                yield f"{where} overlap the rows before them"
            if piece.low < low or piece.high >= high:
                yield f"{where} belong to another partition"
            above = piece.high


def piece_faults(run: Run, piece: PieceRef) -> Iterator[str]:
    """Whether a manifest says the truth about a piece of a run."""
    if piece.stop > run.rows:
        yield f"the manifest takes rows up to {piece.stop}, and there are {run.rows}"
    elif (int(run["h"][piece.start]), int(run["h"][piece.stop - 1])) != (piece.low, piece.high):
        yield f"the manifest has other hashes for rows {piece.start} to {piece.stop}"


def place_faults(run: Run, partition: int, partitions: int) -> Iterator[str]:
    """Whether rows, of a store where the second key decides, are in the right one of so many partitions."""
    if "s" not in run.columns:
        return  # which is told as columns of another kind
    elsewhere = int((partition_of(run["s"], partitions) != partition).sum())
    if elsewhere:
        yield f"{elsewhere} rows belong to another partition"


def run_faults(run: Run, kind: str) -> Iterator[str]:
    """What is wrong with the rows of a run of a store of this kind."""
    layout = layout_of(kind)
    if layout is None or Layout.found_in(kind, run.columns) != layout or tuple(run.columns) != layout.names:
        yield f"its columns are not those of a {kind} store"
        return
    if not _is_sorted(run):
        yield "its rows are not sorted"
    elif not newest(run.columns).all():
        yield "it has rows of one identity twice"
    for name in run.columns.keys() & {"key", "key2"}:
        if run[name].null_count:
            yield f"the column {name} has nulls"
    for name, source in _hashed(layout):
        if not np.array_equal(run[name], hash_keys(run[source])):
            yield f"the column {name} is not the hash of the column {source}"
    if (run["gone"] > 1).any():
        yield "the column gone has other values than 0 and 1"


def _is_sorted(run: Run) -> bool:
    h = run["h"]
    ordered = h[1:] >= h[:-1]
    if "s" in run.columns:
        ordered &= (h[1:] > h[:-1]) | (run["s"][1:] >= run["s"][:-1])
    return bool(ordered.all())


def _hashed(layout: Layout) -> list[tuple[str, str]]:
    """The columns of hashes, and the column each is made of."""
    return [("h", "key"), ("s", "key2")] if layout.second_key and layout.sort == "uint64" else [("h", "key")]
