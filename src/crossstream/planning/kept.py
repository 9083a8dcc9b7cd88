"""Which stores each kind of step keeps, and what each of them is of its operator: its rows, or a part by some name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from crossstream.planning import steps
from crossstream.planning.steps import Step

ROWS = ""
"""The part that is the rows of the operator."""

_PARTS: Mapping[type[Step], Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        steps.MaterializeStep: {"store": (ROWS,)},
        steps.GlobalStep: {"store": (ROWS,)},
        steps.CompleteRowsStep: {"store": ("rows",)},
        steps.SubscribeStep: {"store": ("references",)},
        steps.ResolveStep: {"subscriptions": ("subscriptions",), "referrers": ("referrers",)},
        steps.GlobalResolveStep: {"subscriptions": ("subscriptions",)},
        steps.ReferManyStep: {"references": ("references",), "counts": ("interest",)},
        steps.AnswerManyStep: {"subscribers": ("interested",)},
        steps.ResolveManyStep: {"rows": ("rows",), "referrers": ("referrers",), "right_rows": ("partners",)},
        steps.StreamStreamJoinStep: {"stores": ("left", "right"), "waiting": ("waiting",)},
        steps.StreamTableJoinStep: {"buffer": ("buffer",)},
        steps.AggregateStep: {"store": (ROWS,), "rows": ("rows",), "refused": ("refused",)},
        steps.WindowedAggregateStep: {"store": (ROWS,), "rows": ("rows",), "refused": ("refused",)},
        steps.DeduplicateStep: {"store": ("seen",)},
        steps.SuppressStep: {"store": ("buffer",)},
        steps.TransformBatchesStep: {"timers": ("timers",)},
        steps.ProcessStep: {"timers": ("timers",)},
    }
)
"""The fields that name the stores of a step, and what these are."""


def kept(step: Step) -> Iterator[tuple[str, str]]:
    """The stores that a step keeps, each with what it is; those of a processor are parts by their own names."""
    if isinstance(step, steps.MaterializeStep) and step.latest:
        yield step.store, "latest"
        return
    if isinstance(step, steps.MaterializeStep) and step.copies:
        return  # they are made again where they are missing
    for name, parts in _PARTS.get(type(step), {}).items():
        given = getattr(step, name)
        stores = given if isinstance(given, tuple) else (given,)
        yield from ((store, part) for store, part in zip(stores, parts, strict=True) if store is not None)
    if isinstance(step, steps.TransformBatchesStep):
        yield from ((store, store) for store in step.stores)
