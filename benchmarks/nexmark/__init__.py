"""Nexmark: persons, auctions and bids, and the queries on them that stream engines are compared by.

| file | what |
|---|---|
| `events`, `text` | the events, as the reference generates them |
| `topics`, `sending`, `write` | the events in Kafka, or in files |
| `inputs`, `rows`, `joins`, `groups`, `queries` | the queries as applications |
| `reference`, `results`, `answers` | what each query gives by DuckDB, and whether a side gave it |
| `local`, `app` | a query in this process, and as an application on Spark |
| `sides`, `bench` | the sides, and the benchmark |
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """`benchmarks.nexmark.bench`, which loads Kafka's client."""
    from benchmarks.nexmark.bench import main

    return main(argv)
