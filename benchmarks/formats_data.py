"""The records of the benchmarks in other formats: Avro in a registry's frame, rows or events of Debezium."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa

from benchmarks.data import Message
from benchmarks.formats_app import CustomerRow, OrderRow
from benchmarks.generate import Topics
from benchmarks.ours import Customer, Order
from crossstream import serdes
from crossstream.partitioning import murmur2_partitions
from crossstream.serdes.avro.types import schema_text
from crossstream.serdes.calls import decode_series, encode_series


class Record(NamedTuple):
    """A record with its topic partition."""

    partition: int
    key: bytes
    value: bytes | None
    timestamp: int


SOURCE: dict[str, str | int] = {
    "version": "3.6.1.Final",
    "connector": "postgresql",
    "name": "shop",
    "ts_ms": 1_700_000_000_000,
    "snapshot": "false",
    "db": "shop",
    "sequence": '["23456789","23456896"]',
    "schema": "public",
    "table": "orders",
    "txId": 771,
    "lsn": 23_456_896,
}
"""What an event of PostgreSQL says about its place."""


class Format:
    """The messages of the topics of a run in a format. ``registry``: of Avro's schemas."""

    def __init__(self, name: str, topics: Topics, registry: str, partitions: int) -> None:
        self.name, self.registry, self.partitions = name, registry, partitions
        self.kinds = {topics.orders: (Order, OrderRow), topics.customers: (Customer, CustomerRow)}
        self.lsn = 23_456_896

    def records(self, topic: str, chunks: Iterable[list[Message]]) -> Iterator[list[Record]]:
        """In the partitions of their texts, whatever the form of a key."""
        for chunk in chunks:
            if not chunk:
                continue
            keys = [key for key, _, _ in chunk]
            places = murmur2_partitions(keys, self.partitions)
            values = pa.array([value for _, value, _ in chunk], pa.large_binary())
            wire, framed = self._values(topic, keys, values)
            made = []
            for at, (place, key, value, (_, old, timestamp)) in enumerate(
                zip(places, framed, wire, chunk, strict=True)
            ):
                made.append(Record(int(place), key, value, timestamp))
                if self.name == "debezium" and old is None:
                    made.append(Record(int(place), framed[at], None, timestamp))
            yield made

    def _values(
        self, topic: str, keys: list[bytes], values: pa.LargeBinaryArray
    ) -> tuple[list[bytes | None], list[bytes]]:
        """Values and keys as bytes."""
        plain, row = self.kinds[topic]
        if self.name == "json":
            return values.to_pylist(), keys
        columns = decode_series(serdes.json(plain), values)
        if self.name == "avro":
            return self._encoded(topic, plain, columns), keys
        names = pl.Series("id", [key.decode() for key in keys])
        events = self._events(names, columns)
        key_rows = names.to_frame().to_struct()
        framed = self._encoded(topic, _KEY, key_rows, is_key=True)
        return self._encoded(topic, _envelope(row), events), framed

    def _encoded(self, topic: str, schema: Any, rows: pl.Series, is_key: bool = False) -> list[Any]:
        serde = serdes.confluent_avro(self.registry, schema).written_to(topic, is_key)  # type: ignore[attr-defined]
        made: list[Any] = encode_series(serde, rows).to_pylist()
        return made

    def _events(self, keys: pl.Series, rows: pl.Series) -> pl.Series:
        gone = rows.is_null()
        fields = rows.struct.unnest()
        after = pl.DataFrame([keys, *fields.get_columns()])
        empty = {pl.String: "", pl.Int64: 0, pl.Float64: 0.0, pl.Boolean: False}
        before = after.with_columns(
            pl.lit(empty[dtype.base_type()], dtype).alias(name) for name, dtype in fields.schema.items()
        )
        lsn = pl.Series("lsn", range(self.lsn, self.lsn + len(rows)))
        self.lsn += len(rows)
        source = lsn.to_frame().with_columns(
            pl.lit(value).alias(name) for name, value in SOURCE.items() if name != "lsn"
        )
        frame = pl.DataFrame(
            {
                "before": before.to_struct(),
                "after": after.to_struct(),
                "source": source.select(*SOURCE).to_struct(),
            }
        ).with_columns(
            before=pl.when(gone).then("before"),
            after=pl.when(~gone).then("after"),
            op=pl.when(gone).then(pl.lit("d")).otherwise(pl.lit("u")),
            ts_ms=pl.lit(1_700_000_000_123, pl.Int64),
        )
        return frame.to_struct()


_KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "string"}]}


def _envelope(row: type) -> dict[str, Any]:
    """As a connector registers it: the row before and after, the place, the operation."""
    value = json.loads(schema_text(row)) | {"name": "Value"}
    kinds = {str: "string", int: "long"}
    source = [{"name": name, "type": kinds[type(one)]} for name, one in SOURCE.items()]
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.public",
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": {"type": "record", "name": "Source", "fields": source}},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }
