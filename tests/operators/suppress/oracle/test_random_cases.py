"""Kafka's own driver and ours agree on random cases of suppression and of timers, record by record."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from tests.oracle.oracle import Oracle

pytestmark = pytest.mark.oracle

TEXT = serdes.string()
CASES, NIGHTLY = 50, 1000
CONSUMED = cs.Consumed(key=TEXT, value=TEXT)
Build = Callable[[cs.StreamsBuilder, dict[str, Any]], cs.KStream]


def case_of(rng: Random, kind: str) -> dict[str, Any]:
    inputs = [
        {
            "side": "left",
            "key": rng.choice("abcd"),
            "value": None if rng.random() < 0.2 and kind == "time-limit" else str(rng.randrange(100)),
            "ts": rng.randrange(60),
        }
        for _ in range(rng.randrange(1, 25))
    ]
    params: dict[str, Any] = {"joiner": {"template": "{left}"}}
    if kind == "time-limit":
        params["limit_ms"] = rng.randrange(25)
        if rng.random() < 0.6:
            bound = rng.choice([("max_records", rng.randrange(4)), ("max_bytes", rng.randrange(150))])
            params |= dict([bound])
    elif kind == "window-closes":
        size = rng.randrange(1, 15)
        params |= {"size_ms": size, "advance_ms": rng.randrange(1, size + 1), "grace_ms": rng.randrange(8)}
    else:
        params["interval_ms"] = rng.randrange(1, 20)
    return {"operator": "suppress", "type": kind, "params": params, "inputs": inputs}


def limited(builder: cs.StreamsBuilder, params: dict[str, Any]) -> cs.KStream:
    bounds = {name: params[name] for name in ("max_records", "max_bytes") if name in params}
    option = cs.Suppressed.until_time_limit(params["limit_ms"], **bounds)
    return builder.table("left", CONSUMED).suppress(option).to_stream()


def closed(builder: cs.StreamsBuilder, params: dict[str, Any]) -> cs.KStream:
    windows = cs.TimeWindows(size=params["size_ms"], advance=params["advance_ms"], grace=params["grace_ms"])
    counts = builder.stream("left", CONSUMED).group_by_key().windowed_by(windows).count()
    final = counts.suppress(cs.Suppressed.until_window_closes()).to_stream()
    return final.map(lambda window, count: (f"{window.key}@{window.start}", str(count)))


class Ticking:
    interval = 1

    def init(self, context: cs.ProcessorContext) -> None:
        self.context = context
        context.schedule(self.interval, "stream-time", lambda time: context.forward("tick", str(time)))

    def process(self, record: cs.Record) -> None:
        self.context.forward(record.key, f"{record.value}@{self.context.stream_time}")


def ticking(builder: cs.StreamsBuilder, params: dict[str, Any]) -> cs.KStream:
    supplier = type("Every", (Ticking,), {"interval": params["interval_ms"]})
    return builder.stream("left", CONSUMED).process(supplier)


BUILDS: dict[str, Build] = {"time-limit": limited, "window-closes": closed, "timers": ticking}


def ran(case: dict[str, Any]) -> list[list[dict[str, Any]]]:
    builder = cs.StreamsBuilder()
    BUILDS[case["type"]](builder, case["params"]).to("out", cs.Produced(key=TEXT, value=TEXT))
    with cs.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("left", TEXT, TEXT)
        out = driver.create_output_topic("out", TEXT, TEXT)
        found = []
        for one in case["inputs"]:
            topic.pipe_input(one["key"], one["value"], timestamp=one["ts"])
            found.append([{"key": r.key, "value": r.value, "ts": r.timestamp} for r in out.read_records()])
        return found


def compare(oracle: Oracle, kind: str, seeds: range) -> None:
    for seed in seeds:
        case = case_of(Random(f"{kind} {seed}"), kind)
        assert oracle.run(case)["expected"] == ran(case), case


@pytest.mark.parametrize("kind", BUILDS)
def test_driver(oracle: Oracle, kind: str) -> None:
    compare(oracle, kind, range(CASES))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", BUILDS)
def test_driver_for_long(oracle: Oracle, kind: str, fresh: int) -> None:
    compare(oracle, kind, range(fresh, fresh + NIGHTLY))
