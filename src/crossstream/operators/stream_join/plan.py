"""The round of a stream–stream join, and the stores it keeps its records in."""

from __future__ import annotations

from dataclasses import replace

from crossstream.graph.names import store_names
from crossstream.graph.nodes import StreamStreamJoin
from crossstream.graph.traversal import has_new_key
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.layouts import WAITING, WINDOW
from crossstream.planning.plan import StoreDef
from crossstream.planning.steps import StreamStreamJoinStep
from crossstream.serdes.json.plain import InternalJson


def plan_stream_stream_join(builder: PlanBuilder, node: StreamStreamJoin) -> None:
    """The join in the first round in which both streams can be there; a stream joined with itself comes once."""
    flows = [builder.flow(name) for name in node.parents]
    number = max(map(builder.earliest_timed, flows))
    stores = [
        builder.put(
            StoreDef(
                name=name,
                layout=WINDOW,
                round=number,
                key=spec.key or flow.key,
                value=spec.value or flow.value,
                public=spec.name,
            )
        )
        for name, spec, flow in zip(
            store_names(builder.topology.nodes, node), (node.store, node.other_store), flows, strict=True
        )
    ]
    waiting = None
    if node.kind != "inner" and not node.eager:
        waiting = builder.own_store(node, "waiting", WAITING, number, stores[0].key, InternalJson()).name
    inputs = tuple(
        builder.arrive(replace(flow, key=store.key, value=store.value), number, node)
        for flow, store in zip(flows, stores, strict=True)
    )
    out = builder.flow_of(node, node.name, number, True)
    builder.steps.append(
        StreamStreamJoinStep(
            node=node.name,
            round=number,
            inputs=inputs,
            output=out.name,
            stores=(stores[0].name, stores[1].name),
            waiting=waiting,
            right_first=builder.visits.right_first(node),
            refused=(_refusal(builder, node, node.parents[0]), _refusal(builder, node, node.parents[1])),
        )
    )


def _refusal(builder: PlanBuilder, node: StreamStreamJoin, parent: str) -> str:
    """Under which reason null keys are counted that cannot come out alone (semantics 8.19)."""
    passed = node.kind != "inner" or builder.keeps_null_keys(node.name)
    return "null-key-repartition" if has_new_key(builder.topology, parent) and not passed else "null-key"
