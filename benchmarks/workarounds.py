"""`crossstream bench workarounds`: what the work-arounds for a foreign-key join cost, beside the join itself.

The topologies of `examples/workarounds.py` in the test driver: in one process, without Kafka and Spark, all with the
same Python callables. After the rows of both tables come changes of products, of which a tenth move to another
merchant, and then changes of merchants. Records are serialised beforehand. Seconds
are of processor time, since nothing waits here; the median batch counts.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import crossstream as cs
from benchmarks.fk import machine
from crossstream import serdes
from crossstream.cli.loading import execute
from crossstream.storage.columns import to_record_batch

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "workarounds.py"
JOIN = "foreign-key-join"
FOLLOW = (JOIN, "grouped-map")
"""Those whose rows follow a change of a merchant; they must have the same rows."""

PRODUCTS, PRODUCT_CHANGES, PRODUCT_BATCH = 10_000, 5_000, 1_000
MERCHANT_CHANGES, MERCHANT_BATCH = 200, 10
FAN_OUT = (10, 100)
"""Products of each merchant."""

Records = list[cs.TestRecord]


def product_records(count: int, merchants: int, changes: int) -> Records:
    """All products once, then changes of any of them."""
    rng, records = random.Random(1), []
    owners = [number % merchants for number in range(count)]
    for version in range(count + changes):
        number = version if version < count else rng.randrange(count)
        if version >= count and rng.random() < 0.1:
            owners[number] = rng.randrange(merchants)
        row = {"version": version, "name": f"product {number}", "cents": rng.randrange(10_000)}
        records.append(_record(f"p{number:06d}", {**row, "merchant": f"m{owners[number]:05d}"}, version))
    return records


def merchant_records(count: int, changes: int) -> Records:
    return [_record(f"m{n % count:05d}", {"name": f"merchant {n}"}, n) for n in range(count + changes)]


def _record(key: str, row: dict[str, Any], timestamp: int) -> cs.TestRecord:
    return cs.TestRecord(key.encode(), json.dumps(row).encode(), timestamp)


def topologies() -> dict[str, Callable[[], cs.Topology]]:
    example = execute(EXAMPLE)
    return {JOIN: example.foreign_key_join, **example.WORKAROUNDS}


def measure(side: str, fan_out: int, scale: float = 1.0) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figures of one side, and the rows of its result at the end."""
    count, changes = (max(fan_out, int(size * scale)) for size in (PRODUCTS, PRODUCT_CHANGES))
    owners, renames = max(1, count // fan_out), max(MERCHANT_BATCH, int(MERCHANT_CHANGES * scale))
    products, merchants = product_records(count, owners, changes), merchant_records(owners, renames)
    with cs.TopologyTestDriver(topologies()[side](), partitions=2, commit_every=10**9) as driver:
        as_is = serdes.bytes()

        def rate(topic: str, records: Records, batch: int) -> int:
            """Records per second of processor time, in the median batch."""
            piped, seconds = driver.create_input_topic(topic, as_is, as_is), []
            for first in range(0, len(records), batch):
                began = time.process_time()
                piped.pipe_records(records[first : first + batch])
                driver.commit()
                seconds.append(time.process_time() - began)
            return round(batch / statistics.median(seconds))

        rate("merchants", merchants[:owners], owners)
        rate("products", products[:count], PRODUCT_BATCH)
        figures: dict[str, Any] = {"side": side, "products of a merchant": fan_out}
        figures["product changes a core-second"] = rate("products", products[count:], PRODUCT_BATCH)
        if side in FOLLOW:
            figures["merchant changes a core-second"] = rate("merchants", merchants[owners:], MERCHANT_BATCH)
        figures["bytes of state"] = state_bytes(driver)
        return figures, dict(driver.get_key_value_store("result").all())


def state_bytes(driver: cs.TopologyTestDriver) -> int:
    """Of the columns of all stores, replaced rows that are not merged away yet among them."""
    versions = driver._stores.versions.values()
    runs = [segment.run for version in versions for part in version.parts for segment in part.segments]
    return sum(to_record_batch(run.columns).nbytes for run in runs)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="crossstream bench workarounds", description=__doc__)
    parser.add_argument(
        "--fan-out", type=int, nargs="*", default=list(FAN_OUT), help="products of a merchant"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes")
    arguments = parser.parse_args(argv)
    print(json.dumps(machine()))
    for fan_out in arguments.fan_out:
        results = {}
        for side in topologies():
            figures, results[side] = measure(side, fan_out, arguments.scale)
            print(json.dumps(figures), flush=True)
        if any(results[side] != results[JOIN] for side in FOLLOW):
            raise AssertionError("the grouped map and the foreign-key join have different rows")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
