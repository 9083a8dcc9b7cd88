"""The round of a stream–stream join, and the stores it keeps its records in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from crossstream.serdes.kept import kept
from crossstream.topology.describe import has_new_key
from crossstream.topology.graph import StoreSpec, StreamStreamJoin
from crossstream.topology.plan import WAITING, WINDOW, StoreDef
from crossstream.topology.steps import StreamStreamJoinStep

if TYPE_CHECKING:
    from crossstream.topology.planner import Planner


def place_stream_stream_join(planner: Planner, node: StreamStreamJoin) -> None:
    """The join in the first round in which both streams can be there; a stream joined with itself comes once."""
    flows = [planner.flow(name) for name in node.parents]
    number = max(map(planner.earliest, flows))
    specs = (node.store, node.other_store)
    stores = [
        _keep(planner, node, spec, side, number) for spec, side in zip(specs, ("left", "right"), strict=True)
    ]
    waiting = None
    if node.kind != "inner" and not node.eager:
        waiting = planner.put(
            StoreDef(
                name=planner.inner_store(node, "waiting"),
                layout=WAITING,
                round=number,
                key=stores[0].key,
                value=kept(),
            ),
        )
    inputs = tuple(
        planner.arrive(replace(flow, key=store.key, value=store.value), number, node)
        for flow, store in zip(flows, stores, strict=True)
    )
    out = planner.flow_of(node, node.name, number, True)
    planner.steps.append(
        StreamStreamJoinStep(
            node=node.name,
            round=number,
            inputs=inputs,
            output=out.name,
            stores=(stores[0].name, stores[1].name),
            waiting=None if waiting is None else waiting.name,
            right_first=planner.visits.right_first(node),
            refused=(_refusal(planner, node, node.parents[0]), _refusal(planner, node, node.parents[1])),
        )
    )


def _keep(planner: Planner, node: StreamStreamJoin, spec: StoreSpec, side: str, number: int) -> StoreDef:
    flow = planner.flow(node.parents[0 if side == "left" else 1])
    return planner.put(
        StoreDef(
            name=spec.name or planner.inner_store(node, side),
            layout=WINDOW,
            round=number,
            key=spec.key or flow.key,
            value=spec.value or flow.value,
            public=spec.name,
        ),
    )


def _refusal(planner: Planner, node: StreamStreamJoin, parent: str) -> str:
    """Under which reason null keys are counted that cannot come out alone (semantics 8.19)."""
    passed = node.kind != "inner" or planner.keeps_null_keys(node.name)
    return "null-key-repartition" if has_new_key(planner.topology, parent) and not passed else "null-key"
