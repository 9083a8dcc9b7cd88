"""An application on Kafka and Spark, its broker and its input, all of which can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from typing import Any

import psutil
import pyspark
from confluent_kafka import KafkaError, Producer

from crossstream.dev import broker
from crossstream.dev.broker import BrokerInfo
from crossstream.kafka import KafkaConnection
from crossstream.storage.commit_log import BatchLog
from tests.faults.application import WITHOUT_SPARK
from tests.kafka.fixtures import more_listeners, proxied, quick_java, skip_without_kafka
from tests.spark.fixtures import ROOT, importable_in_workers
from tests.spark.world import World

LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,1024]"
SECONDS = 600.0
"""How long anything may take; the machine may be busy."""

OF_SPARK = ("driver", "worker", "JVM", "broker", "everything")
VICTIMS = {
    WITHOUT_SPARK: ("driver", "broker"),
    LOCAL: OF_SPARK,
    CLUSTER: (*OF_SPARK, "executor"),
}
SURVIVED = ("worker", "executor", "broker")
"""Without these the application continues; it is started again without the others."""
START = "start"
MOMENTS = {
    START: "while it starts",
    "begins": "before the mark is looked at",
    "logged": "while a batch runs",
    "noted": "before its transaction",
    "stored": "in its transaction, before the mark",
    "send_offsets_to_transaction": "in its transaction, with the mark",
    "commit_transaction": "after its transaction",
    "committing": "before its commit",
    "committed": "after its commit",
}
"""When something is killed: the step that `tests.faults.application` prints, and what it means."""


class Broker:
    """A broker of a test alone, that can be killed and started again on its folder."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._port = broker.free_port()
        self._properties = more_listeners(self._port)
        self.info: BrokerInfo

    @property
    def servers(self) -> str:
        return self.info.bootstrap_servers

    @property
    def proxied_servers(self) -> str:
        return f"127.0.0.1:{proxied(self.info)[0]}"

    def start(self) -> None:
        with quick_java():
            self.info = broker.start(self._port, self._home, self._properties)

    def kill(self) -> None:
        os.kill(self.info.pid, signal.SIGKILL)

    def stop(self) -> None:
        broker.stop(self._port)


@contextmanager
def own_broker(folder: Path, **topics: int) -> Iterator[Broker]:
    """A broker with topics, each with a number of partitions."""
    skip_without_kafka()
    made = Broker(folder / "broker")
    try:
        made.start()
        log = KafkaConnection(made.servers).log()
        for topic, partitions in topics.items():
            log.create_topic(topic, partitions)
        log.close()
        yield made
    finally:
        made.stop()


def spark_home(folder: Path) -> str:
    """PySpark's own Spark, in a folder where a cluster may put its work."""
    home = folder / "spark"
    home.mkdir(exist_ok=True)
    for entry in Path(pyspark.__file__).parent.iterdir():
        if not (home / entry.name).exists():
            (home / entry.name).symlink_to(entry)
    return str(home)


