"""Where the rows of a store are: by the hash of their key, or of their second one, or by a partitioner (KIP-775)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossstream.columns.hashing import partition_of
from crossstream.columns.values import Values
from crossstream.errors import CrossStreamError
from crossstream.planning.plan import Partitioner, Plan, StoreDef
from crossstream.planning.steps import MaterializeStep, ResolveStep, Step, SubscribeStep
from crossstream.runtime.shuffle_codec import chosen_partitions
from crossstream.storage.sorted_run import Run


@dataclass(frozen=True, slots=True)
class ByPartitioner:
    """Places rows of a store by a partitioner, which takes what the serde reads of their keys."""

    store: StoreDef
    partitioner: Partitioner
    partitions: int

    def __call__(self, run: Run) -> np.ndarray:
        """The partition of each row, asked for once for each key. Raises `SerdeError`, `ProcessingError` CS-505."""
        encoded = run["key"].dictionary_encode()
        keys = Values(self.store.key, wire=encoded.dictionary)
        try:
            places = chosen_partitions(
                self.partitioner, keys, self.partitions, lambda row: {"key": keys.objects()[row]}
            )
        except CrossStreamError as error:
            raise error.at(store=self.store.name) from error.__cause__
        return np.asarray(places[encoded.indices.to_numpy(zero_copy_only=False)])


@dataclass(frozen=True, slots=True)
class BySecondKey:
    """Places rows by the hash of their second key, which is their ``s``."""

    partitions: int

    def __call__(self, run: Run) -> np.ndarray:
        return partition_of(run["s"], self.partitions)


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
