"""An application in a process of its own: ``python -m tests.faults.application FOLDER MASTER RECORDS TOPOLOGY ROWS``.

Runs one of `TOPOLOGIES` on the topics and state in FOLDER, or the state at $STATE_URI, until it is killed or its input
is closed, and prints "running" when it has started and "batch N" after each commit. With $SERVERS the topics are
Kafka's, and are written with the guarantee $GUARANTEE, by the application $APPLICATION.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import crossstream as cs
from crossstream import serdes
from tests.spark.marketplace import marketplace
from tests.spark.world import World

PARTITIONS = 3
TEXT = serdes.string()


def visits() -> cs.Topology:
    """Views with the clicks of the same key within ten seconds, those without one too."""
    builder = cs.StreamsBuilder()
    views, clicks = (
        builder.stream(topic, cs.Consumed(key=TEXT, value=TEXT)) for topic in ("views", "clicks")
    )
    windows = cs.JoinWindows.of("10 seconds", grace="2 seconds")
    joined = views.left_join(clicks, lambda view, click: f"{view} {click}", windows)
    joined.to("visits", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


TOPOLOGIES = {"marketplace": marketplace, "visits": visits}


def on_kafka(servers: str) -> dict[str, object]:
    guarantee = os.environ["GUARANTEE"]
    return {"topics_dir": None, "bootstrap_servers": servers, "processing_guarantee": guarantee}


def main() -> None:
    name = os.environ.get("APPLICATION", "app")
    world = World(Path(sys.argv[1]), name, single_task_rows=int(sys.argv[5]))
    kafka = {} if "SERVERS" not in os.environ else on_kafka(os.environ["SERVERS"])
    config = world.config(
        **kafka,
        state_dir=os.environ.get("STATE_URI", world.state_dir),
        partitions=PARTITIONS,
        max_records_per_batch=int(sys.argv[3]),
        retain_batches=100_000,
        durable=True,
        spark={"spark.master": sys.argv[2], "spark.ui.enabled": "false"},
    )
    with cs.SparkStreams(TOPOLOGIES[sys.argv[4]](), config) as app:
        app.on_progress(lambda progress: print(f"batch {progress.batch}", flush=True))
        app.start()
        print("running", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
