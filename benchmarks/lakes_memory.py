"""How much the memory of crossstream's driver grows while it takes a snapshot of a Delta table of 5,000,000 rows.

The table goes into a store. A small table is taken before, in the same session: what is loaded at the first use does
not count. `Peaks` is measured in the driver itself; the Python workers, which read the files, are not part of it.
"""

from __future__ import annotations

import gc
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from deltalake import write_deltalake

from benchmarks.lakes_data import order_rows

ROWS, PART = 5_000_000, 500_000
SMALL = 20_000
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Peaks:
    """MiB of the driver since the last look: its Python resident, now and at most, and the JVM's heap likewise.

    ``heap``: what is left after a collection; ``heap_peak``: with garbage that was not collected yet.
    """

    python: float
    python_peak: float
    heap: float
    heap_peak: float

    @classmethod
    def look(cls, session: Any) -> Peaks:
        """Of this process and its JVM; the peaks start again."""
        gc.collect()
        found = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        python, peak = (int(found[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts at what is resident now
        factory = session._jvm.java.lang.management.ManagementFactory
        pools = [
            pool for pool in factory.getMemoryPoolMXBeans() if pool.getType().toString() == "Heap memory"
        ]
        heap_peak = sum(pool.getPeakUsage().getUsed() for pool in pools) / MIB
        memory = factory.getMemoryMXBean()
        memory.gc()
        heap = memory.getHeapMemoryUsage().getUsed() / MIB
        for pool in pools:
            pool.resetPeakUsage()
        return cls(python, peak, heap, heap_peak)


def measure(folder: Path, scale: float) -> None:
    from benchmarks.lakes_sides import DELTA, Side

    rows = max(PART, int(ROWS * scale) // PART * PART)
    tables = {"small": folder / f"orders-{SMALL}", "large": folder / f"orders-{rows}"}
    for table, count in zip(tables.values(), (SMALL, rows), strict=True):
        if not table.exists():
            fill(table, count)
    looks = {}
    with (
        tempfile.TemporaryDirectory(prefix="crossstream-bench-") as scratch,
        Side(DELTA, None, Path(scratch)) as side,
    ):
        for name, table in tables.items():
            side.open(name, {"orders": str(table)})
            seconds = side.go()
            looks[name] = side.look()
            side.close()
    before, after = (looks[name] for name in tables)
    figure = {"figure": f"MiB of the driver, snapshot of {rows:,} rows", "seconds": round(seconds, 1)}
    figure["grows by, Python resident"] = round(after["python_peak"] - before["python"], 1)
    figure["grows by, JVM heap after a collection"] = round(after["heap"] - before["heap"], 1)
    figure |= {f"{name} {part}": round(value) for name, look in looks.items() for part, value in look.items()}
    print(json.dumps(figure), flush=True)


def fill(table: Path, rows: int) -> None:
    """A commit for each part."""
    rng = np.random.default_rng(1)
    made = table.with_suffix(".made")
    shutil.rmtree(made, ignore_errors=True)
    for start in range(0, rows, PART):
        ids = np.arange(start, min(rows, start + PART))
        part = order_rows(ids, rng.integers(0, 100_000, len(ids)), rng)
        write_deltalake(str(made), part.to_arrow(), mode="append", target_file_size=16_000_000)
    made.rename(table)
