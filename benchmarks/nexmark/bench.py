"""`crossstream bench nexmark`: Nexmark's queries beside other engines, same machine, events and broker, in turn.

Every side is warmed up by a first pass over other topics, which ends before anything is measured. Then the events of a
run become visible at once (a transaction) and the clock runs until the last result is in its topic. A run counts when
its results are those of DuckDB. Sides alternate; the very first run is not counted, for the broker is cold then. The
sides named dbsp get the same events from memory, without Kafka, as rows or (dbsp-json) as JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

import polars as pl

from benchmarks import report
from benchmarks.fk import Bench, Sizes, held, leaving, machine
from benchmarks.nexmark import sending
from benchmarks.nexmark.answers import Answers
from benchmarks.nexmark.events import events
from benchmarks.nexmark.queries import OURS
from benchmarks.nexmark.reference import expected
from benchmarks.nexmark.results import differs, parsed
from benchmarks.nexmark.sides import MODULES, Side, module_of, queries_of, why_not
from benchmarks.nexmark.topics import Topics
from benchmarks.nexmark.write import write

JUDGED = ("q3", "q4", "q5", "q7", "q8", "q9", "q20")
"""The queries with state that all engines can say, but for q9."""
EVENTS, WARM = 1_000_000, 300_000
WARM_SEED, SEED = 2, 1


class NexmarkBench(Bench):
    """One query after the other, each on all sides in turn. ``events``: of a run."""

    def __init__(self, events: int, warm: int, port: int, rounds: int, sides: Sequence[str]) -> None:
        super().__init__(Sizes(), port, rounds, sides)
        self.events, self.warm = events, warm
        self.figures: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)

    def measure(self, query: str) -> None:
        """Events per second, and core-seconds per million of them."""
        for side in self.turns(without=[side for side in self.sides if query not in queries_of(side)]):
            try:
                took = (
                    self._in_memory(side, query)
                    if hasattr(module_of(side), "measure")
                    else self._run(side, query)
                )
            except RuntimeError as fault:
                print(json.dumps({"query": query, "side": side, "fault": str(fault)[-2000:]}), flush=True)
                continue
            cores = (took["side_cpu"] + took["broker_cpu"]) * 1_000_000 / self.events
            self.note(f"{query}: events per second", side, self.events / took["seconds"], **took)
            self.note(f"{query}: core-seconds per million events", side, cores)
            if not self._for_nothing:
                figures = {"rate": self.events / took["seconds"], "cores": cores}
                figures["own_cores"] = took["side_cpu"] * 1_000_000 / self.events
                self.figures[query, side].append(figures)

    def _run(self, side: str, query: str) -> dict[str, float]:
        topics, warm = Topics.of(self.prefix(query)), Topics.of(self.prefix(f"{query}-warm"))
        waiting = {each: self._answers(each, query) for each in (topics, warm)}
        sending.send(self.servers, warm, events(self.warm, WARM_SEED))
        running: Side = module_of(side).side(side, query, self.servers, topics, warm)
        running.__enter__()
        with leaving(running):
            waiting[warm].until_right(running.check)
            time.sleep(2)
            return self._timed(running, topics, waiting[topics])

    def _answers(self, topics: Topics, query: str) -> Answers:
        """Makes the topics of a run, which are empty but for the side input."""
        sending.create(self.servers, topics, query)
        sending.send_side_input(self.servers, topics)
        is_warm = "-warm-" in topics.prefix
        wanted = _expected(query, self.warm if is_warm else self.events, WARM_SEED if is_warm else SEED)
        return Answers(self.servers, topics.result(query), query, wanted)

    def _timed(self, running: Side, topics: Topics, answers: Answers) -> dict[str, float]:
        """Seconds from the moment the events are visible to the last result; core-seconds of side and broker."""
        with held(running):
            visible = sending.send(self.servers, topics, events(self.events, SEED), at_once=True)
        parts, broker_cpu = running.cpu_parts(), self.broker_cpu()
        spent = {"side_cpu": 0.0, "broker_cpu": 0.0}

        def note_cpu() -> None:
            now = running.cpu_parts()
            spent.update({f"{part}_cpu": now[part] - parts.get(part, 0.0) for part in now})
            spent["side_cpu"] = sum(now.values()) - sum(parts.values())
            spent["broker_cpu"] = self.broker_cpu() - broker_cpu

        return {"seconds": answers.until_right(running.check, note_cpu) - visible, **spent}

    def _in_memory(self, side: str, query: str) -> dict[str, float]:
        with tempfile.TemporaryDirectory(prefix="crossstream-nexmark-") as folder:
            write(Path(folder), self.events, SEED)
            measured = module_of(side).measure(side, query, Path(folder))
            wanted = _expected(query, self.events, SEED)
            lines = pl.Series(measured.results.read_bytes().splitlines(), dtype=pl.Binary)
            fault = differs(query, parsed(lines, wanted.schema), wanted)
        if fault is not None:
            raise RuntimeError(fault)
        return {"seconds": measured.seconds, "side_cpu": measured.cores, "broker_cpu": 0.0}

    def medians(self, figure: str) -> dict[str, dict[str, float]]:
        """By query and side."""
        found: dict[str, dict[str, float]] = defaultdict(dict)
        for (query, side), runs in self.figures.items():
            found[query][side] = statistics.median(run[figure] for run in runs)
        return found


@cache
def _expected(query: str, count: int, seed: int) -> pl.DataFrame:
    return expected(query, events(count, seed))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="crossstream bench nexmark", description=__doc__)
    which = f"of {', '.join(OURS)}, or all; by default {', '.join(JUDGED)}"
    parser.add_argument("queries", nargs="*", default=list(JUDGED), help=which)
    checkout = "crossstream@CHECKOUT runs the version of another checkout (default: %(default)s)"
    parser.add_argument("--sides", default=",".join(MODULES), help=checkout)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side, alternating")
    parser.add_argument("--events", type=int, default=EVENTS, help="of a run (default: %(default)s)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of the events, and of those to warm up"
    )
    parser.add_argument("--port", type=int, default=19692)
    parser.add_argument(
        "--write", action="store_true", help="writes the section of RESULTS.md, and its picture"
    )
    arguments = parser.parse_args(argv)
    queries = list(OURS) if arguments.queries == ["all"] else arguments.queries
    sides = _runnable(arguments.sides.split(","))
    events, warm = (int(size * arguments.scale) for size in (arguments.events, WARM))
    print(json.dumps(machine()), flush=True)
    with closing(NexmarkBench(events, warm, arguments.port, arguments.rounds, sides)) as bench:
        for query in queries:
            bench.measure(query)
        if arguments.write:
            _write(bench, queries)
    return 0


def _runnable(sides: Sequence[str]) -> list[str]:
    """The sides but those that cannot run here, which are named with the reason."""
    reasons = {side: why_not(side) for side in sides}
    for side, reason in reasons.items():
        if reason is not None:
            print(f"without {side}: {reason}", flush=True)
    return [side for side in sides if reasons[side] is None]


def _write(bench: NexmarkBench, queries: Sequence[str]) -> None:
    rates, cores = bench.medians("rate"), bench.medians("cores")
    asked = f"--events {bench.events} --rounds {bench.rounds} --sides {','.join(bench.sides)}"
    rows = [[query, *(_cell(rates[query], cores[query], side) for side in bench.sides)] for query in queries]
    body = f"""`crossstream bench nexmark {" ".join(queries)} {asked}`

Events per second, and in brackets core-seconds per million events, the broker included. {bench.events:,} events
({bench.events * 46 // 50:,} bids) in three topics, JSON in and out; medians of {bench.rounds} alternating rounds.
The results of each run are those of DuckDB. The sides named dbsp get the same events from memory: no Kafka, no commits,
and but for dbsp-json no JSON.

{report.table(["query", *bench.sides], rows)}
"""
    report.section("Nexmark", body)
    report.bars("nexmark", "Nexmark", rates, "events per second")


def _cell(rates: dict[str, float], cores: dict[str, float], side: str) -> str:
    return f"{rates[side]:,.0f} ({cores[side]:.1f})" if side in rates else "–"
