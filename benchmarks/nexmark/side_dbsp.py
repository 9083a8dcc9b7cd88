"""dbsp as sides of Nexmark, in memory: see `benchmarks.peers.dbsp`.

`dbsp-inline` and `dbsp-shared` get decoded rows and give changed rows; the clock of `dbsp-json` runs from the first
line that is decoded to the last result that is encoded.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.nexmark.sides import Measured
from benchmarks.nexmark.topics import TABLES
from benchmarks.peers import dbsp
from benchmarks.peers.dbsp import available

__all__ = ["QUERIES", "available", "measure"]

QUERIES = frozenset({"q3", "q4", "q5", "q8", "q9", "q20"})


def measure(name: str, query: str, folder: Path) -> Measured:
    """A run of the side ``name`` on the events in a folder of `benchmarks.nexmark.write`."""
    results = folder / f"{name}-{query}"
    files = {table: folder / f"{table}.json" for table in TABLES}
    took = dbsp.measure(query, name, files, results, keys=False)
    return Measured(took.seconds, took.core_seconds, results)
