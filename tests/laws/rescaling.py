"""What the laws of rescaling share: an application between whose batches the state is cut anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle

import crossstream as cs
from crossstream.runtime.rescaling import by_second_key, cutter, placements
from crossstream.runtime.spreading import all_spread, by_hot_keys
from crossstream.storage.sorted_run import Run
from crossstream.storage.store import Segment, Version


def rescaling(numbers: Sequence[int]) -> Callable[[cs.TopologyTestDriver], None]:
    """Brings a driver to the next number of state partitions each time it is called, over and over."""
    following = cycle(numbers)
    return lambda driver: rescale_driver(driver, next(following))


def rescale_driver(driver: cs.TopologyTestDriver, partitions: int) -> None:
    """The stores of the driver, in other partitions; its topics keep theirs."""
    held: dict[str, dict[int, Version]] = {}
    for (store, pid), version in driver._stores.versions.items():
        if driver.plan.stores[store].derived:
            continue
        held.setdefault(store, {})[pid] = version
    by_key2 = dict.fromkeys(driver.plan.by_key2, by_second_key(partitions))
    hot = {store: by_hot_keys(partitions, hashes) for store, hashes in driver._hot.items()}
    placed = {**by_key2, **hot, **placements(driver.plan, partitions)}
    driver._hot = all_spread(driver._hot, driver._hot)
    driver._stores.versions = {
        (store, pid): version
        for store, versions in held.items()
        for pid, version in cut(versions, driver._partitions, partitions, placed.get(store)).items()
    }
    driver._partitions = partitions


def cut(versions: dict[int, Version], before: int, partitions: int, placement=None) -> dict[int, Version]:
    """A store in memory, in other partitions."""
    make = cutter(versions, before, partitions, 0, placement)
    made = {
        pid: make(pid, lambda run: Segment(Run(dict(run.columns), run.rows))) for pid in range(partitions)
    }
    return {pid: version for pid, version in made.items() if version is not None}
