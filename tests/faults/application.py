"""An application in a process of its own: ``python -m tests.faults.application FOLDER MASTER RECORDS TOPOLOGY ROWS``.

Runs one of `TOPOLOGIES` on the topics and state in FOLDER, or the state at $STATE_URI, until it is killed, fails or its
input is closed, and prints "running" when it has started and "batch N" after each commit. With $SERVERS the topics are
Kafka's, and are written with the guarantee $GUARANTEE, by the application $APPLICATION. With $STEPS it prints each step
of a batch too, and stays in it for up to as many seconds. With $STOPS=STEP:N it stops itself (SIGSTOP) when it comes to
that step for the N-th time; with $MARK=ignored it never believes that results are there.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import crossstream as cs
from crossstream import jvm, serdes
from crossstream.jvm import JAVA_OPTIONS
from crossstream.storage.commit_log import BatchLog
from tests.faults.everything import appends, everything
from tests.spark.marketplace import marketplace
from tests.spark.world import World

PARTITIONS = 3
WITHOUT_SPARK = "one process"
"""A master: the engine runs its tasks one after the other, in the process of the driver."""
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


TOPOLOGIES = {"marketplace": marketplace, "visits": visits, "everything": everything, "appends": appends}


def on_kafka(servers: str) -> dict[str, object]:
    guarantee = os.environ["GUARANTEE"]
    return {
        "topics_dir": None,
        "bootstrap_servers": servers,
        "processing_guarantee": guarantee,
        "broker_patience": "300 seconds",
    }


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Calls ``around(method, *arguments)`` instead of a method."""
    method = getattr(owner, name)
    setattr(owner, name, lambda *arguments, **more: around(method, *arguments, **more))


def say_steps(longest: float) -> None:
    """Prints the steps of a batch, and stays in each for a moment, so that it can be hit."""
    from crossstream.kafka import transactions

    rng = Random()
    stop, _, number = os.environ.get("STOPS", ":0").partition(":")
    said: Counter[str] = Counter()

    def say(step: str) -> None:
        print(step, flush=True)
        said[step] += 1
        if step == stop and said[step] == int(number):
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(rng.uniform(0, longest))

    def logged(method: Any, log: Any, entry: Any) -> None:
        method(log, entry)
        say("noted" if entry.publication is not None else "logged")

    def committing(method: Any, *arguments: Any) -> None:
        say("committing")
        method(*arguments)
        say("committed")

    def stored(method: Any, writer: Any) -> None:
        method(writer)
        say("stored")

    def answered(method: Any, call: Any, *arguments: Any, seconds: float) -> None:
        method(call, *arguments, seconds=seconds)
        say(call.__name__)

    def begins(method: Any, *arguments: Any, **more: Any) -> None:
        say("begins")
        method(*arguments, **more)

    wrap(BatchLog, "write_batch", logged)
    wrap(BatchLog, "write_commit", committing)
    wrap(transactions._Writer, "store", stored)
    wrap(transactions, "answered", answered)
    wrap(transactions.TransactionPublisher, "begin", begins)


def ignore_the_mark() -> None:
    """Results of a batch are written again, whether they are there or not."""
    from crossstream.kafka import transactions
    from crossstream.once import BatchMark

    def unknown(method: Any, publisher: Any, state: str) -> Any:
        method(publisher, state)
        return BatchMark(publisher.application, "", state, -1)

    wrap(transactions.TransactionPublisher, "_ready", unknown)


def stop_when_closed(app: cs.SparkStreams) -> None:
    """No lock of `sys.stdin` is held when the process ends."""
    while os.read(0, 4096):
        pass
    app.stop()


def main() -> None:
    name = os.environ.get("APPLICATION", "app")
    world = World(Path(sys.argv[1]), name, single_task_rows=int(sys.argv[5]))
    kafka = {} if "SERVERS" not in os.environ else on_kafka(os.environ["SERVERS"])
    if "STEPS" in os.environ:
        say_steps(float(os.environ["STEPS"]))
    if os.environ.get("MARK") == "ignored":
        ignore_the_mark()
    master = sys.argv[2]
    streams: Any = cs.SparkStreams
    spark: dict[str, str] = {
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # they start sooner
    }
    if (
        "SPARK_HOME" in os.environ
    ):  # a Spark of this test alone, whose archive of classes no other JVM can use
        spark[JAVA_OPTIONS] = jvm.DEFAULTS[JAVA_OPTIONS]
    if master == WITHOUT_SPARK:
        from tests.faults import one_process

        streams, spark = one_process.streams, {}
    config = world.config(
        **kafka,
        state_dir=os.environ.get("STATE_URI", world.state_dir),
        partitions=PARTITIONS,
        max_records_per_batch=int(sys.argv[3]),
        retain_batches=100_000,
        durable=True,
        spark=spark,
    )
    with streams(TOPOLOGIES[sys.argv[4]](), config) as app:
        app.on_progress(lambda progress: print(f"batch {progress.batch}", flush=True))
        app.start()
        print("running", flush=True)
        threading.Thread(target=stop_when_closed, args=(app,), daemon=True).start()
        app.await_termination()


if __name__ == "__main__":
    main()
