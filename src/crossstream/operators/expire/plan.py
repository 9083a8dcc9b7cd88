"""Where rows expire: before the step that keeps the table, which so reads a topic with the deletes in it."""

from __future__ import annotations

from dataclasses import replace

from crossstream.graph.names import inner
from crossstream.graph.nodes import Node, StoreSpec
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.plan import Flow
from crossstream.planning.steps import ExpireStep

SHARE = 1_000
"""The clock goes in steps of at most one in so many of a ttl: rows expire at few places in a batch (decision 0046)."""
STEPS = (1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000)
"""From a millisecond to an hour."""


def tick_of(ttl: int) -> int:
    """The longest of the steps that is short beside a ttl, in ms; the shortest one for the shortest.

    >>> [tick_of(ttl) for ttl in (10, 60_000, 3_600_000, 30 * 86_400_000)]
    [1, 10, 1000, 600000]
    """
    return max((step for step in STEPS if step * SHARE <= ttl), default=1)


def plan_expiring(builder: PlanBuilder, node: Node, raw: Flow) -> None:
    """Keeps the table in the first round that has its rows by key; every reader, there or later, reads the deletes.

    The rows that are due are found in the store of the table by their timestamps, so there is no other one.
    """
    spec = node.store or StoreSpec()
    assert spec.ttl is not None
    by_clock = spec.clock == "wall"
    number = builder.earliest(raw) if by_clock else builder.earliest_timed(raw)
    key, value = spec.key or node.key or raw.key, spec.value or node.value or raw.value
    sent = replace(raw, key=key, value=value)
    arrived = builder.arrive(sent, number, node)
    out = builder.add(replace(sent, name=inner(node.name, "records and deletes"), round=number, routed=True))
    builder.raw[node.name] = out
    place = len(builder.steps)
    kept = builder.materialize(node, number, None, builder.earliest(raw))
    step = ExpireStep(
        node=node.name,
        round=number,
        inputs=(arrived,),
        output=out.name,
        store=kept.store,
        ttl=spec.ttl,
        tick=tick_of(spec.ttl),
        by_clock=by_clock,
    )
    builder.steps.insert(place, step)
    builder.changes[node.name] = builder.changes_of(kept)
