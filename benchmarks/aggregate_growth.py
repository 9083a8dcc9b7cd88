"""What an update of a group costs with few and with many groups, and records a second through a processor.

python -m benchmarks.aggregate_growth            # in this process, with the test driver; some minutes, some GB
python -m benchmarks.aggregate_growth --spark    # as users run it: Spark, file topics, JSON

Groups are counted (and in the test driver summed). After the first record of each group, records of random groups come
in batches of 20,000.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import crossstream as cs
from benchmarks.aggregate_app import OursAggregated
from benchmarks.generate import Topics
from benchmarks.state import append, order_columns, wait_for_rows
from crossstream import serdes

TEXT, NUMBER = serdes.string(), serdes.int64()
BATCH, BATCHES, FILL = 20_000, 30, 500_000


def updates(groups: int, seed: int = 1) -> float:
    """The median of the processor time of a batch, in seconds."""
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=NUMBER, value=NUMBER))
    stream.group_by_key().agg(number=cs.agg.count(), total=cs.agg.sum("value")).to_stream().to("out")
    rng = np.random.default_rng(seed)
    with cs.TopologyTestDriver(builder.build(), commit_every=10**9) as driver:
        topic = driver.create_input_topic("in", NUMBER, NUMBER)
        for first in range(0, groups, FILL):
            topic.pipe_records([(key, 1, key) for key in range(first, min(first + FILL, groups))])
            driver.commit()
            driver._output.written.clear()
        seconds = []
        for _ in range(BATCHES):
            keys = rng.integers(0, groups, BATCH).tolist()
            topic.pipe_records([(key, 1, groups) for key in keys])
            began = time.process_time()
            driver.commit()
            seconds.append(time.process_time() - began)
            driver._output.written.clear()
    return statistics.median(seconds)


def on_spark(groups: int) -> dict[str, float]:
    """Medians of a batch: seconds, and core-seconds of driver, JVM and workers."""
    folder = Path(tempfile.mkdtemp(prefix="crossstream-bench-growth-"))
    topics = Topics.of("growth")
    append(folder, topics.orders, order_columns(np.arange(groups), 1_000, 1))
    rng, cores = np.random.default_rng(7), []
    with OursAggregated(
        "",
        "growth",
        topics,
        functions="count",
        topics_dir=folder / "topics",
        state_dir=folder / "state",
        patience=900,
    ) as running:
        wait_for_rows(running, groups)
        time.sleep(5)
        before = len(running.batches)
        for number in range(BATCHES):
            used = sum(running.cpu_parts().values())
            append(folder, topics.orders, order_columns(rng.integers(0, groups, BATCH), 1_000, 2 + number))
            wait_for_rows(running, groups + (number + 1) * BATCH)
            time.sleep(0.5)
            cores.append(sum(running.cpu_parts().values()) - used)
        took = [batch["seconds"] for batch in running.batches[before:] if batch["rows"] == BATCH]
    shutil.rmtree(folder, ignore_errors=True)
    return {"seconds": statistics.median(took[5:]), "core-seconds": statistics.median(cores[5:])}


class Counter:
    """Counts the records of each key."""

    def init(self, context: Any) -> None:
        self.context, self.seen = context, context.store("seen")

    def process(self, record: Any) -> None:
        count = (self.seen.get(record.key) or 0) + 1
        self.seen.put(record.key, count)
        self.context.forward(record.key, count)

    def close(self) -> None: ...


def processed(records: int = 200_000, keys: int = 50_000) -> float:
    """Records a second of processor time: one get, one put and one result each."""
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=NUMBER, value=NUMBER))
    counted = stream.process(Counter, stores=[cs.KeyValueStore("seen", key=NUMBER, value=NUMBER)])
    counted.to("out", cs.Produced(key=NUMBER, value=NUMBER))
    drawn = np.random.default_rng(1).integers(0, keys, records).tolist()
    with cs.TopologyTestDriver(builder.build(), commit_every=10**9) as driver:
        topic = driver.create_input_topic("in", NUMBER, NUMBER)
        rates = []
        for _ in range(3):
            topic.pipe_records([(key, 1, place) for place, key in enumerate(drawn)])
            began = time.process_time()
            driver.commit()
            rates.append(records / (time.process_time() - began))
    return statistics.median(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, nargs="+", default=[500_000, 10_000_000])
    parser.add_argument("--spark", action="store_true")
    given = parser.parse_args()
    if given.spark:
        for groups in given.groups:
            print(json.dumps({"groups": groups, **on_spark(groups)}), flush=True)
        return
    print(json.dumps({"records a second through a processor": round(processed())}), flush=True)
    for groups in given.groups:
        print(json.dumps({"groups": groups, "seconds of a batch": round(updates(groups), 4)}), flush=True)


if __name__ == "__main__":
    main()
