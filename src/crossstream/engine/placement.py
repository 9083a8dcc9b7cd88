"""Where the rows of a store are: by the hash of their key, or where a partitioner of the user puts them (KIP-775)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from crossstream.algebra.values import Values
from crossstream.engine.parcels import chosen_partitions
from crossstream.errors import CrossStreamError
from crossstream.topology.plan import Partitioner, Plan, StoreDef
from crossstream.topology.steps import MaterializeStep, ResolveStep, Step, SubscribeStep


@dataclass(frozen=True, slots=True)
class ByPartitioner:
    """Places keys of a store, which are bytes, by a partitioner, which takes what the serde reads."""

    store: StoreDef
    partitioner: Partitioner
    partitions: int

    def __call__(self, keys: pa.LargeBinaryArray) -> np.ndarray:
        """The partition of each key. Raises `SerdeError`, `ProcessingError` CS-505."""
        try:
            return chosen_partitions(self.partitioner, Values(self.store.key, wire=keys), self.partitions)
        except CrossStreamError as error:
            raise error.at(store=self.store.name) from error.__cause__


def partitioners(plan: Plan) -> dict[str, Partitioner]:
    """The partitioner of each store that has one; the rows of all others are placed by hash."""
    found = {}
    arriving = {exchange.arrives: exchange.partitioner for exchange in plan.exchanges}
    for step in plan.steps:
        partitioner = arriving.get(step.inputs[0]) if step.inputs else None
        if partitioner is not None:
            found.update(dict.fromkeys(_stores_filled_by(step), partitioner))
    return found


def placements(plan: Plan, partitions: int) -> dict[str, ByPartitioner]:
    """How the rows of these stores are placed in ``partitions`` partitions."""
    return {
        name: ByPartitioner(plan.stores[name], partitioner, partitions)
        for name, partitioner in partitioners(plan).items()
    }


def _stores_filled_by(step: Step) -> list[str]:
    """The stores that keep what the first input of a step brings."""
    if isinstance(step, MaterializeStep | SubscribeStep):
        return [step.store]
    if isinstance(step, ResolveStep):
        return [step.subscriptions] if step.referrers is None else [step.subscriptions, step.referrers]
    return []