@dataclass
class Application:
    """`tests.faults.application`, started again and again. ``environment``: see there."""

    world: World
    log: Path
    topology: str
    environment: dict[str, str]
    master: str = LOCAL
    records: int = 400
    starts: int = 0
    start_seconds: float = 15.0
    _process: subprocess.Popen[str] | None = None
    _lines: SimpleQueue[str] = field(default_factory=SimpleQueue)
    _groups: list[int] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        importable_in_workers()
        self._close_input()
        world = self.world
        module = [sys.executable, "-m", "tests.faults.application"]
        arguments = [
            world.root,
            self.master,
            self.records,
            self.topology,
            world.single_task_rows,
        ]
        if "cluster" in self.master:
            self.environment["SPARK_HOME"] = spark_home(self.log.parent)
        with self.log.open("a") as errors:
            process = subprocess.Popen(
                [*module, *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                cwd=ROOT,
                env={**os.environ, **self.environment},
            )
        self._process, self._lines = process, SimpleQueue()
        self._groups.append(process.pid)
        self.starts += 1
        self._threads.append(
            threading.Thread(target=_pass_on, args=(process.stdout, self._lines), daemon=True)
        )
        self._threads[-1].start()

    def await_line(self, line: str) -> bool:
        """Whether it printed that, from now on; it ended otherwise."""
        while True:
            try:
                self._lines.get_nowait()
            except Empty:
                break
        return self._await(line)

    def await_running(self) -> bool:
        """Whether it has started; it ended otherwise."""
        began = time.monotonic()
        runs = self._await("running")
        if runs:
            self.start_seconds = time.monotonic() - began
        return runs

    def _await(self, line: str) -> bool:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            try:
                if self._lines.get(timeout=0.1) == line:
                    return True
            except Empty:
                if self.has_ended:
                    return False
        raise AssertionError(f"no {line!r} in {SECONDS} seconds; {self.last_words()}")

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def last_words(self) -> str:
        return self.log.read_text()[-4000:]

    def await_end(self) -> None:
        assert self._process is not None
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end; {self.last_words()}") from None

    def stop(self) -> None:
        """Ends it as its user does."""
        self._close_input()
        self.await_end()
        assert self._process is not None
        assert self._process.returncode == 0, self.last_words()

    def children(self, kind: str) -> list[psutil.Process]:
        """Its processes of one kind that live."""
        return children(self.pid, kind)

    def kill_all(self) -> None:
        """Kills what is left of every run."""
        for group in self._groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._groups.clear()
        if self._process is not None:
            self._process.wait()
        self._close_input()
        for thread in self._threads:  # they end when the last process of a run has ended
            thread.join(SECONDS)
        self._threads.clear()

    def _close_input(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()


def _pass_on(source: Any, lines: SimpleQueue[str]) -> None:
    with source:
        for line in source:
            lines.put(line.rstrip())


def children(pid: int, kind: str) -> list[psutil.Process]:
    """The processes of one kind that live under another one."""
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [child for child in below if _is(child, kind)]


WORKER, EXECUTOR, JVM = "pyspark.worker", "CoarseGrainedExecutorBackend", "SparkSubmit"


def _is(process: psutil.Process, kind: str) -> bool:
    try:
        words = " ".join(process.cmdline())
        if kind == "worker":  # of Spark's daemon, which is one too
            parent = process.parent()
            return WORKER in words and parent is not None and WORKER in " ".join(parent.cmdline())
        return {"executor": EXECUTOR, "JVM": JVM}[kind] in words
    except psutil.Error:
        return False  # gone while we looked


@dataclass
class Feeder:
    """Writes records in the order of their times, with an idempotent producer, until it is stopped.

    ``make``: topic, key, value and timestamp of the n-th record.
    """

    servers: str
    make: Callable[[int], tuple[str, str, str, int]]
    each_second: float = 60.0
    given: Counter[str] = field(default_factory=Counter)
    failures: list[KafkaError] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        settings = {
            "bootstrap.servers": self.servers,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "message.timeout.ms": 600_000,
        }
        producer, number = Producer(settings), 0
        while not self._stop.wait(3 / self.each_second):
            for _ in range(3):
                topic, key, value, timestamp = self.make(number)
                producer.produce(topic, value, key, timestamp=timestamp, on_delivery=self._delivered)
                self.given[topic] += 1
                number += 1
            producer.poll(0)
        assert producer.flush(SECONDS) == 0

    def _delivered(self, error: KafkaError | None, _: Any) -> None:
        if error is not None:
            self.failures.append(error)

    @contextmanager
    def feeding(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
        assert not self.failures


@dataclass
class Killer:
    """Kills one victim after the other, at moments that ``seed`` decides; starts what ends without it."""

    app: Application
    broker: Broker
    rng: Random
    victims: tuple[str, ...] = OF_SPARK
    moments: tuple[str, ...] = tuple(MOMENTS)
    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    ended: list[str] = field(default_factory=list)
    """The applications that ended without a victim that they should survive."""
    _next: list[tuple[str, str]] = field(default_factory=list)

    def kill(self) -> None:
        """Kills once; the application runs afterwards, unless it was the last of it.

        Each victim comes at each moment before one comes at the same moment again.
        """
        if not self._next:
            self._next = [(moment, victim) for moment in self.moments for victim in self.victims]
            self.rng.shuffle(self._next)
        moment, victim = self._next.pop()
        if moment in (START, "begins"):
            if not self.app.has_ended:  # only what starts can be killed in its start
                self.app.kill_all()
            self.app.start()
            if moment == START:
                time.sleep(self.rng.uniform(0, self.app.start_seconds))
            elif not self.app.await_line(moment):
                self._note_end(f"{victim} at {moment}")
                return
        else:
            self._ensure_running()
            if not self.app.await_line(moment):
                self._note_end(f"before {victim} at {moment}")
                return
            time.sleep(self.rng.uniform(0, 0.02))
        if not self._strike(victim):
            victim = "driver"
            os.kill(self.app.pid, signal.SIGKILL)
        self.kills[victim, moment] += 1
        print(f"{sum(self.kills.values())}: {victim} {MOMENTS[moment]}", flush=True)
        if victim == "broker":
            time.sleep(self.rng.uniform(0, 3))
            self.broker.start()
        if victim not in SURVIVED:
            self.app.await_end()
        elif not (self.app.await_line("committed")):
            self._note_end(f"{victim} at {moment}")

    def after_a_batch(self) -> None:
        """Returns when the application has committed one more."""
        self._ensure_running()
        if not self.app.await_line("committed"):
            self._note_end("nothing")

    def _ensure_running(self) -> None:
        if self.app.has_ended:
            self.app.start()
            if not self.app.await_running():
                self._note_end("nothing")

    def _note_end(self, why: str) -> None:
        self.app.await_end()
        self.ended.append(f"{why}: {self.app.last_words()}")

    def _strike(self, victim: str) -> bool:
        if victim == "broker":
            self.broker.kill()
        elif victim == "driver":
            os.kill(self.app.pid, signal.SIGKILL)
        elif victim == "everything":
            self.app.kill_all()
        else:
            there = self.app.children(victim)
            if not there:
                return False
            try:
                self.rng.choice(there).kill()
            except psutil.NoSuchProcess:
                return False
        return True


def until_read(app: Application, ends: dict[str, dict[int, int]]) -> None:
    """Runs the application until it has committed all there is, and stops it."""
    if app.has_ended:
        app.start()
        assert app.await_running(), app.last_words()
    until = time.monotonic() + SECONDS
    while positions(app.world) != ends:
        assert time.monotonic() < until, (positions(app.world), ends)
        assert not app.has_ended, app.last_words()
        time.sleep(0.2)
    app.stop()


def positions(world: World) -> dict[str, dict[int, int]]:
    """How far the application has committed, by topic and partition."""
    commit = BatchLog(world.state_dir).last_commit()
    found: dict[str, dict[int, int]] = {}
    for topics in () if commit is None else commit.positions.values():
        found.update(topics)
    return found
