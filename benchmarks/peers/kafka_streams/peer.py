"""The joins of the benchmarks as a Kafka Streams application in a JVM of its own.

with KafkaStreamsPeer("localhost:9092", "peer-1", Topics.of("run1")) as peer:  # runs from here on
    peer.cpu_seconds()
peer.summary  # {"processed": …, "dropped": …}
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import final

from benchmarks.data import FOREIGN_KEY
from benchmarks.generate import Topics
from benchmarks.peers.java import JavaProgram, java
from benchmarks.peers.jvm import Jvm, PeerError

__all__ = ["KafkaStreamsPeer", "PeerError", "available", "version"]

HERE = Path(__file__).resolve().parent
PROGRAM = JavaProgram(HERE, "peer")
JVM_OPTIONS = ("-Xms2g", "-Xmx2g", "-XX:+UseParallelGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")

MODES: Mapping[str, tuple[str, ...]] = {
    "fk": ("inner", "left"),
    "fk-avro": ("inner",),
    "fk-chain": ("inner",),
    "table-table": ("inner", "left", "outer"),
    "stream-stream": ("inner", "left", "outer"),
    "stream-table": ("inner", "left"),
    "stream-global": ("inner", "left"),
    **{
        f"aggregate-{name}": ("inner",)
        for name in ("count", "tumbling", "hopping", "session", "table", "reduce")
    },
    **{f"nexmark-{query}": ("inner",) for query in ("q3", "q4", "q5", "q7", "q8", "q20")},
}


@final
class KafkaStreamsPeer(Jvm):
    """One run of the application, from an empty state folder.

    Orders are the left side, customers the right one. The result of every mode is
    ``{"item", "amount"}`` of the order and ``{"customer", "city"}``, name and city, of the customer.

    ``warm_up``: topics of a second, equal join of the application, to warm it up with.
    ``foreign_key``: field of an order (fk, stream-global). ``window_ms``, ``grace_ms``: stream-stream.
    ``settings``: any others of Kafka Streams, such as ``commit.interval.ms``. ``state_dir``: kept if given.
    ``arguments``: what a mode needs besides, in the words of the program: fk-chain has several right tables, fk-avro
    the ``registry`` of its schemas, Nexmark persons.
    ``patience``: seconds to start or stop in.
    """

    program = PROGRAM
    name = "Kafka Streams"

    def __init__(
        self,
        bootstrap: str,
        application_id: str,
        topics: Topics,
        *,
        mode: str = "fk",
        type: str = "inner",
        warm_up: Topics | None = None,
        foreign_key: str = FOREIGN_KEY,
        window_ms: int = 10_000,
        grace_ms: int = 0,
        threads: int = 2,
        settings: Mapping[str, object] | None = None,
        arguments: Mapping[str, str] | None = None,
        state_dir: Path | None = None,
        patience: float = 60,
    ) -> None:
        super().__init__(patience)
        if type not in MODES[mode]:
            raise ValueError(f"no {type} join in mode {mode}")
        self.arguments = {
            "bootstrap": bootstrap,
            "application-id": application_id,
            "left": topics.orders,
            "right": topics.customers,
            "output": topics.results,
            "mode": mode,
            "type": type,
            "foreign-key": foreign_key,
            "window-ms": str(window_ms),
            "grace-ms": str(grace_ms),
            "threads": str(threads),
            "until": "stdin-ends",
        }
        if warm_up is not None:
            warm = {"left": warm_up.orders, "right": warm_up.customers, "output": warm_up.results}
            self.arguments |= {f"warm-{name}": topic for name, topic in warm.items()}
        self.arguments |= arguments or {}
        self.settings = dict(settings or {})
        self.state_dir = state_dir

    def command(self) -> list[str]:
        words = [java(), *JVM_OPTIONS, "-jar", str(PROGRAM.made)]
        state = self.state_dir or self._folder / "state"
        for name, value in {**self.arguments, "state-dir": str(state)}.items():
            words += [f"--{name}", value]
        for name, setting in self.settings.items():
            words += ["--set", f"{name}={setting}"]
        return words

    def ask_to_stop(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGTERM)

    @property
    def seconds_to_restore(self) -> float:
        """From the start of Kafka Streams, in a JVM that is up, until it ran: state is restored in that time."""
        with self._changed:
            states = [event for event in self._events if event["event"] == "state"]
        running = next(event["ms"] for event in states if event["state"] == "RUNNING")
        return float(running - states[0]["ms"]) / 1000


def available() -> str | None:
    """Why there can be no peer on this machine; None if there can. Downloads are not tried."""
    return PROGRAM.missing()


def version() -> str:
    """The version of Kafka Streams it runs with."""
    found = re.search(r"<kafka\.version>(.+)</kafka\.version>", (HERE / "pom.xml").read_text())
    assert found is not None
    return found.group(1)
