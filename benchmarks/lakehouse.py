"""Core-seconds of a batch into Delta and Iceberg tables in partitions: `python -m benchmarks.lakehouse`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from crossstream.columns.flat import DELETED
from crossstream.lakehouse.delta import DeltaSink
from crossstream.lakehouse.iceberg import IcebergSink
from crossstream.once import BatchMark

ROWS, PARTITIONS, TOUCHED, ROUNDS = 1_000_000, 20, 2, 3
CHANGES = {"delta": 20_000, "iceberg": 100_000}


def rows(ids: Any, text: str) -> pa.Table:
    names = {"key": [f"k{i:08}" for i in ids], "part": [f"p{i % PARTITIONS:03}" for i in ids]}
    values = np.random.default_rng(1).random(len(ids))
    return pa.table({**names, "v": values, "w": [f"{text} {i} of the row" for i in ids]})


def changes(form: str, keys: str) -> pa.Table:
    ids = np.random.default_rng(1).permutation(ROWS)
    ids = ids[ids % PARTITIONS < TOUCHED][: CHANGES[form]]
    made = rows(ids, "new").append_column(DELETED, pa.array([bool(i % 10 == 0) for i in ids]))
    return made.replace_schema_metadata({"crossstream.key": keys})


def sink_of(form: str, root: Path) -> Any:
    """A table with all rows, and what writes it."""
    table = str(root / "table") if form == "delta" else "shop.table"
    catalog = {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/lake"}
    node: Any = SimpleNamespace(table=table, options={} if form == "delta" else catalog)
    data = rows(np.arange(ROWS), "old")
    if form == "delta":
        write_deltalake(table, data, partition_by=["part"])
        assert len(DeltaTable(table).file_uris()) == PARTITIONS
        return DeltaSink(node)
    opened = load_catalog("default", **catalog)
    opened.create_namespace("shop")
    made = opened.create_table(table, data.schema)
    with made.update_spec() as update:
        update.add_identity("part")
    made.append(data)
    opened.close()
    return IcebergSink(node)


def core_seconds(act: Callable[[], object]) -> float:
    begun = time.process_time()
    act()
    return time.process_time() - begun


def main() -> None:
    for form in CHANGES:
        for keys in ("key", "part\nkey"):
            found = []
            for _ in range(ROUNDS):
                with tempfile.TemporaryDirectory() as folder:
                    sink, batch = sink_of(form, Path(folder)), changes(form, keys)
                    sink.open()
                    mark = BatchMark("app", "sink", "state", 0)
                    found.append(core_seconds(lambda: sink.write(batch, mark)))  # noqa: B023
                    sink.close()
            print(f"{form}, key {keys.split()}: {min(found):.2f} core-seconds", flush=True)


if __name__ == "__main__":
    main()
