"""The round of a suppression, and the store of what it holds back."""

from __future__ import annotations

from dataclasses import replace

from crossstream.graph.nodes import Aggregate, Suppress
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.layouts import SUPPRESSED
from crossstream.planning.steps import SuppressStep
from crossstream.serdes.windowed import WindowedSerde


def plan_suppress(builder: PlanBuilder, node: Suppress) -> None:
    """Where the rows of the table are, so that stream time is that of the aggregation above."""
    flow = builder.flow(node.parents[0])
    by_group = not flow.routed and _is_by_group(builder, node.parents[0], flow.round)
    number = builder.earliest_timed(replace(flow, routed=flow.routed or by_group))
    stays = by_group and number > flow.round
    old = node.name in builder.wants_old or node.max_bytes is not None
    arrived = flow.name
    if stays or not by_group:
        arrived = builder.arrive(flow, number, node, stays=stays, old=old)
    out = builder.flow_of(node, node.name, number, routed=not by_group)
    key = flow.key
    if by_group:
        assert isinstance(key, WindowedSerde)
        key = key.inner
    store = builder.own_store(node, "buffer", SUPPRESSED, number, key, out.value)
    builder.steps.append(
        SuppressStep(
            node=node.name,
            round=number,
            inputs=(arrived,),
            output=out.name,
            store=store.name,
            key=flow.key,
            old=old,
            by_group=by_group,
        )
    )


def _is_by_group(builder: PlanBuilder, name: str, number: int) -> bool:
    """Whether rows are where an aggregation in windows made them: in the state partition of their group."""
    node = builder.topology[name]
    if isinstance(node, Aggregate):
        return node.windows is not None and builder.flow(name).round == number
    return (node.derives_rows or isinstance(node, Suppress)) and _is_by_group(
        builder, node.parents[0], number
    )
