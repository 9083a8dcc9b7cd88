"""Global tables, kept in rounds before those of the batch, and the joins that look them up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossstream.topology.graph import Source, StoreSpec, StreamGlobalJoin
from crossstream.topology.names import inner
from crossstream.topology.plan import KEY_VALUE, StoreDef
from crossstream.topology.steps import GlobalStep, ReadStep, StreamGlobalJoinStep

if TYPE_CHECKING:
    from crossstream.topology.planner import Planner


def place_global_table(planner: Planner, node: Source) -> None:
    """Read and kept in the plan that runs before: all its state partitions are there for every task after it."""
    before = planner.before
    records = before.flow_of(node, inner(node.name, "records"), 0)
    before.steps.append(
        ReadStep(node=node.name, round=0, inputs=(), output=records.name, table=True, form=None)
    )
    spec = node.store or StoreSpec()
    store = before.put(
        StoreDef(
            name=spec.name or f"{node.name}@global",
            layout=KEY_VALUE,
            round=1,
            key=records.key,
            value=records.value,
            public=spec.name,
        )
    )
    planner.put(store)
    planner.wholes[node.name] = store.name
    before.steps.append(
        GlobalStep(node=node.name, round=1, inputs=(before.arrive(records, 1, node),), store=store.name)
    )


def place_stream_global_join(planner: Planner, node: StreamGlobalJoin) -> None:
    """In the round of the stream, wherever its records are: nothing is moved, keys stay as they are."""
    stream, table = node.parents
    parent = planner.flow(stream)
    planner.flow_of(node, node.name, parent.round, parent.routed)
    planner.steps.append(
        StreamGlobalJoinStep(
            node=node.name,
            round=parent.round,
            inputs=(parent.name,),
            output=node.name,
            store=planner.wholes[table],
        )
    )
