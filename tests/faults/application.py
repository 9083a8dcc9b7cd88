"""An application in a process of its own: ``python -m tests.faults.application FOLDER MASTER RECORDS``.

Runs the marketplace on the topics and state in FOLDER until it is killed or its input is closed, and prints
"running" when it has started and "batch N" after each commit.
"""

from __future__ import annotations

import sys
from pathlib import Path

import crossstream as cs
from tests.spark.marketplace import marketplace
from tests.spark.world import World

PARTITIONS = 3


def main() -> None:
    world = World(Path(sys.argv[1]))
    config = world.config(
        partitions=PARTITIONS,
        max_records_per_batch=int(sys.argv[3]),
        retain_batches=100_000,
        durable=True,
        spark={"spark.master": sys.argv[2], "spark.ui.enabled": "false"},
    )
    with cs.SparkStreams(marketplace(), config) as app:
        app.on_progress(lambda progress: print(f"batch {progress.batch}", flush=True))
        app.start()
        print("running", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
