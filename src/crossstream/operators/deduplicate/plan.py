"""The rounds of a deduplication, and the store of what came out."""

from __future__ import annotations

from dataclasses import replace

from crossstream.graph.names import inner
from crossstream.graph.nodes import Deduplicate
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.layouts import DEDUPLICATED
from crossstream.planning.steps import DeduplicateStep, IdentifyStep
from crossstream.serdes.json.plain import InternalJson


def plan_deduplicate(builder: PlanBuilder, node: Deduplicate) -> None:
    """Where the records of an identity are together. By an identity of their own, that is not where their keys are."""
    flow = builder.flow(node.parents[0])
    if node.identity is not None:
        by_identity = replace(
            flow,
            name=inner(node.name, "by identity"),
            key=node.identity.returns or InternalJson(),
            routed=False,
        )
        builder.steps.append(
            IdentifyStep(node=node.name, round=flow.round, inputs=(flow.name,), output=by_identity.name)
        )
        flow = builder.add(by_identity)
    number = builder.earliest_timed(flow)
    arrived = builder.arrive(flow, number, node)
    out = builder.flow_of(node, node.name, number, routed=node.identity is None)
    store = builder.own_store(node, "seen", DEDUPLICATED, number, flow.key, InternalJson())
    builder.steps.append(
        DeduplicateStep(node=node.name, round=number, inputs=(arrived,), output=out.name, store=store.name)
    )
