"""The foreign-key join of the benchmark as a crossstream application in a process of its own.

Run as a program it is that application; imported, `Ours` starts and stops it as `KafkaStreamsPeer` does Kafka Streams.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.request import urlopen

import psutil  # type: ignore[import-untyped]

from benchmarks.generate import Topics
from benchmarks.processes import family
from crossstream.dev.broker import free_port

ROOT = Path(__file__).resolve().parent.parent


class Ours:
    """One run of the application, from an empty or a given state folder.

    ``module``: the program it is. ``max_records``: of a batch; None: all there are, as the product does by default.
    ``functions``: with ``@CHECKOUT`` behind it, the application of another checkout runs, such as the version before.
    """

    module = "benchmarks.ours"
    max_records: int | None = 500_000
    brings_program = True
    """Whether another checkout has the program, too; else it is this one's, with the package of the other."""

    def __init__(
        self,
        bootstrap: str,
        application_id: str,
        topics: Topics,
        *,
        functions: str = "expressions",
        warm_up: Topics | None = None,
        master: str = "local[2]",
        partitions: int = 2,
        state_dir: Path | None = None,
        topics_dir: Path | None = None,
        settings: dict[str, str] | None = None,
        single_task_rows: int | None = None,
        guarantee: str = "at_least_once",
        watched: bool = False,
        patience: float = 180,
    ) -> None:
        functions, _, checkout = functions.partition("@")
        self.root = Path(checkout) if checkout else ROOT
        self.arguments = {
            "bootstrap": bootstrap,
            "application-id": application_id,
            "prefix": topics.prefix,
            "functions": functions,
            "master": master,
            "partitions": str(partitions),
        }
        if guarantee != "at_least_once":
            self.arguments["guarantee"] = guarantee
        if self.max_records is not None:
            self.arguments["max-records"] = str(self.max_records)
        if warm_up is not None:
            self.arguments["warm-up"] = warm_up.prefix
        if topics_dir is not None:
            self.arguments["topics-dir"] = str(topics_dir)
        if single_task_rows is not None:
            self.arguments["single-task-rows"] = str(single_task_rows)
        self.watched = watched
        if watched:
            self.arguments |= {name: str(free_port()) for name in ("ui-port", "metrics-port")}
        self.settings = settings or {}
        self.state_dir = state_dir
        self.patience = patience
        self.batches: list[dict[str, Any]] = []
        self.seconds_to_first_commit = 0.0
        self._events: list[dict[str, Any]] = []
        self._changed = threading.Condition()

    def __enter__(self) -> Ours:
        self._folder = Path(tempfile.mkdtemp(prefix="crossstream-bench-"))
        command = [sys.executable, "-m", self.module]
        for name, value in {
            **self.arguments,
            "state-dir": str(self.state_dir or self._folder / "state"),
        }.items():
            command += [f"--{name}", value]
        command += [f"--spark={name}={value}" for name, value in self.settings.items()]
        home = self.root if self.brings_program else ROOT
        paths = [str(self.root / "src"), str(home), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self._log = self._folder / "application.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=home
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._await("running")
        if self.watched:
            threading.Thread(target=self._look, daemon=True).start()
            threading.Thread(target=self._scrape, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        finally:
            for process in self.processes():
                process.kill()
            self._reader.join(10)
            shutil.rmtree(self._folder, ignore_errors=True)

    def cpu_parts(self) -> dict[str, float]:
        """User and system time of driver, JVM and Python workers so far."""
        parts = {"driver": 0.0, "jvm": 0.0, "workers": 0.0}
        for process in self.processes():
            try:
                times, name = process.cpu_times(), process.name()
            except psutil.NoSuchProcess:
                continue
            part = "driver" if process.pid == self._process.pid else "jvm" if "java" in name else "workers"
            parts[part] += times.user + times.system + times.children_user + times.children_system
        return parts

    def resident(self) -> int:
        """Bytes resident in the largest Python worker."""
        return max((p.memory_info().rss for p in self.processes() if "python" in p.name()), default=0)

    def check(self) -> None:
        if self._process.poll() is not None:
            raise RuntimeError(f"the application died: {self._log.read_text()[-3000:]}")

    def processes(self) -> list[psutil.Process]:
        """Driver, JVM and Python workers."""
        return family(self._process.pid)

    def _look(self) -> None:
        """The page in a browser: it follows the events of the application."""
        with suppress(OSError), urlopen(f"http://127.0.0.1:{self.arguments['ui-port']}/api/events") as events:
            for _ in events:
                pass

    def _scrape(self) -> None:
        """Prometheus, which asks each five seconds."""
        while self._process.poll() is None:
            with (
                suppress(OSError),
                urlopen(f"http://127.0.0.1:{self.arguments['metrics-port']}/metrics") as page,
            ):
                page.read()
            time.sleep(5)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("{"):
                continue
            event = json.loads(line)
            with self._changed:
                (self.batches if event["event"] == "batch" else self._events).append(event)
                self._changed.notify_all()

    def _await(self, event: str) -> dict[str, Any]:
        until = time.monotonic() + self.patience
        with self._changed:
            while True:
                for found in self._events:
                    if found["event"] == event:
                        return found
                self.check()
                if not self._changed.wait(min(1.0, until - time.monotonic())) and time.monotonic() > until:
                    raise RuntimeError(
                        f"not {event} after {self.patience} s: {self._log.read_text()[-3000:]}"
                    )


# -- the application


@dataclass
class Order:
    customer_id: str
    item: str
    quantity: int
    amount: float
    status: str


@dataclass
class Customer:
    name: str
    city: str
    tier: str
    since: int
    newsletter: bool


def topology(topics: Topics, functions: str) -> Any:
    """Orders with the name and city of their customers: callables on untyped JSON, or expressions on typed JSON."""
    import polars as pl

    import crossstream as cs
    from crossstream import serdes

    builder = cs.StreamsBuilder()
    text = serdes.string()
    typed = functions == "expressions"
    orders = builder.table(
        topics.orders, cs.Consumed(key=text, value=serdes.json(Order) if typed else serdes.json())
    )
    customers = builder.table(
        topics.customers, cs.Consumed(key=text, value=serdes.json(Customer) if typed else serdes.json())
    )
    if typed:
        left, right = pl.col("left").struct, pl.col("right").struct
        joiner: Any = pl.struct(
            item=left.field("item"),
            amount=left.field("amount"),
            customer=right.field("name"),
            city=right.field("city"),
        )
        foreign_key: Any = pl.col("customer_id")
    else:
        foreign_key = lambda order: order["customer_id"]  # noqa: E731

        def joiner(order: Any, customer: Any) -> Any:
            return {
                "item": order["item"],
                "amount": order["amount"],
                "customer": customer["name"],
                "city": customer["city"],
            }

    joined = orders.join(customers, joiner, foreign_key=foreign_key)
    joined.to_stream().to(topics.results, cs.Produced(key=text, value=serdes.json()))
    return builder.build()


def say(event: str, **details: Any) -> None:
    print(json.dumps({"event": event, **details}), flush=True)


def main(topology: Callable[[Topics, str], Any] = topology) -> None:
    """Runs until it is told to end. ``topology``: of the topics and the ``--functions``."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "application-id", "prefix", "functions", "master", "partitions", "state-dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--warm-up")
    parser.add_argument("--topics-dir", help="file topics instead of Kafka")
    parser.add_argument("--single-task-rows", type=int)
    parser.add_argument("--max-records", type=int)
    parser.add_argument("--guarantee", default="at_least_once")
    parser.add_argument("--ui-port", type=int)
    parser.add_argument("--metrics-port", type=int)
    parser.add_argument("--spark", action="append", default=[])
    arguments = parser.parse_args()

    import crossstream as cs
    from crossstream.spark.session import make_session

    settings = {"spark.master": arguments.master, "spark.ui.enabled": "false"}
    settings |= dict(pair.split("=", 1) for pair in arguments.spark)
    began = time.monotonic()
    session = make_session(arguments.application_id, settings)
    say("session", seconds=time.monotonic() - began)

    sizing = {} if arguments.single_task_rows is None else {"single_task_rows": arguments.single_task_rows}

    def application(
        prefix: str,
        application_id: str,
        state_dir: str,
        ui_port: int | None = None,
        metrics_port: int | None = None,
    ) -> cs.SparkStreams:
        config = cs.StreamsConfig(
            application_id=application_id,
            bootstrap_servers=None if arguments.topics_dir else arguments.bootstrap,
            topics_dir=arguments.topics_dir,
            state_dir=state_dir,
            partitions=int(arguments.partitions),
            max_records_per_batch=arguments.max_records,
            processing_guarantee=arguments.guarantee,
            ui_port=ui_port,
            metrics_port=metrics_port,
            **sizing,
        )
        return cs.SparkStreams(topology(Topics.of(prefix), arguments.functions), config, session)

    if arguments.warm_up:
        with application(
            arguments.warm_up, f"{arguments.application_id}-warm", f"{arguments.state_dir}-warm"
        ) as warm:
            warm.process_available()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    started = time.monotonic()
    given = arguments
    with application(
        given.prefix, given.application_id, given.state_dir, given.ui_port, given.metrics_port
    ) as app:
        app.on_progress(
            lambda p: say(
                "batch",
                id=p.batch,
                rows=p.rows,
                seconds=p.seconds,
                phases=p.phases,
                lag=p.lag,
                time=time.time(),
                since_start=time.monotonic() - started,
            )
        )
        app.start()
        say("running", seconds=time.monotonic() - started)
        while not stop.wait(0.2) and app.status == "running":
            pass
        if app.status == "failed":
            app.await_termination()
    session.stop()


if __name__ == "__main__":
    main()
