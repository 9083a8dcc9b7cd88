"""The benchmark's data: what it claims to be, and the same every time."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from benchmarks.data import START_MS, Ends, customer_messages, updates_of

from crossstream.partitioning import murmur2_partitions


def test_every_order_is_inserted_and_some_move_or_go() -> None:
    updates = updates_of(orders=20_000, updates=40_000, customers=1_000, seed=1)
    assert set(updates.orders.tolist()) == set(range(20_000))
    assert 0.008 < updates.deleted.mean() < 0.012
    moves, last = [], dict[int, int]()
    for order, customer, gone in zip(
        updates.orders.tolist(), updates.customers.tolist(), updates.deleted.tolist(), strict=True
    ):
        if order in last:
            moves.append(last[order] != customer)
        else:
            assert not gone, "an order does not begin with its end"
        last[order] = customer
    assert len(moves) == 20_000
    assert 0.09 < np.mean(moves) < 0.11


def test_values_are_json_of_about_90_bytes() -> None:
    messages = [m for chunk in updates_of(500, 1_000, 100, seed=1).messages(START_MS) for m in chunk]
    values = [value for _, value, _ in messages if value is not None]
    assert 85 < np.mean([len(value) for value in values]) < 95
    assert set(json.loads(values[0])) == {"customer_id", "item", "quantity", "amount", "status"}
    assert [timestamp for *_, timestamp in messages] == list(range(START_MS, START_MS + 1_000))
    customers = [m for chunk in customer_messages(range(100), seed=1) for m in chunk]
    known = {key.decode() for key, _, _ in customers}
    assert {json.loads(value)["customer_id"] for value in values} <= known
    assert {"name", "city"} < set(json.loads(customers[0][1] or b""))


def test_chunks_do_not_change_the_data() -> None:
    updates = updates_of(500, 1_000, 100, seed=1)
    assert Counter(m for chunk in updates.messages(0) for m in chunk).total() == 1_000
    again = updates_of(500, 1_000, 100, seed=1)
    assert [m for c in updates.messages(0) for m in c] == [m for c in again.messages(0) for m in c]
    assert [m for c in updates.messages(0) for m in c] != [
        m for c in updates_of(500, 1_000, 100, seed=2).messages(0) for m in c
    ]


@pytest.mark.parametrize(("orders", "updates"), [(1_000, 300), (300, 300), (1, 5)])
def test_few_updates(orders: int, updates: int) -> None:
    found = updates_of(orders, updates, 10, seed=1)
    assert len(found.orders) == updates
    assert len(set(found.orders.tolist())) == min(orders, updates)


def test_ends_walk_every_way() -> None:
    ends = Ends.of(3)
    assert murmur2_partitions(ends.customers, 3) == [0, 1, 2]
    ways = [
        (murmur2_partitions([key], 3)[0], murmur2_partitions([customer], 3)[0])
        for key, customer in ends.orders
    ]
    assert sorted(ways) == [(left, right) for left in range(3) for right in range(3)]
    assert len(ends.keys) == 9
