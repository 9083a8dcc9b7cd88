"""What a commit changes by key: from the rows that it took away and the rows that it put there.

> table(V) = table(V - 1) without the keys of ``deleted``, with the rows of ``upserted``.

A key that was deleted and inserted in one commit has its new row. A row that was only moved to another file is no
change. Two new rows of one key are no table, and refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.columns.hashing import hash_keys
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.graph.lake import SHARES, LakeTable
from crossstream.lakehouse.columns import conform
from crossstream.serdes.plain_columns import PlainRows

_SHARE, _HASH = "share", "hash"


@dataclass(frozen=True, slots=True)
class Netting:
    """What commits change, for some shares: those rows whose key is of one. ``rows``: keys and values of the table."""

    table: LakeTable
    rows: PlainRows
    shares: frozenset[int]

    def changes(
        self, version: int, removed: Iterable[pa.RecordBatch], added: Iterable[pa.RecordBatch]
    ) -> pl.DataFrame:
        """Columns ``share``, ``key``, ``value``: deletes, which have no value, before upserts, in order of the files.

        Raises `SourceError` CS-614 for two new rows of one key.
        """
        new = self._collected(version, added)
        old = self._collected(version, removed)
        found = _netted(old, new) if _is_unique(new) and _is_unique(old) else None
        if found is None:
            self._check_keys(new, version)
            found = self._compared(old, new)
        return found.drop(_HASH)

    def _compared(self, old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
        """As `_netted`, also with several old rows of a key, rows without one, or keys of one hash."""
        if not old.height:
            return new
        upserts = new.join(old, on=["key", "value"], how="anti", nulls_equal=True, maintain_order="left")
        gone = old.filter(pl.col("key").is_not_null()).join(new, on="key", how="anti", maintain_order="left")
        deletes = gone.unique("key", keep="first", maintain_order=True).with_columns(
            value=pl.lit(None, dtype=new.schema["value"])
        )
        return pl.concat([deletes, upserts])

    def parts(self, version: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pl.DataFrame]:
        """The rows of the shares, batch by batch."""
        for batch in batches:
            rows = conform(self.table, batch, version)
            keys = self.rows.key_wire(rows)
            hashes = hash_keys(keys)
            share = (hashes % np.uint64(SHARES)).astype(np.int64)
            if len(self.shares) < SHARES:
                mine = np.isin(share, list(self.shares))
                if not mine.any():
                    continue
                rows, keys = rows.filter(pa.array(mine)), keys.filter(pa.array(mine))
                share, hashes = share[mine], hashes[mine]
            values = self.rows.value_series(rows)
            yield pl.DataFrame({_SHARE: share, _HASH: hashes, "key": pl.Series(keys), "value": values})

    def _collected(self, version: int, batches: Iterable[pa.RecordBatch]) -> pl.DataFrame:
        types = {_SHARE: pl.Int64(), _HASH: pl.UInt64(), "key": pl.Binary(), "value": self.rows.value.dtype}
        empty = pl.DataFrame(schema=types)
        return pl.concat([empty, *self.parts(version, batches)])

    def _check_keys(self, new: pl.DataFrame, version: int) -> None:
        twice = new.filter(pl.col("key").is_not_null() & pl.col("key").is_duplicated())
        if twice.height:
            raise same_key(self.table, self.rows, version, twice["key"][0])


def _is_unique(rows: pl.DataFrame) -> bool:
    """Whether each row has a key of its own, as their hashes say."""
    return rows[_HASH].n_unique() == rows.height


def _netted(old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame | None:
    """The changes, by hashes that no two rows of a side share; None: two keys have one hash."""
    places = new.join(old.select(_HASH).with_row_index("place"), on=_HASH, how="left", maintain_order="left")[
        "place"
    ]
    is_old = places.is_not_null()
    before = old[["key", "value"]][places.fill_null(0)] if old.height else new[["key", "value"]]
    if not (new["key"].eq_missing(before["key"]) | ~is_old).all():
        return None
    upserts = new.filter(~(is_old & new["value"].eq_missing(before["value"])))
    gone = np.ones(old.height, bool)
    gone[places.drop_nulls().to_numpy()] = False
    deletes = old.filter(pl.Series(gone, dtype=pl.Boolean()) & old["key"].is_not_null())
    return pl.concat([deletes.with_columns(value=pl.lit(None, dtype=new.schema["value"])), upserts])


def same_key(table: LakeTable, rows: PlainRows, version: int, key: bytes) -> CrossStreamError:
    """The refusal (CS-614) of two rows with one key."""
    assert rows.key is not None
    shown = rows.key.deserialize(key)
    names = ", ".join(table.keys)
    what = f"version {version} of {table.table} has several rows with the same key: {names} = {shown!r}"
    return refuse("CS-614", what, topic=table.topic, version=version)
