"""The round of a processor, and its stores."""

from __future__ import annotations

from crossstream.graph.nodes import Process, ProcessorStore, TransformBatches
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.layouts import KEY_VALUE, VERSIONED, WINDOWED
from crossstream.planning.plan import StoreDef
from crossstream.planning.steps import ProcessStep, TransformBatchesStep
from crossstream.serdes.primitives import Number, String

_LAYOUTS = {"key-value": KEY_VALUE, "window": WINDOWED, "versioned": VERSIONED}


def plan_process(builder: PlanBuilder, node: Process | TransformBatches) -> None:
    """In the state partitions of the records' keys."""
    flow = builder.flow(node.parents[0])
    number = builder.earliest(flow)
    arrived = builder.arrive(flow, number, node)
    keeps_key = isinstance(node, Process) and node.keeps_key
    out = builder.flow_of(node, node.name, number, routed=keeps_key)
    timers = builder.own_store(node, "timers", KEY_VALUE, number, String(), Number("int64"))
    step = ProcessStep if isinstance(node, Process) else TransformBatchesStep
    builder.steps.append(
        step(
            node=node.name,
            round=number,
            inputs=(arrived,),
            output=out.name,
            key=flow.key,
            value=flow.value,
            stores=tuple(_store(builder, store, number) for store in node.stores),
            timers=timers.name,
        )
    )


def _store(builder: PlanBuilder, store: ProcessorStore, number: int) -> str:
    made = StoreDef(
        name=store.name,
        layout=_LAYOUTS[store.kind],
        round=number,
        key=store.key,
        value=store.value,
        public=store.name,
        anywhere=True,
        history=store.retention if store.kind == "versioned" else None,
    )
    return builder.put(made).name
