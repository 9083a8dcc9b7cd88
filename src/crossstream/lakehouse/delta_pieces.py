"""The files of a Delta table and their row groups as pieces, with the least and greatest values of columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crossstream.lakehouse.delta_log import Action
from crossstream.lakehouse.versions import Piece

Place = tuple[Action, int | None]
"""A file, and a row group of it; None: all of it."""


def file_pieces(found: pa.Table, files: Sequence[Action], numbers: Sequence[str]) -> list[Piece]:
    """The files as pieces. ``found``: what delta-rs says of each, by its path."""
    names = set(found.column_names)
    paths = found["path"].to_pylist()
    lows, highs = (
        dict(zip(paths, found[name].to_pylist(), strict=True)) if name in names else {}
        for name in ("min", "max")
    )
    return [
        Piece(
            (file, None),
            file.rows,
            _bounds(lows.get(file.path), file, numbers),
            _bounds(highs.get(file.path), file, numbers),
        )
        for file in files
    ]


def group_pieces(parquet: pq.ParquetFile, piece: Piece, numbers: Sequence[str]) -> Iterator[Piece]:
    """The row groups of a file as pieces, by its footer."""
    file, _ = piece.place
    schema = parquet.schema_arrow
    places = {name: schema.get_field_index(name) for name in numbers}
    flat = {parquet.schema.column(number).path: number for number in range(len(parquet.schema.names))}
    for group in range(parquet.num_row_groups):
        found = parquet.metadata.row_group(group)
        low, high = dict(piece.low), dict(piece.high)
        for name in numbers:
            if places[name] >= 0 and name in flat:
                known = found.column(flat[name]).statistics
                if known is not None and known.has_min_max:
                    low[name], high[name] = int(known.min), int(known.max)
        yield Piece((file, group), found.num_rows, low, high)


def _bounds(known: Mapping[str, Any] | None, file: Action, numbers: Sequence[str]) -> dict[str, int]:
    """Of a column of partitions the value that a file has of it."""
    found: dict[str, int] = {}
    for name in numbers:
        value = file.partitions.get(name, (known or {}).get(name))
        if value is not None and str(value).lstrip("-").isdigit():
            found[name] = int(value)
    return found
