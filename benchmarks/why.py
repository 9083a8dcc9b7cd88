"""How long `why` takes for a row of a large table, and for a row that was made of many records.

python -m benchmarks.why                        # 1,000,000 products, 10,000 merchants; needs Java, some minutes
python -m benchmarks.why --rows 100000

Products are joined with their merchants, and counted by merchant in a re-keyed stream: 1,000 records make the count of
the first one. Each question is asked once before, so that what is imported, and the files in memory, do not count.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import crossstream as cs
from crossstream.filetopics import FileTopics
from crossstream.records import PRODUCER_RECORDS

MANY = 1_000
"""Records of the first merchant."""


def build() -> cs.Topology:
    """Store "offers": the join. Stores "counts", "sums": of the views of merchants, by a built-in and by a function."""
    builder = cs.StreamsBuilder()
    merchants = builder.table("merchants")
    builder.table("products").join(merchants, foreign_key="merchant", store="offers")
    views = builder.stream("views").group_by("merchant", key=str)
    views.count(store="counts")
    views.aggregate(lambda: 0, lambda total, view: total + view["seconds"], store="sums", value=int)
    return builder.build()


def fill(folder: Path, rows: int) -> None:
    """Writes ``rows`` products, a hundredth of them as merchants, and 20 views for each of ``MANY``."""
    topics = FileTopics(str(folder), durable=False)
    merchants = max(1, rows // 100)
    numbers = np.arange(rows)
    of_products = [f'{{"merchant":"m{n % merchants}","price":{n % 97}}}' for n in numbers.tolist()]
    of_merchants = [f'{{"name":"Merchant {n}"}}' for n in range(merchants)]
    of_views = [f'{{"merchant":"m{n % 20}","seconds":{n % 7 + 1}}}' for n in range(20 * MANY)]
    for topic, letter, values in (
        ("merchants", "m", of_merchants),
        ("products", "p", of_products),
        ("views", "v", of_views),
    ):
        topics.log().create_topic(topic, 2)
        writer = topics.writer()
        for start in range(0, len(values), 100_000):
            part = values[start : start + 100_000]
            keys = [f"{letter}{n}".encode() for n in range(start, start + len(part))]
            columns: list[list[Any]] = [keys, [value.encode() for value in part]]
            columns += [[1_000 + n for n in range(start, start + len(part))], [None] * len(part)]
            arrays = [pa.array(one, kind) for one, kind in zip(columns, PRODUCER_RECORDS.types, strict=True)]
            writer.write(topic, pa.RecordBatch.from_arrays(arrays, schema=PRODUCER_RECORDS))
        writer.flush()
        writer.close()


def questions(rows: int) -> list[tuple[str, str, int]]:
    """Store, key, and the records that the answer has."""
    return [("offers", f"p{rows // 2}", 2), ("counts", "m0", MANY), ("sums", "m0", MANY)]


def timed(ask: Callable[[str, str], Any], store: str, key: str, times: int = 3) -> dict[str, Any]:
    """The best of several answers: seconds by the clock and of the processor."""
    found, clock, processor = ask(store, key), [], []
    for _ in range(times):
        began, used = time.perf_counter(), time.process_time()
        found = ask(store, key)
        clock.append(time.perf_counter() - began)
        processor.append(time.process_time() - used)
    return {
        "store": store,
        "records": len(found.records),
        "exact": found.exact,
        "seconds": round(min(clock), 2),
        "core_seconds": round(min(processor), 2),
    }


def config_of(folder: Path) -> cs.StreamsConfig:
    return cs.StreamsConfig(
        application_id="why",
        topics_dir=folder / "topics",
        state_dir=folder / "state",
        partitions=2,
        durable=False,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder / "topics", rows)
        with cs.SparkStreams(build(), config_of(folder)) as app:
            app.process_available()
        for store, key, _ in questions(rows):
            print(json.dumps(timed(app.why, store, key)))


if __name__ == "__main__":
    main()
