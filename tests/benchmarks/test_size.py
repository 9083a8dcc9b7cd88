"""The benchmark of large state: what its records make, and what a batch costs by the size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks.size import World, growth, numbers
from benchmarks.size_probe import KEY, VALUE, summed

from crossstream.planning.layouts import KEY_VALUE
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.files import partition_folder
from crossstream.storage.log_entries import Commit
from crossstream.storage.root import root_of
from crossstream.storage.sorted_run import sort_rows
from crossstream.storage.store import StoreUpdate, Version, advance, saver, store_version
from tests.storage.rows import key_value_rows

ROWS = 3_000


def test_the_sum_of_a_store_is_that_of_the_records(tmp_path: Path) -> None:
    """A store of what was counted has the sum that the records make; of one more record it has another."""
    world = World("count", ROWS, tmp_path)
    world.fill()
    world.update(2_000, seed=5)
    assert world.sent == ROWS + 2_000 == world.last.sum()
    keys, counts = (numbers(column).to_pylist() for column in (np.arange(ROWS), world.last))
    state, rows = tmp_path / "state", dict(zip(keys, counts, strict=True))
    storage = root_of(state).storage(partition_folder("counts", 0))
    version = Version(KEY_VALUE)
    for batch, part in enumerate((dict.fromkeys(keys, b"\0" * 8), rows)):
        fresh = sort_rows(key_value_rows(part))
        version = advance(version, StoreUpdate(fresh, batch, batch), saver(storage, f"{batch}"))
    version = store_version(version, storage, "1.manifest")
    BatchLog(root_of(state)).write_commit(Commit(1, 1, {}, {"counts": {0: "1.manifest"}}))
    assert summed(state, "key-value", "value") == world.expected()
    world.update(1, seed=6)
    assert summed(state, "key-value", "value") != world.expected()


def test_the_last_customer_of_an_order_counts(tmp_path: Path) -> None:
    world = World("fk", 10, tmp_path)
    list(world._orders(np.array([7, 7, 2]), np.random.default_rng(1)))
    drawn = np.random.default_rng(1).integers(0, world.customers, 3)
    assert (world.last[7], world.last[2]) == (drawn[1], drawn[2])
    total = sum((key * int(KEY) ^ int(last) * int(VALUE)) % 2**64 for key, last in enumerate(world.last))
    assert world.expected() == {"rows": 10, "sum": str(total % 2**64)}


def test_growth_compares_with_the_smallest_state_of_the_same_side() -> None:
    cost = "core-seconds of a batch"
    figures = {
        ("count", "crossstream", 10): {cost: 2.0},
        ("count", "crossstream", 100): {cost: 3.0},
        ("count", "crossstream@x", 10): {cost: 4.0},
        ("count", "crossstream@x", 100): {cost: 16.0},
    }
    assert growth(figures) == {"count 100, crossstream": 1.5, "count 100, crossstream@before": 4.0}
