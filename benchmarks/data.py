"""The data of the foreign-key benchmark: customers, and updates of orders that refer to them.

o0123456  {"customer_id":"c0012345","item":"item-00421","quantity":3,"amount":123.45,"status":"open"}
c0012345  {"name":"Customer 0012345","city":"Lisbon","tier":"gold","since":2011,"newsletter":true}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt

from crossstream.partitioning import murmur2_partitions

FOREIGN_KEY = "customer_id"
START_MS = 1_700_000_000_000
"""Timestamp of the first customer. Orders follow the customers, one record a ms."""

MOVES = 0.1
"""The share of an order's later updates that bring it to another customer."""
TOMBSTONES = 0.01
"""The share of all updates that delete the order, as far as there are later updates."""

CITIES = ("Lisbon", "Utrecht", "Kyoto", "Quito", "Nairobi", "Tampere", "Austin", "Pune")
STATUSES = ("open", "paid", "packed", "shipped", "returned")
TIERS = ("basic", "silver", "gold")

Numbers = npt.NDArray[np.int64]


Message = tuple[bytes, "bytes | None", int]
"""Key, value (None deletes), timestamp in ms."""


@dataclass(frozen=True, slots=True)
class Updates:
    """Updates of orders in order of arrival, as columns of equal length."""

    orders: Numbers
    customers: Numbers
    deleted: npt.NDArray[np.bool_]
    seed: int

    def messages(self, start_ms: int, chunk: int = 20_000) -> Iterator[list[Message]]:
        """The same as records, one a ms, ``chunk`` records at a time."""
        rng = np.random.default_rng([self.seed, 1])
        for first in range(0, len(self.orders), chunk):
            part = slice(first, first + chunk)
            size = len(self.orders[part])
            columns = zip(
                self.orders[part].tolist(),
                self.customers[part].tolist(),
                self.deleted[part].tolist(),
                *drawn_orders(rng, size),
                strict=True,
            )
            yield [
                (
                    b"o%07d" % order,
                    None if gone else order_value(b"c%07d" % customer, item, quantity, cents, status),
                    start_ms + at,
                )
                for at, (order, customer, gone, item, quantity, cents, status) in enumerate(columns, first)
            ]


def drawn_orders(rng: np.random.Generator, size: int) -> tuple[list[int], ...]:
    """Item, quantity, cents and status of random orders, as `order_value` takes them."""
    bounds = ((0, 1000), (1, 9), (100, 99999), (0, len(STATUSES)))
    return tuple(rng.integers(low, high, size).tolist() for low, high in bounds)


def order_value(customer: bytes, item: int, quantity: int, cents: int, status: int) -> bytes:
    return b'{"customer_id":"%b","item":"item-%05d","quantity":%d,"amount":%d.%02d,"status":"%b"}' % (
        customer,
        item,
        quantity,
        cents // 100,
        cents % 100,
        STATUSES[status].encode(),
    )


def updates_of(orders: int, updates: int, customers: int, seed: int) -> Updates:
    """Every order is inserted once and updated some times more, all in random order.

    With fewer updates than orders only that many orders occur, each once.
    """
    rng = np.random.default_rng([seed, 0])
    again = rng.integers(0, orders, max(updates - orders, 0))
    ids = np.concatenate([rng.permutation(orders)[:updates], again]).astype(np.int64)
    rng.shuffle(ids)
    by_order = np.argsort(ids, kind="stable")
    first = np.ones(updates, dtype=np.bool_)
    first[1:] = ids[by_order][1:] != ids[by_order][:-1]
    chosen = first | (rng.random(updates) < MOVES)
    chooser = np.maximum.accumulate(
        np.where(chosen, np.arange(updates), 0)
    )  # the update that set the customer
    referred, deleted = np.empty(updates, dtype=np.int64), np.empty(updates, dtype=np.bool_)
    referred[by_order] = rng.integers(0, customers, updates)[chooser]
    deleted[by_order] = ~first & (rng.random(updates) < TOMBSTONES * updates / max(len(again), 1))
    return Updates(ids, referred, deleted, seed)


def subscribers_of(customers: int, subscribers: int, seed: int) -> Updates:
    """``subscribers`` orders for each customer, each inserted once."""
    orders = customers * subscribers
    updates = updates_of(orders, orders, customers, seed)
    updates.customers[:] = updates.orders % customers
    return updates


def customer_messages(
    customers: Sequence[int], seed: int, start_ms: int = START_MS, chunk: int = 20_000
) -> Iterator[list[Message]]:
    """One record for each of these customers, one a ms. Another seed: other names and cities."""
    rng = np.random.default_rng([seed, 2])
    for first in range(0, len(customers), chunk):
        part = customers[first : first + chunk]
        draws = rng.integers(0, 1 << 30, len(part)).tolist()
        yield [
            (b"c%07d" % customer, customer_value(customer + (seed - 1) * 10_000_000, draw), start_ms + at)
            for at, (customer, draw) in enumerate(zip(part, draws, strict=True), first)
        ]


def customer_value(customer: int, draw: int) -> bytes:
    return b'{"name":"Customer %07d","city":"%b","tier":"%b","since":%d,"newsletter":%b}' % (
        customer,
        CITIES[draw % len(CITIES)].encode(),
        TIERS[draw // 8 % len(TIERS)].encode(),
        1990 + draw // 64 % 35,
        b"true" if draw // 4096 % 2 else b"false",
    )


@dataclass(frozen=True, slots=True)
class Ends:
    """Last records: when all their results are out, so are those of everything before.

    One customer for each partition of the right topic; one order for each pair of a left and a right
    partition, so that a last one walks every way that a record can take through two shuffles.
    """

    customers: tuple[bytes, ...]
    orders: tuple[tuple[bytes, bytes], ...]
    """Key and customer of each."""

    @classmethod
    def of(cls, partitions: int, name: str = "end") -> Ends:
        """Keys in Kafka's default partitions."""
        customers = tuple(
            key_in(partition, partitions, f"{name}-{partition}") for partition in range(partitions)
        )
        orders = tuple(
            (key_in(partition, partitions, f"{name}-{partition}-{right}"), customer)
            for partition in range(partitions)
            for right, customer in enumerate(customers)
        )
        return cls(customers, orders)

    @property
    def keys(self) -> frozenset[bytes]:
        """The keys of the results to wait for."""
        return frozenset(key for key, _ in self.orders)

    def customer_messages(self, timestamp: int) -> list[Message]:
        """Each with a row of its own at each time: a side may leave out a result that is the one before."""
        return [(key, customer_value(timestamp, 0), timestamp) for key in self.customers]

    def order_messages(self, timestamp: int) -> list[Message]:
        """Each with a row of its own at each time."""
        return [(key, order_value(customer, 0, 1, timestamp, 0), timestamp) for key, customer in self.orders]


def key_in(partition: int, partitions: int, prefix: str) -> bytes:
    """The first of ``prefix-0``, ``prefix-1``, … that Kafka's default partitioner puts there."""
    keys = (f"{prefix}-{number}".encode() for number in count())
    return next(key for key in keys if murmur2_partitions([key], partitions) == [partition])
