"""A state folder with a store of every kind, written batch by batch."""

from __future__ import annotations

from pathlib import Path

import polars as pl

import crossstream as cs
from crossstream import serdes
from tests.docs.state_folder import Record, Writer

TEXT = serdes.string()
ROW = serdes.json({"price": pl.Int64, "name": pl.String})
TABLES = ("rows", "versions", "words", "pairs")
WINDOWED = ("windows", "sessions", "records")
KINDS = (*TABLES, *WINDOWED, "averages", "highest")
TOPICS = ("table", "versioned", "stream", "other")

Batch = dict[str, list[Record]]


def topology() -> cs.Topology:
    """``words`` has values without a declared type, ``pairs`` keys of two fields."""
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=TEXT, value=ROW)
    table = builder.table("table", consumed, cs.Materialized(store="rows"))
    builder.table("versioned", consumed, cs.Materialized(store="versions", history_retention="20 ms"))
    table.map_values(lambda row: {"name": row["name"]}, materialized=cs.Materialized(store="words"))
    stream = builder.stream("stream", consumed)
    stream.join(
        builder.stream("other", consumed),
        lambda left, right: left,
        cs.JoinWindows.of("5 ms", grace="2 ms"),
        stream_joined=cs.StreamJoined(store="records", other_store="others"),
    )
    grouped = stream.group_by_key()
    grouped.windowed_by(cs.TimeWindows(size="10 ms", grace="5 ms")).count(store="windows")
    grouped.windowed_by(cs.SessionWindows(gap="4 ms", grace="3 ms")).count(store="sessions")
    grouped.agg(average=cs.agg.mean("price"), number=cs.agg.count(), store="averages")
    pair = serdes.json({"shop": pl.String, "number": pl.Int64})
    named = stream.group_by(
        lambda key, row: {"shop": row["name"], "number": row["price"]}, cs.Grouped(key=pair, value=ROW)
    )
    named.count(store="pairs")
    table.group_by(
        lambda key, row: (row["name"], row["price"]), cs.Grouped(key=TEXT, value=serdes.int64())
    ).agg(most=cs.agg.max("value"), store="highest")
    return builder.build()


def record(key: str, price: int, name: str | None, time: int) -> Record:
    """A row; without a name a delete."""
    value = None if name is None else ROW.serialize({"price": price, "name": name})
    return key.encode(), value, time


def writer(root: Path, partitions: int = 2, retain: int = 100) -> Writer:
    return Writer(root, topology(), partitions=partitions, retain=retain)
