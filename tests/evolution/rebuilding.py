"""An application, a changed one, and what is rebuilt between them, in one process."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import crossstream as cs
from crossstream.application.local import LocalRounds
from crossstream.catalog.planners import plan_topology
from crossstream.evolution.decide import decide
from crossstream.evolution.decision import Decision, HeldRows, Rebuilt
from crossstream.evolution.rebuild import rebuild
from crossstream.evolution.stored_rows import open_rows
from crossstream.graph.nodes import Aggregate, Sink
from crossstream.planning.plan import Plan
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.root import StateRoot, root_of
from crossstream.task.stores import FolderStores
from tests.faults.one_process import CORES, process
from tests.spark.world import World


def decided(world: World, topology: cs.Topology, **options: Any) -> Decision:
    """What is decided about the state of a world."""
    log = BatchLog(root_of(world.state_dir))
    return decide(log, topology, plan_topology(topology), world.config(), **options)


def rebuilt(world: World, topology: cs.Topology, decision: Decision | None = None) -> Rebuilt:
    """What is rebuilt after a decision about the state of a world."""
    return rebuilt_at(root_of(world.state_dir), world.config(), topology, decision)


def rebuilt_at(
    root: StateRoot, config: cs.StreamsConfig, topology: cs.Topology, decision: Decision | None = None
) -> Rebuilt:
    """What is rebuilt below the state in ``root``."""
    plan = plan_topology(topology)
    decision = decision or decide(BatchLog(root), topology, plan, config)
    return rebuild(decision, topology, plan, config, root, lambda topology, config: LocalRounds(CORES))


def rows_of(held: HeldRows) -> dict[Any, tuple[Any, int]]:
    """Key → (value, timestamp) of the rows of a store, as its serdes read them."""
    found: dict[Any, tuple[Any, int]] = {}
    for partition, manifest in held.versions.items():
        rows = open_rows(held.root, held.table.store, partition, manifest)
        for records in rows.read(0, rows.count, 3):
            columns = records.to_pydict()
            keys = held.table.key.decode_objects(records.column("key"))
            values = held.table.value.decode_objects(records.column("value"))
            found.update(zip(keys, zip(values, columns["timestamp"], strict=True), strict=True))
    return found


def contents(root: StateRoot, plan: Plan, name: str, versions: Mapping[int, str]) -> list[tuple[Any, ...]]:
    """All live rows of a store, with all their columns, and the state partition of each.

    Not the times of aggregates: a first run has those of deleted rows, too.
    """
    aggregates = {node.name for node in plan.topology.each(Aggregate)}
    of_aggregate = any(step.node in aggregates and name in step.names() for step in plan.steps)
    found: list[tuple[Any, ...]] = []
    for partition, manifest in sorted(versions.items()):
        live = FolderStores(root).open(plan.stores[name], partition, manifest).snapshot().live()
        columns = [
            column.tolist()
            for kind, column in sorted(live.columns.items())
            if not (of_aggregate and kind in ("ts", "arrival"))
        ]
        found += sorted(zip([partition] * live.rows, *columns, strict=True))
    return found


def check_as_fresh(world: World, new: cs.Topology, decision: Decision | None = None) -> Rebuilt:
    """What was rebuilt is what a first run of the new code has, in stores and in results."""
    built = rebuilt(world, new, decision)
    fresh = replace(world, root=world.root / "fresh")
    shutil.copytree(world.topics_dir, fresh.topics_dir)
    for one in new.each(Sink):
        shutil.rmtree(fresh.topics_dir / str(one.topic), ignore_errors=True)
    process(new, fresh.config())
    plan, root = plan_topology(new), root_of(fresh.state_dir)
    commit = BatchLog(root).newest()
    for name, versions in built.versions.items():
        found = contents(built.root, plan, name, versions)
        assert (name, found) == (name, contents(root, plan, name, commit.versions.get(name, {})))
    for result in built.results:
        sink = new[result.sink]
        if not isinstance(sink, Sink):  # a function of batches: what it got is nowhere
            assert rows_of(result.after)
            assert result.before is None
            continue
        assert sink.topic is not None
        sent = fresh.table(sink.topic, sink.key, sink.value)  # type: ignore[arg-type]
        assert {key: value for key, (value, _) in rows_of(result.after).items()} == sent
        if result.before is not None:
            old = world.table(sink.topic, result.before.table.key, result.before.table.value)
            assert {key: value for key, (value, _) in rows_of(result.before).items()} == old
    shutil.rmtree(fresh.root)
    return built


def topics_away(world: World, *topics: str) -> Path:
    """Takes topics away, which must not be read."""
    away = world.root / "away"
    away.mkdir()
    for topic in topics:
        (world.topics_dir / topic).rename(away / topic)
    return away
