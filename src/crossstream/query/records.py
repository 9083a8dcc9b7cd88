"""The records that a store by time holds: those that have not expired and have not left it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from crossstream.state.columns import Column, Columns, concat_all, take_all
from crossstream.state.run import Run, merge
from crossstream.state.store import Version

Records = dict[str, Any]
"""Columns key, value, ts."""


def records_of(version: Version, hashes: np.ndarray, key: Column, low: int, high: int) -> Records:
    """The records of one key from ``low`` to ``high``, by timestamp, then arrival."""
    bounds = np.array([max(low, version.horizon)]), np.array([high])
    parts: list[Columns] = []
    for run in version.view().pieces():
        _, rows = run.match_range(hashes, key, *bounds)
        parts.append(take_all(run.columns, rows))
    found = merge([Run(part) for part in parts], drop_gone=True)
    return _named(found.columns, np.lexsort((found["n"], found["s"])))


def all_records(versions: Sequence[Version]) -> Records:
    """All records of a store, by the bytes of the key, then timestamp, then arrival."""
    live = [version.view().live().columns for version in versions]
    columns = concat_all(
        [take_all(c, np.flatnonzero(c["s"] >= v.horizon)) for c, v in zip(live, versions, strict=True)]
    )
    keys = pl.Series("key", columns["key"])
    order = pl.DataFrame({"key": keys, "s": columns["s"], "n": columns["n"]}).select(
        pl.arg_sort_by("key", "s", "n")
    )
    return _named(columns, order.to_series().to_numpy().astype(np.int64))


def _named(columns: Columns, order: np.ndarray) -> Records:
    rows = take_all(columns, order)
    return {"key": rows["key"], "value": rows["value"], "ts": rows["s"]}
