"""The records of a figure of the foreign-key benchmark as files, and whether a side gave the right results.

    records = left(folder, customers=100, orders=500, updates=1_000)
    differs(of_topic("localhost:9092", "run1-results"), records.expected())  # None

Files hold lines ``key TAB value``; a key alone deletes. Results: one row for each order that has a customer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from confluent_kafka import Consumer, TopicPartition

from benchmarks.data import FOREIGN_KEY, START_MS, Message, customer_messages, subscribers_of, updates_of
from benchmarks.generate import ends_of

RESULT = pl.Struct({"item": pl.String, "amount": pl.Float64, "customer": pl.String, "city": pl.String})
ORDER = pl.Struct({FOREIGN_KEY: pl.String, "item": pl.String, "amount": pl.Float64})
CUSTOMER = pl.Struct({"name": pl.String, "city": pl.String})
COLUMNS = [field.name for field in RESULT.fields]
LINE = {"id": pl.String, "value": pl.String}
ENDS = "end-"
"""What the keys of last records begin with, which say that all is done: they belong to no result."""


@dataclass(frozen=True, slots=True)
class Records:
    """Files by table: what is there before the clock runs, and what it runs for."""

    before: dict[str, Path]
    input: dict[str, Path]

    def expected(self) -> pl.DataFrame:
        """The last row of each order, with name and city of the last row of its customer."""
        left, right = newest(self._all("orders"), ORDER), newest(self._all("customers"), CUSTOMER)
        joined = left.join(right.rename({"id": FOREIGN_KEY, "name": "customer"}), on=FOREIGN_KEY)
        return joined.select("id", *COLUMNS)

    def _all(self, table: str) -> pl.DataFrame:
        return pl.concat([lines_of(files[table]) for files in (self.before, self.input) if table in files])


def left(folder: Path, customers: int, orders: int, updates: int, seed: int = 1) -> Records:
    """All customers, then updates of orders, as `produce_customers` and `produce_orders` send them."""
    there = {"customers": customer_messages(range(customers), seed)}
    new = {"orders": updates_of(orders, updates, customers, seed).messages(START_MS)}
    return Records(_written(folder, "before", there), _written(folder, "input", new))


def fan_out(folder: Path, customers: int, subscribers: int, seed: int = 1) -> Records:
    """Customers with ``subscribers`` orders each, then a new row of each customer; cf. `change_customers`."""
    there = {
        "customers": customer_messages(range(customers), seed),
        "orders": subscribers_of(customers, subscribers, seed).messages(START_MS),
    }
    new = {"customers": customer_messages(range(customers), seed + 1)}
    return Records(_written(folder, "before", there), _written(folder, "input", new))


def of_file(path: Path) -> pl.DataFrame:
    """The last row of each key in a file of results."""
    return newest(lines_of(path), RESULT)


def of_topic(servers: str, topic: str) -> pl.DataFrame:
    """The last row of each key in a topic of results."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "compare",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    with closing(Consumer(settings)) as consumer:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        parts = [_partition(consumer, TopicPartition(topic, number, 0)) for number in partitions]
    return newest(pl.concat(parts), RESULT)


def newest(lines: pl.DataFrame, row: pl.Struct) -> pl.DataFrame:
    """The last row of each key, without those that were deleted, and without ends."""
    last = lines.unique("id", keep="last", maintain_order=True)
    kept = last.filter(pl.col("value").is_not_null() & ~pl.col("id").str.starts_with(ENDS))
    return kept.select("id", pl.col("value").str.json_decode(row)).unnest("value")


def differs(found: pl.DataFrame, expected: pl.DataFrame) -> str | None:
    """The difference in words; None if both have the same rows."""
    if found.height != expected.height:
        return f"{found.height} rows instead of {expected.height}"
    pairs = expected.join(found, on="id", how="left", suffix="_found")
    wrong = pairs.filter(
        pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}_found")) for name in COLUMNS)
    )
    return None if wrong.is_empty() else f"{wrong.height} rows differ, such as {wrong.row(0, named=True)}"


def lines_of(path: Path) -> pl.DataFrame:
    """Keys and values of a file; the value is null where the key stands alone."""
    return pl.read_csv(path, separator="\t", quote_char=None, has_header=False, schema=LINE)


def _written(folder: Path, name: str, chunks: Mapping[str, Iterable[list[Message]]]) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = {table: folder / f"{name}-{table}" for table in chunks}
    for table, path in files.items():
        with path.open("wb") as file:
            for chunk in chunks[table]:
                file.writelines(_line(key, value) for key, value, _ in chunk)
    return files


def _line(key: bytes, value: bytes | None) -> bytes:
    return b"%b\n" % key if value is None else b"%b\t%b\n" % (key, value)


def _partition(consumer: Consumer, place: TopicPartition) -> pl.DataFrame:
    """Keys and values from its begin to its end."""
    consumer.assign([place])
    found: list[tuple[bytes, bytes | None]] = []
    ended = ends_of(consumer, [place]) == [0]
    while not ended:
        for message in consumer.consume(50_000, 1.0):
            if message.error() is None:
                found.append((message.key() or b"", message.value()))
            else:  # the end of the partition, which comes last
                ended = True
    return _frame(found)


def _frame(records: Sequence[tuple[bytes, bytes | None]]) -> pl.DataFrame:
    binary = pl.DataFrame(records, dict.fromkeys(LINE, pl.Binary), orient="row")
    return binary.cast(dict.fromkeys(LINE, pl.String))
