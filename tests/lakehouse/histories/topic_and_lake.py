"""A topic whose earlier records are in a lake table, beside the same topic as a whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

import crossstream as cs
from crossstream.columns.flat import Format
from crossstream.filetopics import FileTopics
from crossstream.records import PRODUCER_RECORDS

PARTITIONS = 2


class Record(NamedTuple):
    """A record of the topic of orders. ``value``: customer and amount; None deletes the order."""

    partition: int
    key: str
    value: tuple[str, int] | None
    time: int

    @property
    def text(self) -> bytes | None:
        if self.value is None:
            return None
        return json.dumps({"customer": self.value[0], "amount": self.value[1]}).encode()


@dataclass
class Order:
    customer: str
    amount: int


ROWS = pa.schema(
    [
        ("key", pa.string()),
        ("customer", pa.string()),
        ("amount", pa.int32()),
        ("gone", pa.bool_()),
        ("at", pa.timestamp("ms", "UTC")),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
RAW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)


def offsets_of(records: Sequence[Record]) -> list[int]:
    """The offset of each record in its partition."""
    ends = [0] * PARTITIONS
    found = []
    for record in records:
        found.append(ends[record.partition])
        ends[record.partition] += 1
    return found


def write_topic(
    folder: Path, records: Sequence[Record], begins: Mapping[int, int] | None = None, topic: str = "orders"
) -> None:
    """Writes the topic; ``begins``: by partition, the first offset that is left of it."""
    topics, begins = FileTopics(str(folder), segment_bytes=1), begins or {}
    topics.log().create_topic(topic, PARTITIONS)
    for partition in range(PARTITIONS):
        rows = [
            {"key": one.key.encode(), "value": one.text, "timestamp": one.time, "headers": None}
            for one in records
            if one.partition == partition
        ]
        begin = begins.get(partition, 0)
        for part in (rows[:begin], rows[begin:]):  # a segment each
            if part:
                writer = topics.writer()
                batch = pa.RecordBatch.from_pylist(part, schema=PRODUCER_RECORDS)
                writer.write(topic, batch, [partition] * len(part))
                writer.close()
        if begin:
            (folder / topic / str(partition) / f"{0:020d}.seg").unlink()
            if begin == len(rows):
                (folder / topic / str(partition) / f"{begin:020d}.seg").touch()


def rows_of(records: Sequence[Record], *, raw: bool = False) -> list[dict[str, Any]]:
    """The records as rows of a lake table."""
    found = []
    for record, offset in zip(records, offsets_of(records), strict=True):
        place = {"partition": record.partition, "offset": offset}
        row: dict[str, Any]
        if raw:
            row = {"key": record.key.encode(), "value": record.text, "timestamp": record.time}
        else:
            customer, amount = record.value or (None, None)
            row = {"key": record.key, "customer": customer, "amount": amount}
            row |= {"gone": record.value is None, "at": record.time}
        found.append(row | place)
    return found


@dataclass(frozen=True, slots=True)
class Lake:
    """One table of a format, in a folder. ``raw``: it has the bytes of the records."""

    root: Path
    form: Format
    raw: bool = False
    by_partition: bool = False

    @property
    def schema(self) -> pa.Schema:
        return RAW if self.raw else ROWS

    @property
    def catalog(self) -> dict[str, str]:
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.root}/catalog.db",
            "warehouse": f"file://{self.root}/lake",
        }

    def create(self, schema: pa.Schema | None = None) -> None:
        if self.form == "delta":
            by = ["partition"] if self.by_partition else None
            DeltaTable.create(str(self.root / "orders"), schema or self.schema, partition_by=by)
            return
        catalog = load_catalog("default", **self.catalog)
        catalog.create_namespace("shop")
        catalog.create_table("shop.orders", self.schema)
        catalog.close()

    def create_again(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Another Delta table in its place."""
        shutil.rmtree(self.root / "orders")
        self.create()
        self.append(rows)

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """One commit."""
        table = pa.Table.from_pylist(list(rows), self.schema)
        if self.form == "delta":
            write_deltalake(str(self.root / "orders"), table, mode="append")
            return
        catalog = load_catalog("default", **self.catalog)
        catalog.load_table("shop.orders").append(table)
        catalog.close()

    def history(self, **settings: Any) -> Any:
        own = {"value": "value"} if self.raw else {"timestamp": "at", "deleted": "gone"}
        wanted: dict[str, Any] = {"until": cs.offsets(), "key": "key"} | own | settings
        if self.form == "delta":
            return cs.history(delta=self.root / "orders", **wanted)
        return cs.history(iceberg="shop.orders", catalog=self.catalog, **wanted)
