"""The foreign-key join of `crossstream bench fk` in Flink SQL."""

from __future__ import annotations

from benchmarks.generate import Topics
from benchmarks.peers.flink.sql import upsert_table

ORDERS = "k STRING, customer_id STRING, item STRING, quantity INT, amount DOUBLE, status STRING"
CUSTOMERS = "k STRING, name STRING, city STRING, tier STRING, since INT, newsletter BOOLEAN"
RESULTS = "k STRING, item STRING, amount DOUBLE, customer STRING, city STRING"


def statements(servers: str, *runs: Topics) -> list[str]:
    """The join over the topics of each run: the first ones, and those to warm up with."""
    made = []
    for number, topics in enumerate(runs):
        made += [
            upsert_table(servers, f"orders_{number}", topics.orders, ORDERS, "k"),
            upsert_table(servers, f"customers_{number}", topics.customers, CUSTOMERS, "k"),
            upsert_table(servers, f"results_{number}", topics.results, RESULTS, "k"),
            f"INSERT INTO results_{number} SELECT o.k, item, amount, name, city"
            f" FROM orders_{number} o JOIN customers_{number} c ON o.customer_id = c.k ON CONFLICT DO DEDUPLICATE",
        ]
    return made
