"""Seconds and the driver's memory of one large batch for `for_each_batch`: `python -m benchmarks.batch_frames`.

Each way runs in a process of its own, whose peak counts: with the records in the driver, and with ``parallel=True``.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

import crossstream as cs
from crossstream import serdes
from crossstream.filetopics import FileTopics

ROWS, PARTITIONS, AT_A_TIME = 1_000_000, 4, 100_000
VALUE = serdes.json({"customer": pl.String, "amount": pl.Float64, "note": pl.String})
WAYS = ("driver", "parallel")


def make(folder: Path) -> None:
    """A topic of JSON of about 100 bytes."""
    topics = FileTopics(str(folder / "topics"), durable=False)
    topics.log().create_topic("payments", PARTITIONS)
    writer = topics.writer()
    for first in range(0, ROWS, AT_A_TIME):
        number = pl.int_range(first, first + AT_A_TIME, eager=True).cast(pl.String)
        value = '{"customer":"c' + number + '","amount":' + number + f'.5,"note":"{"x" * 50}"}}'
        texts = [column.to_arrow().cast(pa.large_string()) for column in ("p" + number, value)]
        columns = [text.cast(pa.large_binary()) for text in texts]
        columns += [pa.array([0] * AT_A_TIME, pa.int64()), pa.nulls(AT_A_TIME, pa.large_binary())]
        names = ["key", "value", "timestamp", "headers"]
        writer.write("payments", pa.RecordBatch.from_arrays(columns, names=names))
    writer.close()


def peak() -> int:
    """Of this process, in MiB. What made it counts as well, so that does nothing else."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def run(folder: Path, way: str) -> None:
    """One batch, written as Parquet."""
    calls: list[float] = []

    def write(frame: Any, batch: int) -> None:
        begun = time.perf_counter()
        frame.write.mode("overwrite").parquet(str(folder / way / "out"))
        calls.append(time.perf_counter() - begun)

    builder = cs.StreamsBuilder()
    payments = builder.stream("payments", cs.Consumed(key=serdes.string(), value=VALUE))
    payments.for_each_batch(write, parallel=way == "parallel")
    config = cs.StreamsConfig(
        application_id=way,
        topics_dir=folder / "topics",
        state_dir=folder / way / "state",
        max_records_per_batch=ROWS,
        spark={"spark.driver.memory": "4g"},
    )
    with cs.SparkStreams(builder.build(), config) as app:
        app.process_available()  # starts Spark, and takes the batch
        progress = app.progress
    assert (progress.batch, progress.rows) == (0, ROWS)
    spent = sum(progress.phases[phase] for phase in ("run", "for_each_batch")) / 1000
    print(
        f"{way}: {spent:.1f} s, {calls[0]:.1f} s of them in the function; driver's peak {peak()} MiB",
        flush=True,
    )


def main() -> None:
    if len(sys.argv) > 1:
        folder, way = Path(sys.argv[1]), sys.argv[2]
        make(folder) if way == "topic" else run(folder, way)
        return
    with tempfile.TemporaryDirectory() as place:
        for way in ("topic", *WAYS):
            subprocess.run([sys.executable, "-m", "benchmarks.batch_frames", place, way], check=True)


if __name__ == "__main__":
    main()
