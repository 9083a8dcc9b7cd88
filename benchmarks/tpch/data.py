"""The tables of TPC-H, and changes of them: a snapshot first, then what a wholesaler's day does to it.

The rows are those of the reference's generator (tpchgen-cli, a port of dbgen that gives the same data), in records of
JSON with all columns. Money is in whole cents, discounts and taxes in whole per cent, so a revenue, price times (100 -
discount), is a whole number of ten thousandths, and every side has to give it exactly. Dates are text, as in ISO 8601.

    orders    8 bytes: 7       {"o_orderkey":7,"o_custkey":3913,"o_orderstatus":"O","o_totalprice":25200413, …}
    lineitem  b"7-2"           {"l_orderkey":7,"l_partkey":14518,"l_suppkey":1023,"l_linenumber":2,"l_quantity":9, …}
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from benchmarks.data import START_MS, Message
from crossstream.machine import cache_directory

TABLES: Mapping[str, tuple[str, ...]] = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
"""The tables and the columns of their primary keys, in the order in which the snapshot is sent."""

PER_CENT = ("l_discount", "l_tax")
WHOLE = ("l_quantity",)
CHUNK = 20_000
Rows = Mapping[str, pl.DataFrame]
"""Rows of each table."""


def generated(scale_factor: float) -> Rows:
    """All rows of the tables, by their keys. The generator runs once for each scale factor; its files are kept."""
    folder = cache_directory() / f"tpch-{scale_factor:g}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(prefix=".tpch-", dir=folder.parent) as scratch:
            command = [generator(), "parquet", "-s", f"{scale_factor:g}", "-q", "-T", ",".join(TABLES)]
            subprocess.run([*command, "-o", f"{scratch}/made"], check=True)
            Path(scratch, "made").replace(folder)
    return {name: whole_numbers(pl.read_parquet(folder / f"{name}.parquet")) for name in TABLES}


def generator() -> str:
    """The program tpchgen-cli, of this environment or of the path. Raises `RuntimeError`."""
    found = shutil.which("tpchgen-cli", path=Path(sys.executable).parent) or shutil.which("tpchgen-cli")
    if found is None:
        raise RuntimeError('there is no tpchgen-cli: pip install -e ".[bench]"')
    return found


def whole_numbers(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows without Decimals and dates."""
    columns = []
    for name, kind in rows.schema.items():
        column = pl.col(name)
        if isinstance(kind, pl.Decimal):
            column = (column * (1 if name in WHOLE else 100)).cast(pl.Int64)
        elif kind == pl.Date:
            column = column.dt.to_string("iso")
        elif kind.is_integer():
            column = column.cast(pl.Int64)
        columns.append(column)
    return rows.select(columns)


def key_of(table: str) -> pl.Expr:
    """The key of a record: a number, or that of the order and that of the line, as text."""
    columns = TABLES[table]
    return pl.col(columns[0]) if len(columns) == 1 else pl.format("{}-{}", *columns)


@dataclass(frozen=True, slots=True)
class Change:
    """Rows of a table that are new or changed, and rows (``gone``) that are deleted; ``at``: its place among all."""

    table: str
    rows: pl.DataFrame
    """The columns of the table, ``at`` and ``gone``."""

    def messages(self, start_ms: int = START_MS) -> Iterator[list[Message]]:
        """As records, one a ms, in order."""
        names = [name for name in self.rows.columns if name not in ("at", "gone")]
        value = pl.when(~pl.col("gone")).then(pl.struct(names).struct.json_encode())
        for part in self.rows.sort("at").iter_slices(CHUNK):
            yield [
                (key_bytes(key), None if text is None else text.encode(), start_ms + at)
                for key, text, at in part.select(key_of(self.table), value.alias("value"), "at").iter_rows()
            ]


def key_bytes(key: int | str) -> bytes:
    return key.to_bytes(8, "big") if isinstance(key, int) else key.encode()


def snapshot(rows: Rows) -> list[Change]:
    """All rows as they are first."""
    whole = []
    for name, table in rows.items():
        numbered = table.with_row_index("at").with_columns(pl.col("at").cast(pl.Int64), gone=pl.lit(False))
        whole.append(Change(name, numbered))
    return whole


def applied(rows: Rows, changes: Sequence[Change]) -> Rows:
    """The tables after these changes."""
    after = dict(rows)
    for change in changes:
        keys = list(TABLES[change.table])
        last = change.rows.sort("at").unique(keys, keep="last", maintain_order=True)
        kept = after[change.table].join(last, on=keys, how="anti")
        new = last.filter(~pl.col("gone")).select(kept.columns)
        after[change.table] = pl.concat([kept, new])
    return after
