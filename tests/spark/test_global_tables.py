"""Rows of a DataFrame that look up a global table; all others: ``tests/application/test_global_tables.py``."""

from __future__ import annotations

from typing import Any

import pytest

import crossstream as cs
from crossstream.storage.commit_log import BatchLog
from tests.application.test_global_tables import stocked
from tests.spark.orders import JSON, TEXT, found, orders, shops, told
from tests.spark.world import World

__all__ = ["stocked"]

pytestmark = pytest.mark.spark


def test_rows_of_a_dataframe_wait_for_the_table(spark: Any, stocked: World) -> None:
    folder = str(stocked.root / "rows")
    given = [(key, value["item"], value["shop"]) for key, value, _ in orders(20, 60)]
    schema = "key string, value struct<item: string, shop: string>"
    frame = spark.createDataFrame([(key, (item, shop)) for key, item, shop in given], schema)
    frame.write.parquet(folder)
    builder = cs.StreamsBuilder()
    rows = builder.stream_from(
        spark.readStream.schema(schema).parquet(folder), cs.Consumed(key=TEXT, value=JSON, name="rows")
    )
    held = builder.global_table("shops", cs.Consumed(key=TEXT, value=JSON))
    rows.left_join(held, told, key_selector=lambda row: row["shop"]).to(
        "told", cs.Produced(key=TEXT, value=JSON)
    )
    with cs.SparkStreams(
        builder.build(), stocked.config(partitions=2, max_records_per_batch=20), spark
    ) as app:
        app.process_available()
    state = {key: value for key, value, _ in shops(50)}
    assert stocked.table("told", TEXT, JSON) == found(orders(20, 60), state)
    log = BatchLog(stocked.state_dir)
    assert [log.batch(batch).epoch for batch in log.commits()] == [-1, -1, -1, 0]
