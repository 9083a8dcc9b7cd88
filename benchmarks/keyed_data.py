"""The data of the joins by key: orders and customers under the same keys, c0012345, as streams or as tables."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.data import Message, customer_value, drawn_orders, order_value


def keyed_orders(
    keys: int, records: int, seed: int, start_ms: int, chunk: int = 20_000
) -> Iterator[list[Message]]:
    """Orders of random customers, who are their keys, one a ms."""
    rng = np.random.default_rng([seed, 3])
    for first in range(0, records, chunk):
        size = min(chunk, records - first)
        drawn = rng.integers(0, keys, size).tolist()
        columns = zip(drawn, *drawn_orders(rng, size), strict=True)
        yield [
            (b"c%07d" % key, order_value(b"c%07d" % key, item, quantity, cents, status), start_ms + at)
            for at, (key, item, quantity, cents, status) in enumerate(columns, first)
        ]


def keyed_customers(
    keys: int, records: int, seed: int, start_ms: int, chunk: int = 20_000
) -> Iterator[list[Message]]:
    """New rows, or facts, of random customers, one a ms."""
    rng = np.random.default_rng([seed, 4])
    for first in range(0, records, chunk):
        size = min(chunk, records - first)
        drawn = zip(
            rng.integers(0, keys, size).tolist(), rng.integers(0, 1 << 30, size).tolist(), strict=True
        )
        yield [
            (b"c%07d" % key, customer_value(key, draw), start_ms + at)
            for at, (key, draw) in enumerate(drawn, first)
        ]
