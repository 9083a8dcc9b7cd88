"""Recorded tables, joined by foreign key and aggregated, give what SQL gives of the tables at the end."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import agg, serdes
from crossstream.serdes.debezium import avro
from tests.operators.debezium.law.test_recordings import (
    BYTES,
    Customer,
    Line,
    Order,
    known_ids,
    of_sql,
    records,
)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "json-schemas", "avro", "rows-flagged"])
@pytest.mark.parametrize("every", [1, 5, 1000])
@pytest.mark.parametrize("whole", [False, True])
def test_two_joins_and_a_count(form, every, whole, monkeypatch):
    monkeypatch.setattr(avro, "check_ids", partial(known_ids, "changes"))
    more: dict[str, Any] = {"registry": "mock://changes"} if form == "avro" else {}
    if whole:
        more["unavailable_value"] = None
    builder = cs.StreamsBuilder()
    customers = builder.table("customers", source=cs.debezium(Customer, **more))
    orders = builder.table("orders", source=cs.debezium(Order, scales={"amount": 2}, **more))
    lines = builder.table("lines", source=cs.debezium(Line, key=["order_id", "line"], **more))
    left, right = pl.col("left").struct, pl.col("right").struct
    bought = lines.join(
        orders,
        foreign_key="order_id",
        joiner=pl.struct(
            article=left.field("article"), customer_id=right.field("customer_id").cast(pl.Int64)
        ),
    )
    named = bought.join(
        customers,
        foreign_key="customer_id",
        joiner=pl.struct(article=left.field("article"), name=right.field("name")),
        materialized=cs.Materialized(store="named"),
    )
    named.group_by("name").agg(count=agg.count(), materialized=cs.Materialized(store="counts"))
    with cs.TopologyTestDriver(builder.build(), partitions=2, commit_every=every) as driver:
        topics = {
            name: driver.create_input_topic(name, BYTES, BYTES) for name in ("customers", "orders", "lines")
        }
        arrived = [(one.timestamp, name, one) for name in topics for one in records("changes", form, name)]
        for _, name, one in sorted(arrived, key=lambda it: it[0]):
            topics[name].pipe_input(one.key, one.value, one.timestamp, partition=one.partition)
        driver.commit()
        found = Counter((row["article"], row["name"]) for _, row in driver.get_key_value_store("named").all())
        counts = {key: row["count"] for key, row in driver.get_key_value_store("counts").all()}
    names = {row["id"]: row["name"] for row in of_sql("changes", "customers")}
    buyers = {row["id"]: row["customer_id"] for row in of_sql("changes", "orders")}
    wanted = Counter(
        (line["article"], names[buyers[line["order_id"]]])
        for line in of_sql("changes", "lines")
        if buyers.get(line["order_id"]) in names
    )
    assert found == wanted
    assert found
    assert counts == Counter(name for _, name in wanted.elements())
    assert serdes is not None
