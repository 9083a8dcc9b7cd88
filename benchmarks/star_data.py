"""The data of the benchmark of a join of many: orders that refer to a customer, a product and a store.

o0123456  {"customer_id":"c0012345","product_id":"p004211","store_id":"s0042","quantity":3,"amount":9.5,"status":"open"}
c0012345  as in `benchmarks.data`
p004211   {"title":"Product 4211","price":12.5,"colour":"red","weight":310}
s0042     {"street":"Street 17","country":"PT","opened":2011}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.data import START_MS, STATUSES, Message, customer_value, key_in

MOVES = {"customers": 0.1, "products": 0.03, "stores": 0.03}
"""The share of an order's later updates that bring it to another customer, product, store."""

COLOURS = ("red", "green", "blue", "black")
COUNTRIES = ("PT", "NL", "JP", "EC", "KE", "FI", "US", "IN")


@dataclass(frozen=True, slots=True)
class Star:
    """How many rows each table has."""

    orders: int = 500_000
    customers: int = 100_000
    products: int = 20_000
    stores: int = 1_000

    def rows(self, table: str) -> int:
        return int(getattr(self, table))


def key_of(table: str, number: int) -> bytes:
    widths = {"customers": b"c%07d", "products": b"p%06d", "stores": b"s%04d"}
    return widths[table] % number


def row_of(table: str, number: int, draw: int) -> bytes:
    """A row; another ``draw`` gives another row."""
    if table == "customers":
        return customer_value(number, draw)
    if table == "products":
        colour = COLOURS[draw % len(COLOURS)].encode()
        price, weight = draw // 4 % 1000, draw // 4096 % 999
        return b'{"title":"Product %d","price":%d.5,"colour":"%b","weight":%d}' % (
            number,
            price,
            colour,
            weight,
        )
    country = COUNTRIES[draw % len(COUNTRIES)].encode()
    return b'{"street":"Street %d","country":"%b","opened":%d}' % (
        draw // 8 % 10_000,
        country,
        1990 + draw % 35,
    )


def rows_of(table: str, numbers: Sequence[int], seed: int, start_ms: int = START_MS) -> list[Message]:
    """A record for each of these rows, one a ms."""
    draws = np.random.default_rng([seed, 5]).integers(0, 1 << 30, len(numbers)).tolist()
    return [
        (key_of(table, number), row_of(table, number, draw), start_ms + at)
        for at, (number, draw) in enumerate(zip(numbers, draws, strict=True))
    ]


def order_row(keys: Sequence[bytes], quantity: int, cents: int, status: int) -> bytes:
    customer, product, store = keys
    named = b'"customer_id":"%b","product_id":"%b","store_id":"%b"' % (customer, product, store)
    amount = b'"amount":%d.%02d' % (cents // 100, cents % 100)
    return b'{%b,"quantity":%d,%b,"status":"%b"}' % (named, quantity, amount, STATUSES[status].encode())


def order_updates(
    star: Star, updates: int, seed: int, start_ms: int, chunk: int = 20_000
) -> Iterator[list[Message]]:
    """Every order once, then updates of them, in random order; one a ms."""
    rng = np.random.default_rng([seed, 6])
    ids = np.concatenate(
        [np.arange(star.orders), rng.integers(0, star.orders, max(updates - star.orders, 0))]
    )
    rng.shuffle(ids)
    ids = ids[:updates]
    return _messages(ids, _references(star, ids, rng), rng, start_ms, chunk)


def orders_and_updates(
    star: Star, updates: int, seed: int, start_ms: int, later_ms: int
) -> tuple[Iterator[list[Message]], Iterator[list[Message]]]:
    """Every order once, in random order; and updates of them when all are there. Either one a ms."""
    rng = np.random.default_rng([seed, 6])
    ids = np.concatenate([rng.permutation(star.orders), rng.integers(0, star.orders, updates)])
    named = _references(star, ids, rng)
    there, later = slice(star.orders), slice(star.orders, None)
    return (
        _messages(ids[there], [numbers[there] for numbers in named], rng, start_ms),
        _messages(ids[later], [numbers[later] for numbers in named], rng, later_ms),
    )


def _messages(
    ids: np.ndarray,
    named: Sequence[np.ndarray],
    rng: np.random.Generator,
    start_ms: int,
    chunk: int = 20_000,
) -> Iterator[list[Message]]:
    """Updates of these orders, one after the other; ``named``: the row of each right table that each refers to."""
    for start in range(0, len(ids), chunk):
        part = slice(start, start + chunk)
        size = len(ids[part])
        columns = zip(
            ids[part].tolist(),
            *(numbers[part].tolist() for numbers in named),
            rng.integers(1, 9, size).tolist(),
            rng.integers(100, 99_999, size).tolist(),
            rng.integers(0, len(STATUSES), size).tolist(),
            strict=True,
        )
        yield [
            (
                b"o%07d" % order,
                order_row(
                    [key_of(table, n) for table, n in zip(MOVES, refers, strict=True)],
                    quantity,
                    cents,
                    status,
                ),
                start_ms + at,
            )
            for at, (order, *refers, quantity, cents, status) in enumerate(columns, start)
        ]


def _references(star: Star, ids: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    return [_moving(ids, star.rows(table), share, rng) for table, share in MOVES.items()]


def _moving(ids: np.ndarray, rows: int, share: float, rng: np.random.Generator) -> np.ndarray:
    """For each update the row that the order refers to: that of its update before, or now and then another."""
    by_order = np.argsort(ids, kind="stable")
    first = np.ones(len(ids), bool)
    first[1:] = ids[by_order][1:] != ids[by_order][:-1]
    chosen = first | (rng.random(len(ids)) < share)
    chooser = np.maximum.accumulate(np.where(chosen, np.arange(len(ids)), 0))
    refers = np.empty(len(ids), np.int64)
    refers[by_order] = rng.integers(0, rows, len(ids))[chooser]
    return refers


@dataclass(frozen=True, slots=True)
class StarEnds:
    """Last records, as `benchmarks.data.Ends`: an order for each way from a partition to one of each right table."""

    keys: dict[str, tuple[bytes, ...]]
    orders: tuple[tuple[bytes, int], ...]
    """Key, and number of the end row of each right table it refers to."""

    @classmethod
    def of(cls, partitions: int, name: str = "end") -> StarEnds:
        keys = {
            table: tuple(key_in(p, partitions, f"{name}-{table}-{p}") for p in range(partitions))
            for table in MOVES
        }
        orders = tuple(
            (key_in(p, partitions, f"{name}-{p}-{right}"), right)
            for p in range(partitions)
            for right in range(partitions)
        )
        return cls(keys, orders)

    @property
    def results(self) -> frozenset[bytes]:
        return frozenset(key for key, _ in self.orders)

    def right_messages(self, table: str, timestamp: int, draw: int = 0) -> list[Message]:
        return [(key, row_of(table, 0, draw), timestamp) for key in self.keys[table]]

    def order_messages(self, timestamp: int) -> list[Message]:
        return [
            (key, order_row([self.keys[table][right] for table in MOVES], 1, 100, 0), timestamp)
            for key, right in self.orders
        ]
