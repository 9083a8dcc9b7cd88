"""A run of the bank: writers write, the application follows, and what it needs is killed, one after the other."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil

import crossstream as cs
from crossstream.dev.cdc import Parts
from crossstream.kafka import KafkaConnection
from tests.end_to_end.bank.checks import (
    Queries,
    Seen,
    Truth,
    check_lake,
    check_places,
    check_samples,
    check_stores_at,
    check_topics,
)
from tests.end_to_end.bank.database import Bank, Sample
from tests.end_to_end.kills import children
from tests.end_to_end.real_parts import await_saved, kill_server, restart_failed, restarted, running

PARTITIONS = 2
SECONDS, LONG_SECONDS = 600.0, 4 * 3600.0
"""How long anything may take on a busy machine, and how long all transactions of the long form."""
OF_SPARK = ("worker", "JVM")
VICTIMS = ("connect", "broker", "driver", *OF_SPARK)
SCRIPT = "bank/app.py"


@dataclass
class Outcome:
    """What a run did, and what was seen of it."""

    seen: Seen = field(default_factory=Seen)
    samples: list[Sample] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    transactions: int = 0

    def __str__(self) -> str:
        return f"{self.transactions:,} transactions, killed: {dict(self.kills)}, checked: {self.seen.checked}"


def needed(victims: Sequence[str]) -> str:
    """The engine that has the next victim; without Spark more batches come in the same time."""
    return "spark" if victims and victims[0] in OF_SPARK else "local"


@dataclass
class Play:
    """The bank's application and its servers, all of which can be killed."""

    parts: Parts
    bank: Bank
    folder: Path
    rng: Random
    whole: bool = True
    records: int = 2_000
    ended: list[str] = field(default_factory=list)
    """What the application said when it ended without being killed: it does when its JVM was."""
    lives: ExitStack = field(default_factory=ExitStack)
    engine: str = ""
    process: subprocess.Popen[bytes] | None = None
    writers: list[subprocess.Popen[str]] = field(default_factory=list)

    def run(
        self, victims: Sequence[str], every: float, pause: float, transactions: int | None = None
    ) -> Outcome:
        """Kills a victim ``every`` so many seconds on average, while each writer makes so many transactions.

        None: as many as it can until the last one was killed; none while something starts again.
        """
        outcome = Outcome()
        with self._open(outcome, needed(victims), pause, transactions):
            for number, victim in enumerate(victims, 1):
                outcome.samples.append(self.bank.sample())
                time.sleep(self.rng.uniform(0, 2 * every))
                self._kill(victim)
                outcome.kills[victim] += 1
                print(f"{number}: {victim}", flush=True)
                self._recover(needed(victims[number:]), rest=transactions is None)
            if transactions is None:
                self.bank.close()
            self._await(self._is_written, seconds=LONG_SECONDS)
            last = self.bank.sample()
            self._await(lambda: self._shows(last), seconds=LONG_SECONDS)
            outcome.samples.append(last)
        self._check(outcome)
        return outcome

    def _recover(self, engine: str, rest: bool) -> None:
        """What was killed runs again, and commits a batch. ``rest``: the writers wait until it runs.

        Otherwise the next victim may come while it starts.
        """
        starts = self._starts()
        with self.bank.at_rest() if rest else nullcontext():
            if self._again(engine) and rest:
                self._await(lambda: self._starts() > starts)
        if rest or self.rng.random() < 0.7:
            self._await_batch()

    def until_wrong(self, pause: float) -> Outcome:
        """Writes until a query finds something wrong; a connector that writes again helps."""
        outcome = Outcome()
        with self._open(outcome, "local", pause, None):
            self._kill("connect")
            self._await(lambda: bool(outcome.seen.wrong))
            self.bank.close()
        return outcome

    @contextmanager
    def _open(self, outcome: Outcome, engine: str, pause: float, transactions: int | None) -> Iterator[None]:
        """Writers write, the application runs, and queries are asked."""
        self.bank.make(200)
        self._make_topics()
        with self.lives, self.bank.written(transactions or 1_000_000, pause) as self.writers:
            self.bank.capture(self.parts, PARTITIONS)
            self._start(engine)
            self._await_batch()
            await_saved(self.parts, self.bank.name)
            with Queries(self.folder / "state", outcome.seen).asked(0.5):
                yield

    def _check(self, outcome: Outcome) -> None:
        """Every batch, as readers of the topics and of the Delta tables see it; and what SQL showed when."""
        seen, samples = outcome.seen, outcome.samples
        check_topics(seen, self.servers, self.bank.name)
        versions = check_lake(seen, self.lake)
        truth = Truth.of(self.servers, f"{self.bank.name}.transaction", self.bank.audit())
        outcome.transactions = truth.transactions
        check_samples(seen, truth, samples)
        check_places(seen, truth, versions)
        check_stores_at(seen, truth, self.folder / "state", samples, versions)

    @property
    def servers(self) -> str:
        return self.parts.broker.bootstrap_servers

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def _make_topics(self) -> None:
        log = KafkaConnection(self.servers).log()
        for result in ("accounts", "branches", "transfers", "totals"):
            log.create_topic(f"{self.bank.name}.{result}", 1)
        log.close()

    def _start(self, engine: str) -> None:
        self.engine = engine
        whole = {} if self.whole else {"WHOLE": "no"}
        environment = {
            "BANK": self.bank.name,
            "SERVERS": self.servers,
            "LAKE": str(self.lake),
            "RECORDS": str(self.records),
            "ENGINE": engine,
            **whole,
        }
        self.process = self.lives.enter_context(running(SCRIPT, self.folder, **environment))

    def _kill(self, victim: str) -> None:
        assert self.process is not None
        if victim in ("connect", "broker"):
            kill_server(getattr(self.parts, victim))
        elif victim == "driver":
            os.kill(self.process.pid, signal.SIGKILL)
        else:
            self._await(lambda: bool(children(self.process.pid, victim)))  # type: ignore[union-attr]
            try:
                self.rng.choice(children(self.process.pid, victim)).kill()
            except (psutil.NoSuchProcess, IndexError):  # it had just ended
                self._kill(victim)

    def _again(self, engine: str | None = None) -> bool:
        """What was killed runs again; the application on another engine, if it is to be killed there.

        Returns whether the application was started.
        """
        assert self.process is not None
        self.parts = restarted(self.parts)
        restart_failed(self.parts, self.bank.name)
        if engine not in (None, self.engine) and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(SECONDS)
        if self.process.poll() is not None:
            if self.process.returncode not in (0, -signal.SIGKILL):
                self.ended.append(f"{self.process.returncode}: {self._last_words()}")
            self._start(engine or self.engine)
            return True
        return False

    def _starts(self) -> int:
        """How often the application has said that it runs."""
        return (self.folder / "log").read_text().count(f"running {self.bank.name},")

    def _await_batch(self) -> None:
        """Returns when one more batch is committed, or the writers have ended: then there may be none."""
        done = self._batches()
        self._await(lambda: self._batches() > done or self._is_written())

    def _is_written(self) -> bool:
        return all(writer.poll() is not None for writer in self.writers)

    def _batches(self) -> int:
        """The size of what the application prints of its batches."""
        return (self.folder / "batches").stat().st_size

    def _shows(self, sample: Sample) -> bool:
        """Whether the newest state is what SQL showed."""
        return all(
            {id: row["cents"] for id, row in cs.open_store(self.folder / "state", name).all()} == cents
            for name, cents in (("accounts", sample.accounts), ("branches", sample.branches))
        )

    def _await(self, true: Callable[[], bool], seconds: float = SECONDS) -> None:
        """Returns when it is true; until then what ends is started again."""
        deadline = time.monotonic() + seconds
        while not true():
            self._again()
            assert time.monotonic() < deadline, (
                self.ended,
                self._last_words(),
                self.parts.failure(self.bank.name),
            )
            time.sleep(0.2)

    def _last_words(self) -> str:
        return (self.folder / "log").read_text()[-3000:]
