"""An application that lives in a folder while it changes, and the fresh run that says what is right."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import crossstream as cs
from crossstream.application.local import LocalRounds
from crossstream.errors import StateError
from crossstream.evolution.evolve import Evolved, evolve
from tests.evolution.changes import functions as f
from tests.evolution.changes.applications import App
from tests.evolution.changes.building import store_of, topology
from tests.evolution.changes.drawing import Item
from tests.faults.one_process import CORES, process
from tests.spark.world import World

Record = tuple[bytes | None, bytes | None, int]
"""Key, value, timestamp (ms)."""
Rows = dict[bytes | None, bytes]


def fold(records: Iterable[Record]) -> Rows:
    """The table that records are changes of."""
    rows: Rows = {}
    for key, value, _ in records:
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value
    return rows


@dataclass
class Fresh:
    """A new application that reads everything. ``topics``: what it writes, ``stores``: rows that can be queried."""

    topics: dict[str, list[Record]]
    stores: dict[str, list[tuple[Any, Any]]]


def fresh(app: App, *parts: Sequence[Item]) -> list[Fresh]:
    """What it has written, and stored, after each part of its input; topics: only what came of that part."""
    found = []
    with cs.TopologyTestDriver(topology(app), commit_every=10**9) as driver:
        inputs = {
            one.name: driver.create_input_topic(f"in-{one.name}", f.BYTES, f.JSON)
            for one in app.each("table", "stream")
        }
        outputs = {sink.topic: driver.create_output_topic(sink.topic, f.BYTES, f.BYTES) for sink in app.sinks}
        for items in parts:
            for item in items:
                if item.source in inputs:
                    inputs[item.source].pipe_input(item.key.encode(), item.value, item.ts)
            driver.commit()
            topics = {
                topic: [(one.key, one.value, one.timestamp) for one in out.read_records()]
                for topic, out in outputs.items()
            }
            stores = {name: list(store_of_driver(driver, name).all()) for name in public_stores(app)}
            found.append(Fresh(topics, stores))
    return found


def public_stores(app: App) -> list[str]:
    kinds = app.kinds()
    tables = (one for one in app.ops if kinds[one.name].shape == "table")
    return [store_of(one) for one in tables if one.store or one.history is not None]


def store_of_driver(driver: cs.TopologyTestDriver, name: str) -> Any:
    """The store of any kind."""
    by_time = (driver.get_window_store, driver.get_session_store)
    for ask in (driver.get_key_value_store, driver.get_versioned_store, *by_time):
        try:
            return ask(name)
        except StateError:
            continue
    raise AssertionError(name)


def events(app: App) -> set[str]:
    """Topics of what streams give, which are sent once."""
    kinds = app.kinds()
    return {sink.topic for sink in app.sinks if kinds[sink.of].shape == "stream"}


@dataclass
class Life:
    """``app``: the code of now; ``read``: all records that were written for it."""

    root: Path
    app: App
    partitions: int = 2
    read: list[Item] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(self.root)
        self.prepare(self.app)

    def prepare(self, app: App) -> None:
        """Makes the topics of an application that are missing: those of tables have two partitions."""
        there = self.world.topics.log().topics()
        wanted = {f"in-{one.name}": 2 if one.op == "table" else 1 for one in app.ops if not one.parents}
        wanted |= {sink.topic: 2 for sink in app.sinks}
        self.world.create(**{topic: count for topic, count in wanted.items() if topic not in there})

    def config(self, **settings: Any) -> cs.StreamsConfig:
        return self.world.config(partitions=self.partitions, **settings)

    def feed(self, items: Sequence[Item]) -> None:
        for item in items:
            value = None if item.value is None else json.dumps(item.value).encode()
            self.world.append_wire(f"in-{item.source}", [(item.key.encode(), value, item.ts)])
        self.read += items

    def run(self, **settings: Any) -> None:
        process(topology(self.app), self.config(**settings))

    def evolve(self, app: App, **options: Any) -> Evolved:
        """Takes the state over for other code. Which code the application has is not noted: see `living.change`."""
        return evolve(topology(app), self.config(), lambda made, config: LocalRounds(CORES), **options)

    def topic(self, name: str) -> list[list[Record]]:
        """Its records, by partition."""
        if name not in self.world.topics.log().topics():
            return []
        return [[(k, v, ts) for k, v, ts, _ in part] for part in self.world.wire(name)]  # type: ignore[misc]

    def topics(self) -> dict[str, list[Record]]:
        """What every topic of results has."""
        return {
            sink.topic: [one for part in self.topic(sink.topic) for one in part] for sink in self.app.sinks
        }

    def stores(self) -> dict[str, list[tuple[Any, Any]]]:
        return {
            name: list(cs.open_store(self.world.state_dir, name).all()) for name in public_stores(self.app)
        }


def check_rows(app: App, found: Mapping[str, Sequence[Record]], wanted: Fresh, what: str = "") -> None:
    """Every result that is a table folds to that of a fresh run."""
    for topic in sorted(set(wanted.topics) - events(app)):
        got, right = fold(found[topic]), fold(wanted.topics[topic])
        assert got == right, f"{what}{topic} has {got}, right is {right}"


def check_events(
    app: App, found: Mapping[str, Sequence[Record]], wanted: Mapping[str, Sequence[Record]]
) -> None:
    for topic in sorted(events(app)):
        got, right = Counter(found[topic]), Counter(wanted[topic])
        assert got == right, f"{topic}: too many {got - right}, missing {right - got}"


def check_stores(life: Life, wanted: Fresh) -> None:
    found = life.stores()
    for name, rows in wanted.stores.items():
        assert found[name] == rows, f"{name} has {found[name]}, right is {rows}"
