"""Rows of a DataFrame wait for tables that load first; all else: ``tests/application/test_load_first.py``."""

from __future__ import annotations

from typing import Any

import pytest

import crossstream as cs
from crossstream.storage.commit_log import BatchLog
from tests.application.test_global_tables import stocked
from tests.spark.orders import JSON, TEXT, orders, shops
from tests.spark.world import World

__all__ = ["stocked"]

pytestmark = pytest.mark.spark


def test_rows_of_a_dataframe_wait_for_the_table(spark: Any, stocked: World) -> None:
    folder = str(stocked.root / "rows")
    given = [(value["shop"], value["item"]) for _, value, _ in orders(20, 60) if value["shop"]]
    spark.createDataFrame(given, "key string, value string").write.parquet(folder)
    builder = cs.StreamsBuilder()
    frame = spark.readStream.schema("key string, value string").parquet(folder)
    rows = builder.stream_from(frame, cs.Consumed(key=TEXT, value=TEXT, name="rows"))
    held = builder.table("shops", cs.Consumed(key=TEXT, value=JSON, load="first"))
    rows.left_join(held, lambda item, shop: {"item": item, "shop": shop}).to(
        "told", cs.Produced(key=TEXT, value=JSON)
    )
    config = stocked.config(partitions=2, max_records_per_batch=20)
    with cs.SparkStreams(builder.build(), config, spark) as app:
        app.process_available()
    state = {key: value for key, value, _ in shops(50)}
    results = [(one.key, one.value["item"], one.value["shop"]) for one in stocked.read("told", TEXT, JSON)]
    assert sorted(results, key=str) == sorted(((key, item, state.get(key)) for key, item in given), key=str)
    log = BatchLog(stocked.state_dir)
    assert [log.batch(batch).epoch for batch in log.commits()] == [-1, -1, -1, 0]
