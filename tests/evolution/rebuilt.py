"""A change made by hand: the same table under another function, rebuilt by an application in a folder of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import crossstream as cs
from crossstream import serdes
from crossstream.application.open_state import wanted_of
from crossstream.catalog.planners import plan_topology
from crossstream.evolution.decision import Decision, HeldRows, NewResult, Rebuilt, StoredTable
from crossstream.evolution.decision import Result as ToSend
from crossstream.planning.meanings import noted
from crossstream.serdes.own import known
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.files import EVOLVING
from crossstream.storage.root import root_of
from tests.faults.one_process import process
from tests.spark.world import World

TEXT = serdes.string()
GIVEN = cs.Consumed(key=TEXT, value=TEXT)
WRITTEN = cs.Produced(key=TEXT, value=TEXT)
ROWS = StoredTable("offers", known(TEXT), known(TEXT))

Mapper = Callable[[str], str | None]


def shop(mapper: Mapper, sinks: tuple[str, ...] = ("out",), *, renamed: bool = False) -> cs.Topology:
    """Products, and an offer of each; ``renamed``: both stores have other names."""
    builder = cs.StreamsBuilder()
    products, offered = ("wares", "goods") if renamed else ("products", "offers")
    offers = builder.table("products", GIVEN, materialized=cs.Materialized(store=products)).map_values(
        mapper, materialized=cs.Materialized(store=offered, key=TEXT, value=TEXT)
    )
    for sink in sinks:
        offers.to_stream().to(sink, WRITTEN)
    return builder.build()


@dataclass(frozen=True, slots=True)
class Shop:
    """Two versions of the shop, and the state of the first."""

    world: World
    partitions: int = 2

    @property
    def log(self) -> BatchLog:
        return BatchLog(self.world.state_dir)

    def config(self, **settings: object) -> cs.StreamsConfig:
        return self.world.config(partitions=self.partitions, **settings)

    def run(self, topology: cs.Topology, **settings: object) -> None:
        process(topology, self.config(**settings))

    def decided(self, topology: cs.Topology) -> Decision:
        """Products are kept, offers are rebuilt, and compared with those of before."""
        before, commit = self.log.application(), self.log.last_commit()
        assert before is not None
        assert commit is not None
        plan = plan_topology(topology)
        wanted = wanted_of(plan, self.config(), before, commit.partitions, noted(plan))
        sinks = [node.name for node in topology if node.public_name == "to"]
        results = tuple(ToSend(sink, "store", ROWS) for sink in sinks)
        products, offered = ("wares", "goods") if "wares" in wanted.stores else ("products", "offers")
        return Decision(
            before, commit, wanted, kept={products: "products"}, rebuilt=(offered,), results=results
        )

    def rebuilt(self, mapper: Mapper, decision: Decision, new: tuple[str, ...] = ()) -> Rebuilt:
        """``new``: sinks that get all rows."""
        state = root_of(f"{self.world.state_dir}/{EVOLVING}")
        config = replace(self.config(), state_dir=state.address)
        process(shop(mapper, ()), config)
        log = BatchLog(state)
        commit = log.last_commit()
        assert commit is not None
        versions = commit.versions["offers"]
        after = HeldRows(state, ROWS, versions)
        before = HeldRows(self.log.root, ROWS, decision.commit.versions["offers"])
        results = tuple(
            NewResult(one.sink, after, None if one.sink in new else before) for one in decision.results
        )
        if decision.rebuilt[0] != "offers":  # a rebuilt store has the name that it is to have
            os.rename(state.here / "stores" / "offers", state.here / "stores" / decision.rebuilt[0])
            rows = replace(ROWS, store=decision.rebuilt[0])
            results = tuple(replace(one, after=replace(after, table=rows)) for one in results)
        return Rebuilt(state, commit, {decision.rebuilt[0]: versions}, {}, {}, results)
