"""Spark's Structured Streaming as a side of Nexmark: queries in SQL, Spark's own Kafka source and sink.

The newest Spark that has a Kafka connector on Maven, in an environment of its own. Two cores, two shuffle partitions,
state in RocksDB with changelogs, batches as large as there are records.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType

import psutil  # type: ignore[import-untyped]

from benchmarks.nexmark.topics import Topics
from benchmarks.ours import ROOT
from benchmarks.peers import delta_spark
from benchmarks.peers.built import Unavailable
from benchmarks.peers.java import java
from benchmarks.peers.spark_streaming.queries import QUERIES as SAID
from benchmarks.peers.spark_streaming.queries import REFUSED
from benchmarks.processes import family
from crossstream.dev.background import Jars

PROGRAM = ROOT / "benchmarks" / "peers" / "spark_streaming" / "program.py"
VERSION = delta_spark.PYSPARK
CONNECTOR = ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION)
JARS = Jars(f"spark-kafka-{VERSION}", f"Spark's Kafka connector {VERSION}", (CONNECTOR,))
NEEDED = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
"""What Spark has not itself, of what comes with the connector."""
STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": STORE,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
QUERIES = frozenset(SAID)


class SparkSide:
    """One run of a query, on the topics and on those to warm up with at once."""

    def __init__(self, query: str, servers: str, topics: Topics, warm: Topics) -> None:
        self.words = ["--query", query, "--servers", servers]
        self.words += [word for each in (warm, topics) for word in ("--prefix", each.prefix)]

    def __enter__(self) -> SparkSide:
        jars = sorted(str(jar) for jar in JARS.fetch().iterdir() if jar.name.startswith(NEEDED))
        settings = {**SETTINGS, "spark.jars": ",".join(jars)}
        self._folder = Path(tempfile.mkdtemp(prefix="crossstream-bench-spark-"))
        self._log = self._folder / "log"
        command = [str(delta_spark.python()), str(PROGRAM), *self.words, "--folder", str(self._folder)]
        command += [f"--spark={name}={value}" for name, value in settings.items()]
        self._running = threading.Event()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=delta_spark.environment(ROOT)
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            while not self._running.wait(0.2):
                self.check()
        except RuntimeError:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes():
            process.kill()
        self._process.wait()
        self._reader.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def check(self) -> None:
        """Raises `RuntimeError` with the end of its log if it has died."""
        if self._process.poll() is not None:
            raise RuntimeError(f"Spark died: {self._log.read_text()[-3000:]}")

    def processes(self) -> list[psutil.Process]:
        """The Python that started it and the JVM."""
        return family(self._process.pid)

    def cpu_parts(self) -> dict[str, float]:
        """User and system time so far."""
        times = [process.cpu_times() for process in self.processes()]
        return {"jvm": float(sum(time.user + time.system for time in times))}

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._running.set()


def side(name: str, query: str, servers: str, topics: Topics, warm: Topics) -> SparkSide:
    """A run of ``query``. Raises `ValueError` with Spark's reason if Spark cannot say it of streams."""
    if query in REFUSED:
        raise ValueError(f"Spark refuses {query}: {REFUSED[query].answer}")
    return SparkSide(query, servers, topics, warm)


def available() -> str | None:
    """Why there can be no such side on this machine; None if there can. Downloads are not tried."""
    try:
        java()
    except Unavailable as reason:
        return str(reason)
    return None
